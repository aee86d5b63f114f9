// Package ucma is the kernel's side of rdma_cm for user programs: it serves the Linux
// rdma_cm write() ABI (rdma/rdma_user_cm.h) on a socket, keeps the communication
// identifiers of its clients, and drives the connection managers of the NICs for them.
// docs/reference/control-protocol.md describes what is spoken.
package ucma

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/cm"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/server"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Socket is the name of the socket in the run directory.
const Socket = "rdma_cm"

// NIC is a NIC whose connection manager is served.
type NIC struct {
	Name  string
	GUID  [8]byte // node GUID of its verbs devices
	Shard *shard.Shard
	// May tells whether a user may use the NIC.
	May func(*unix.Ucred) bool
}

// Config describes a server.
type Config struct {
	Path string // of the socket
	Mode fs.FileMode
	NICs []NIC
	// Quota bounds the devices and the identifiers of users.
	Quota *quota.Ledger
	Log   *slog.Logger
}

// nic is a NIC with its connection manager.
type nic struct {
	NIC
	srv   *Server
	agent *cm.Agent // belongs to the shard
}

// do runs f on the NIC's shard.
func (n *nic) do(f func(now mono.Time, core *rocev2.NIC) error) error { return on(n.Shard.Do, f) }

// look is do for what only reads.
func (n *nic) look(f func(core *rocev2.NIC) error) error {
	return on(n.Shard.Look, func(_ mono.Time, core *rocev2.NIC) error { return f(core) })
}

func on(shard func(context.Context, func(mono.Time, *rocev2.NIC)) error, f func(mono.Time, *rocev2.NIC) error) error {
	var err error
	if derr := shard(context.Background(), func(now mono.Time, core *rocev2.NIC) { err = f(now, core) }); derr != nil {
		return unix.EIO
	}
	return err
}

// Server serves rdma_cm. One lock guards all identifiers: commands run under it, and
// so do the events of the connection managers, which come to it through a queue since
// shards must not wait.
type Server struct {
	cfg  Config
	ln   *net.UnixListener
	nics []*nic
	wg   sync.WaitGroup

	mu        sync.Mutex
	ctxs      map[*device]struct{}
	cookies   map[uint64]*device // by the client's end of the connection
	ids       map[uint32]*id
	lastID    uint32
	lastGroup uint32 // number of the membership made last
	conns     map[*cm.Conn]*id
	sidrs     map[*cm.SIDR]*id
	ports     map[portKey][]*id
	ringing   []*device // events of theirs are to be pushed
	closing   bool

	inbox struct {
		sync.Mutex
		list  []func()
		wake  chan struct{}
		ended bool
	}
}

// New makes the connection managers of the NICs, opens the socket and serves it.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, ctxs: map[*device]struct{}{}, cookies: map[uint64]*device{},
		ids: map[uint32]*id{}, conns: map[*cm.Conn]*id{}, sidrs: map[*cm.SIDR]*id{}, ports: map[portKey][]*id{}}
	s.inbox.wake = make(chan struct{}, 1)
	for _, c := range cfg.NICs {
		n := &nic{NIC: c, srv: s}
		if err := n.attach(); err != nil {
			return nil, fmt.Errorf("connection manager of %s: %w", c.Name, err)
		}
		s.nics = append(s.nics, n)
	}
	ln, err := server.Listen("unixpacket", cfg.Path, cfg.Mode)
	if err != nil {
		return nil, err
	}
	s.ln = ln
	s.wg.Go(s.accept)
	s.wg.Go(s.dispatch)
	return s, nil
}

// attach makes the connection manager of a NIC.
func (n *nic) attach() error {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return err
	}
	return n.do(func(_ mono.Time, core *rocev2.NIC) error {
		n.agent = cm.New(cm.Config{Port: core, GUID: binary.BigEndian.Uint64(n.GUID[:]), Seed: seed})
		core.SetGSI(n.agent)
		return nil
	})
}

// post makes f run under the lock. It does not wait, and nothing posted is lost:
// a connection reports each event once, and counts against the backlog of its listener until
// the server has taken the request and closed it.
func (s *Server) post(f func()) {
	s.inbox.Lock()
	s.inbox.list = append(s.inbox.list, f)
	s.inbox.Unlock()
	select {
	case s.inbox.wake <- struct{}{}:
	default:
	}
}

// unlock gives the lock back, after the events that have come up are sent to those who want them so.
func (s *Server) unlock() {
	for _, c := range s.ringing {
		c.push()
	}
	s.ringing = s.ringing[:0]
	s.mu.Unlock()
}

// dispatch runs what is posted.
func (s *Server) dispatch() {
	for range s.inbox.wake {
		s.inbox.Lock()
		list, ended := s.inbox.list, s.inbox.ended
		s.inbox.list = nil
		s.inbox.Unlock()
		for _, f := range list {
			s.mu.Lock()
			f()
			s.unlock()
		}
		if ended {
			return
		}
	}
}

// acceptPause follows an error of accept, such as too many open files.
const acceptPause = 50 * time.Millisecond

// accept admits clients until the listener is closed.
func (s *Server) accept() {
	for {
		conn, err := s.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
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

// deviceFiles are the descriptors of a device: its connection and the event socket.
const deviceFiles = 2

// admit starts to serve a connection.
func (s *Server) admit(conn *net.UnixConn) error {
	cred, err := server.PeerCred(conn)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	account := s.cfg.Quota.Open(cred.Uid)
	if !account.Take(quota.CMDevices, 1) || !account.Take(quota.Descriptors, deviceFiles) {
		account.Close()
		return fmt.Errorf("user %d has as many connections as he may have", cred.Uid)
	}
	c := newContext(s, conn, cred, account)
	s.ctxs[c] = struct{}{}
	s.wg.Go(func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ctxs, c)
		account.Close()
	})
	return nil
}

// StopAccepting refuses new clients; those that are there go on.
func (s *Server) StopAccepting() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.ln.Close()
}

// Close tells clients that their devices are gone, ends their connections and removes
// the socket. The shards must still be running.
func (s *Server) Close() error {
	s.StopAccepting()
	s.removeDevices()
	s.mu.Lock()
	for c := range s.ctxs {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.inbox.Lock()
	s.inbox.ended = true
	s.inbox.Unlock()
	s.post(func() {})
	s.wg.Wait()
	for _, n := range s.nics {
		_ = n.do(func(_ mono.Time, core *rocev2.NIC) error { core.SetGSI(nil); return nil })
	}
	if err := os.Remove(s.cfg.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// farewell bounds how long Close waits for clients to take their last events.
const farewell = 200 * time.Millisecond

// removeDevices tells everybody who uses a NIC that it is going.
func (s *Server) removeDevices() {
	s.mu.Lock()
	for _, i := range s.ids {
		if i.nic != nil && !i.unknown() {
			i.emit(rdmacm.EventDeviceRemoval, 0)
		}
	}
	s.unlock()
	for end := time.Now().Add(farewell); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		waiting := 0
		for c := range s.ctxs {
			waiting += len(c.events)
		}
		s.mu.Unlock()
		if waiting == 0 {
			return
		}
	}
}
