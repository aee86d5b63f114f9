// Package ucma implements the kernel's side of rdma_cm for user programs. It serves the Linux rdma_cm write() ABI
// (rdma/rdma_user_cm.h) on a socket and holds the communication identifiers of its clients. For these it drives the
// connection managers of the NICs. docs/reference/control-protocol.md describes the protocol.
package ucma

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/daemon/accept"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Socket is the name of the socket in the run directory.
const Socket = "rdma_cm"

// MaxConns is the maximum number of connections of a NIC in all states.
const MaxConns = 1 << 17

// NIC is a NIC whose connection manager the server uses.
type NIC struct {
	Name  string
	GUID  [8]byte // node GUID of its verbs devices
	Shard *shard.NIC
	// May reports whether a user may use the NIC.
	May func(*unix.Ucred) bool
}

// Config configures a server.
type Config struct {
	Path string // of the socket
	Mode fs.FileMode
	NICs []NIC
	// Quota limits the devices and the identifiers of each user.
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

// look is do for functions that only read.
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

// Server serves rdma_cm. One lock guards all identifiers; commands and connection manager events run under it. Events
// reach the server through a queue, because shards must not block.
type Server struct {
	cfg      Config
	listener *accept.Listener
	nics     []*nic
	wg       sync.WaitGroup // dispatch
	done     chan struct{}  // closed when the server closes

	mu        sync.Mutex
	ctxs      map[*device]struct{}
	cookies   map[uint64]*device // key: the client's end of the event socket
	ids       map[uint32]*id
	lastID    uint32
	lastGroup uint32 // number of the newest membership
	conns     map[*cm.Conn]*id
	sidrs     map[*cm.SIDR]*id
	ports     map[portKey][]*id
	ringing   []*device // devices with events to push

	inbox struct {
		sync.Mutex
		list  []func()
		wake  chan struct{}
		ended bool
	}
}

// New creates the connection managers of the NICs, opens the socket and serves it.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg, done: make(chan struct{}), ctxs: map[*device]struct{}{}, cookies: map[uint64]*device{},
		ids: map[uint32]*id{}, conns: map[*cm.Conn]*id{}, sidrs: map[*cm.SIDR]*id{}, ports: map[portKey][]*id{}}
	s.inbox.wake = make(chan struct{}, 1)
	for _, c := range cfg.NICs {
		n := &nic{NIC: c, srv: s}
		if err := n.attach(); err != nil {
			return nil, fmt.Errorf("connection manager of %s: %w", c.Name, err)
		}
		s.nics = append(s.nics, n)
	}
	var err error
	s.listener, err = accept.New(accept.Config{Path: cfg.Path, Mode: cfg.Mode, Quota: cfg.Quota, Kind: quota.CMDevices, Files: deviceFiles,
		Log: cfg.Log, Serve: s.serve})
	if err != nil {
		return nil, err
	}
	s.wg.Go(s.dispatch)
	return s, nil
}

// attach creates the connection manager of a NIC.
func (n *nic) attach() error {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return err
	}
	return n.do(func(_ mono.Time, core *rocev2.NIC) error {
		n.agent = cm.New(cm.Config{Port: core, GUID: binary.BigEndian.Uint64(n.GUID[:]), Seed: seed,
			MaxConns: MaxConns})
		core.SetGSI(n.agent)
		return nil
	})
}

// post queues f to run under the lock. It does not block and loses nothing. The queue is bounded: a connection
// reports each event once, and counts against its listener's backlog until the server has taken and closed the
// request.
func (s *Server) post(f func()) {
	s.inbox.Lock()
	s.inbox.list = append(s.inbox.list, f)
	s.inbox.Unlock()
	select {
	case s.inbox.wake <- struct{}{}:
	default:
	}
}

// unlock pushes new events to the clients that want whole events, and releases the lock.
func (s *Server) unlock() {
	for _, c := range s.ringing {
		c.push()
	}
	s.ringing = s.ringing[:0]
	s.mu.Unlock()
}

// dispatch runs the posted functions.
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

// deviceFiles is the number of descriptors of a device: its connection and the event socket.
const deviceFiles = 2

// serve serves a client until it disconnects.
func (s *Server) serve(peer *accept.Client) {
	c := newContext(s, peer.UnixConn, peer.Cred, peer.Account)
	s.mu.Lock()
	s.ctxs[c] = struct{}{}
	s.mu.Unlock()
	c.serve()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ctxs, c)
}

// StopAccepting refuses new clients; existing clients continue.
func (s *Server) StopAccepting() { s.listener.StopAccepting() }

// Close notifies clients that their devices are gone, closes their connections and removes the socket. The shards
// must still run.
func (s *Server) Close() error {
	s.StopAccepting()
	s.removeDevices(func(*nic) bool { return true })
	close(s.done)
	err := s.listener.Close()
	s.inbox.Lock()
	s.inbox.ended = true
	s.inbox.Unlock()
	s.post(func() {})
	s.wg.Wait()
	for _, n := range s.nics {
		_ = n.do(func(_ mono.Time, core *rocev2.NIC) error { core.SetGSI(nil); return nil })
	}
	return err
}

// farewell is the maximum time that Close waits for clients to read their last events.
const farewell = 200 * time.Millisecond

// removeDevices sends DEVICE_REMOVAL for all identifiers on NICs of which gone is true, and waits until clients have read
// their events.
func (s *Server) removeDevices(gone func(*nic) bool) {
	s.mu.Lock()
	for _, i := range s.ids {
		if i.nic != nil && gone(i.nic) && !i.unknown() {
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
