// Package server is the kernel's side of uverbs. It receives the commands of client processes from a socket, manages
// their objects, and provides rings, doorbells and events. docs/reference/control-protocol.md describes the
// protocol.
package server

import (
	"context"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/accept"
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
	Shard *shard.NIC
	// Device and Profiles answer EXT_HELLO. Profile applies to queue pairs of clients that request none; empty means
	// the NIC's default.
	Device   string
	Profile  string
	Profiles []string
	// Share returns the link share of a client of a user. If nil, all clients have equal shares.
	Share func(uid uint32, client uint64) rocev2.Share
	// Refresh, if set, updates the files that programs read.
	Refresh func(context.Context) error
	MAC     inet.MAC
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
	cfg      Config
	listener *accept.Listener
	ctx      context.Context // canceled when the server closes
	cancel   context.CancelFunc

	mu      sync.Mutex
	clients map[*client]struct{}
	serial  uint64 // of the newest client

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
	fl, err := newFlusher()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, flusher: fl, clients: map[*client]struct{}{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.listener, err = accept.New(accept.Config{Path: cfg.Path, Mode: cfg.Mode, UIDs: cfg.UIDs, GIDs: cfg.GIDs, Quota: cfg.Quota,
		Kind: quota.Connections, Files: connectionFiles, Log: cfg.Log, Serve: s.serve})
	if err != nil {
		fl.close()
		return nil, err
	}
	return s, nil
}

// connectionFiles is the number of descriptors per connection: socket, process, doorbells.
const connectionFiles = 3

// serve serves a client until it disconnects.
func (s *Server) serve(peer *accept.Client) {
	s.mu.Lock() // one at a time: system calls of many goroutines would need many threads
	pidfd, err := peerPidfd(peer.UnixConn, peer.Cred)
	if err != nil {
		s.cfg.Log.Debug("no pidfd of the client, which has to pass its memory", "pid", peer.Cred.Pid, "err", err)
		pidfd = -1
	}
	s.serial++
	c := newClient(s, uverbs.NewConn(peer.UnixConn), peer.Cred, peer.Account, pidfd, s.serial)
	s.clients[c] = struct{}{}
	s.mu.Unlock()
	c.serve()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, c)
}

// Gate limits the descriptors that a client sends to its account. done is closed when the server closes.
func Gate(a *quota.Account, done <-chan struct{}) *uverbs.Gate {
	return &uverbs.Gate{Slots: a.Closes(), Done: done, Charge: func(n int) bool { return a.Charge(quota.Descriptors, int64(n)) }}
}

// Profile returns the transport profile of the device.
func (s *Server) Profile() string { return s.cfg.Profile }

// StopAccepting refuses new clients. Existing clients stay connected.
func (s *Server) StopAccepting() {
	s.listener.StopAccepting()
}

// Permit changes the mode of the socket and the users that may connect. Existing clients stay connected.
func (s *Server) Permit(mode fs.FileMode, uids, gids []uint32) error {
	return s.listener.Permit(mode, uids, gids)
}

// SetLimits changes the limits of clients that connect from now on.
func (s *Server) SetLimits(l Limits) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.Limits = l
}

func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// Close disconnects all clients, waits for the destruction of their objects and removes the socket. The shard must
// still be running.
func (s *Server) Close() error {
	s.listener.StopAccepting()
	s.cancel()
	err := s.listener.Close()
	s.flusher.close()
	return err
}
