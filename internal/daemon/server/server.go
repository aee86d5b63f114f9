// Package server is the kernel's side of uverbs. It receives the commands of client processes from a socket, manages
// their objects, and provides rings, doorbells and events. docs/reference/control-protocol.md describes the
// protocol.
package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/rocev2"
)

// Limits are the limits of one user, and thus of each client.
type Limits struct {
	Connections int
	QPs         int
	CQs         int
	SRQs        int
	MRs         int
	MWs         int
	PDs         int
	AHs         int
	Channels    int
	Memory      int64 // mapped bytes, rings included
}

// Amounts converts the limits to quota amounts.
func (l *Limits) Amounts() (a quota.Amounts) {
	for k, n := range map[quota.Kind]int{quota.Connections: l.Connections, quota.QPs: l.QPs, quota.CQs: l.CQs, quota.SRQs: l.SRQs,
		quota.MRs: l.MRs, quota.MWs: l.MWs, quota.PDs: l.PDs, quota.AHs: l.AHs, quota.Channels: l.Channels} {
		a[k] = int64(n)
	}
	a[quota.Memory] = l.Memory
	return a
}

// Config describes the server of one NIC.
type Config struct {
	Path  string // of the socket
	Mode  fs.FileMode
	UIDs  []uint32 // users that may connect; if UIDs and GIDs are empty, Mode alone decides
	GIDs  []uint32
	Shard *shard.Station
	// Device and Profiles answer EXT_HELLO. Profile applies to queue pairs of clients that request none; empty means
	// the NIC's default.
	Device   string
	Profile  string
	Profiles []string
	// Share returns the link share of a client of a user. If nil, all clients have equal shares.
	Share func(uid uint32, client uint64) rocev2.Share
	// Refresh, if set, updates the files that programs read.
	Refresh func(context.Context) error
	MAC     rocev2.MAC
	Limits  Limits
	// Quota counts the usage of all users on all devices of the NIC. If nil, Limits apply to this server alone.
	Quota *quota.Ledger
	// Guard, if not nil, prevents that memory of clients counts as memory of the daemon. Close it after the NIC.
	Guard *shm.Guard
	// Distrust makes the NIC never block on memory of a client's processes, not even on root's.
	Distrust bool
	Log      *slog.Logger
}

// Server serves the clients of one NIC.
type Server struct {
	cfg    Config
	ln     *net.UnixListener
	ctx    context.Context // canceled when the server closes
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	clients map[*client]struct{}
	closing bool
	serial  uint64

	flusher  *flusher      // for all channels
	commands atomic.Uint64 // run for all clients
	advised  pauser
}

// Commands returns the number of commands of all clients.
func (s *Server) Commands() uint64 { return s.commands.Load() }

// New opens the socket and serves it. It replaces a stale socket.
func New(cfg Config) (*Server, error) {
	if cfg.Quota == nil {
		cfg.Quota = quota.New(cfg.Limits.Amounts(), quota.Amounts{}, nil)
	}
	ln, err := Listen("unixpacket", cfg.Path, cfg.Mode)
	if err != nil {
		return nil, err
	}
	fl, err := newFlusher()
	if err != nil {
		ln.Close()
		return nil, err
	}
	s := &Server{cfg: cfg, ln: ln, flusher: fl, clients: map[*client]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// Listen creates a Unix socket with the given mode at path. It replaces an existing file. The replacement is atomic:
// the socket never has other permissions at path.
func Listen(network, path string, mode fs.FileMode) (*net.UnixListener, error) {
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
func (s *Server) accept() {
	for {
		conn, err := s.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			s.cfg.Log.Warn("accept", "err", err)
			time.Sleep(acceptPause)
			continue
		}
		if err := s.admit(conn); err != nil {
			s.cfg.Log.Warn("client refused", "err", err)
			conn.Close()
		}
	}
}

// connectionFiles is the number of descriptors per connection: socket, process, doorbells.
const connectionFiles = 3

// admit starts to serve conn if its user has permission and quota.
func (s *Server) admit(conn *net.UnixConn) error {
	cred, err := PeerCred(conn)
	if err != nil {
		return err
	}
	if len(s.cfg.UIDs)+len(s.cfg.GIDs) > 0 && !Allowed(cred, s.cfg.UIDs, s.cfg.GIDs) {
		return fmt.Errorf("user %d: %w", cred.Uid, fs.ErrPermission)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	account := s.cfg.Quota.Open(cred.Uid)
	if !account.Take(quota.Connections, 1) || !account.Take(quota.Descriptors, connectionFiles) {
		account.Close()
		return fmt.Errorf("user %d has as many connections as he may have", cred.Uid)
	}
	pidfd, err := peerPidfd(conn, cred)
	if err != nil {
		s.cfg.Log.Debug("no pidfd of the client, which has to pass its memory", "pid", cred.Pid, "err", err)
		pidfd = -1
	}
	s.serial++
	c := newClient(s, uverbs.NewConn(conn), cred, account, pidfd, s.serial)
	s.clients[c] = struct{}{}
	s.wg.Go(func() {
		c.serve()
		account.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.clients, c)
	})
	return nil
}

// Gate limits the descriptors that a client sends to its account. done is closed when the server closes.
func Gate(a *quota.Account, done <-chan struct{}) *uverbs.Gate {
	return &uverbs.Gate{Slots: a.Closes(), Done: done, Charge: func(n int) bool { return a.Charge(quota.Descriptors, int64(n)) }}
}

// Profile returns the transport profile of the device.
func (s *Server) Profile() string { return s.cfg.Profile }

// StopAccepting refuses new clients. Existing clients stay connected.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.ln.Close()
}

func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// Close disconnects all clients, waits for the destruction of their objects and removes the socket. The shard must
// still be running.
func (s *Server) Close() error {
	s.StopAccepting()
	s.cancel()
	s.mu.Lock()
	for c := range s.clients {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
	s.flusher.close()
	if err := os.Remove(s.cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
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
