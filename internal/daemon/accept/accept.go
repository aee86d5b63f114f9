// Package accept accepts clients on Unix sockets. It checks their rights, counts them in quotas, and runs a goroutine
// for each.
package accept

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/quota"
)

// Config describes a listener for clients that send packets.
type Config struct {
	Path string // of the socket
	Mode fs.FileMode
	UIDs []uint32 // users that may connect; if UIDs and GIDs are empty, Mode alone decides
	GIDs []uint32
	// Each connection of a user counts as one of Kind and as Files descriptors.
	Quota *quota.Ledger
	Kind  quota.Kind
	Files int64
	Log   *slog.Logger
	// Serve serves a client. The listener closes the connection and the account afterwards.
	Serve func(*Client)
}

// Client is an admitted connection.
type Client struct {
	*net.UnixConn
	Cred    *unix.Ucred
	Account *quota.Account
}

// Listener accepts clients.
type Listener struct {
	cfg Config
	ln  *net.UnixListener
	wg  sync.WaitGroup

	mu      sync.Mutex
	clients map[*Client]struct{}
	closing bool
}

// New opens the socket and accepts clients. It replaces a stale socket.
func New(cfg Config) (*Listener, error) {
	ln, err := Unix("unixpacket", cfg.Path, cfg.Mode)
	if err != nil {
		return nil, err
	}
	l := &Listener{cfg: cfg, ln: ln, clients: map[*Client]struct{}{}}
	l.wg.Go(l.accept)
	return l, nil
}

// Unix creates a Unix socket with the given mode at path. It replaces an existing file. The replacement is atomic:
// the socket never has other permissions at path.
func Unix(network, path string, mode fs.FileMode) (*net.UnixListener, error) {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ln, err := net.ListenUnix(network, &net.UnixAddr{Name: tmp, Net: network})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	if err = os.Chmod(tmp, mode); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		ln.Close()
		os.Remove(tmp)
		return nil, err
	}
	return ln, nil
}

// acceptPause is the delay after an accept error, such as too many open files.
const acceptPause = 50 * time.Millisecond

// accept accepts clients until the listener is closed.
func (l *Listener) accept() {
	for {
		conn, err := l.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.cfg.Log.Warn("accept", "socket", l.cfg.Path, "err", err)
			time.Sleep(acceptPause)
			continue
		}
		if err := l.admit(conn); err != nil {
			l.cfg.Log.Warn("client refused", "socket", l.cfg.Path, "err", err)
			conn.Close()
		}
	}
}

// admit starts to serve a client with permission and quota.
func (l *Listener) admit(conn *net.UnixConn) error {
	cred, err := PeerCred(conn)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.cfg.UIDs)+len(l.cfg.GIDs) > 0 && !Allowed(cred, l.cfg.UIDs, l.cfg.GIDs) {
		return fmt.Errorf("user %d: %w", cred.Uid, fs.ErrPermission)
	}
	if l.closing {
		return net.ErrClosed
	}
	account, err := Charge(l.cfg.Quota, cred, l.cfg.Kind, l.cfg.Files)
	if err != nil {
		return err
	}
	c := &Client{conn, cred, account}
	l.clients[c] = struct{}{}
	l.wg.Go(func() {
		l.cfg.Serve(c)
		conn.Close()
		account.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.clients, c)
	})
	return nil
}

// Permit changes the mode of the socket and the users that may connect. Existing clients stay connected.
func (l *Listener) Permit(mode fs.FileMode, uids, gids []uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := os.Chmod(l.cfg.Path, mode); err != nil {
		return err
	}
	l.cfg.Mode, l.cfg.UIDs, l.cfg.GIDs = mode, uids, gids
	return nil
}

// Charge opens an account for a connection and counts the connection and its descriptors.
func Charge(q *quota.Ledger, cred *unix.Ucred, kind quota.Kind, files int64) (*quota.Account, error) {
	account := q.Open(cred.Uid)
	if !account.Take(kind, 1) || !account.Take(quota.Descriptors, files) {
		account.Close()
		return nil, fmt.Errorf("user %d has reached the limit of connections or descriptors", cred.Uid)
	}
	return account, nil
}

// StopAccepting refuses new clients. Existing clients stay connected.
func (l *Listener) StopAccepting() {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	l.ln.Close()
}

// Close disconnects all clients, waits for the end of Serve, and removes the socket.
func (l *Listener) Close() error {
	l.StopAccepting()
	l.mu.Lock()
	for c := range l.clients {
		c.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
	if err := os.Remove(l.cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// PeerCred returns the credentials of the peer of a Unix socket.
func PeerCred(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(cerr, err)
}

// Allowed reports whether a user may use a socket. Root, the daemon's own user and the listed users and groups may.
func Allowed(cred *unix.Ucred, uids, gids []uint32) bool {
	if cred.Uid == 0 || cred.Uid == uint32(os.Geteuid()) {
		return true
	}
	if slices.Contains(uids, cred.Uid) || slices.Contains(gids, cred.Gid) {
		return true
	}
	return len(gids) > 0 && slices.ContainsFunc(groupsOf(cred), func(g uint32) bool { return slices.Contains(gids, g) })
}

// groupsOf returns the supplementary groups of a process, which SO_PEERCRED omits.
func groupsOf(cred *unix.Ucred) []uint32 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(int(cred.Pid)) + "/status")
	if err != nil {
		return nil
	}
	return parseGroups(string(text))
}
