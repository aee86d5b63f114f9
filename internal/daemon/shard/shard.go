// Package shard runs one NIC on one OS thread: it moves frames between the NIC
// and its port, hears the doorbells of clients, keeps the clock, and sleeps when
// there is nothing to do. The NIC is touched by nobody else; Do brings closures
// to it.
package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/clock"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/rocev2"
)

// ErrClosed says that the shard has ended.
var ErrClosed = errors.New("shard: closed")

// Config describes a shard.
type Config struct {
	NIC  *rocev2.NIC
	Port port.Port
	// Poll is how long to look for work before sleeping: 0 sleeps at once, a
	// negative value never sleeps.
	Poll time.Duration
	// OnFault is told, on the shard's thread, that memory of a client was gone
	// when it was accessed. It may be nil.
	OnFault func(addr uintptr)
	// Ask gets the questions of a NIC that shares an interface with the kernel, on the
	// shard's thread. It must not wait, and may forget: the NIC asks again.
	Ask func(rocev2.Query)
}

// Stats count what the loop does.
type Stats struct {
	Rounds    uint64 // turns of the loop
	Sleeps    uint64 // turns that ended in a sleep
	Yields    uint64 // turns that found nothing and gave the core away
	Calls     uint64 // closures run
	Doorbells uint64 // queue pairs named by doorbells
	RxFrames  uint64 // frames and super-frames received
	RxBatches uint64 // turns that received any
	TxFrames  uint64
	TxBatches uint64
	TxBlocked uint64 // times that the port had no room
	TxDropped uint64 // frames given to a link that was down
	PortErrs  uint64 // unexpected errors of the port
	MemFaults uint64 // accesses to memory that was gone
}

// Shard is the loop around one NIC.
type Shard struct {
	nic     *rocev2.NIC
	port    port.Port
	onFault func(uintptr)
	ask     func(rocev2.Query)
	// monitored is the port if it knows the state of its link.
	monitored port.Monitored

	calls    chan *call
	stopped  chan struct{}
	sleeping atomic.Uint32 // like that of a doorbell page, for Do
	loops    sync.Mutex    // what belongs to the loop: it holds this, but while it sleeps or gives the core away
	wanted   atomic.Bool   // the loop wants it back

	// The rest belongs to the loop.
	ending   bool
	small    bool // the last batch was one small frame
	up       bool
	mtu      int // of the link, when it has said so
	poll     time.Duration
	lastWork mono.Time
	giveUp   func()    // the core
	crowded  mono.Time // until then others are believed to want the core
	touched  mono.Time // when somebody else has changed something last: a queue pair may have been broken
	until    mono.Time // when the sleep ends at the latest
	rouse    bool      // who has the NIC meanwhile has changed how the loop is to go on
	bells    []*Bell
	listen   int // the bell that was listened to last
	buf      []byte
	unsent   bool          // transmit has stopped before it had sent all
	held     *rocev2.Frame // a frame that the port had no room for
	heldFrm  rocev2.Frame
	heldBuf  []byte
	heldBufs [1][]byte
	stats    Stats
	ep       epoll

	poster   recvPoster
	watched  []watched
	placeOf  map[*rocev2.QueuePair]int // in watched
	scanned  mono.Time                 // when the last look at the watched queue pairs began
	scanning bool                      // it is not over
	seen     int                       // by it
	broken   bool                      // one of them was
}

// Now reads the clock that the shards use, by which completions are stamped.
func Now() mono.Time { return clock.Now() }

// bufSize holds the longest super-frame.
const bufSize = 1<<16 + 64

// New starts a shard.
func New(cfg Config) (*Shard, error) {
	s := &Shard{
		nic: cfg.NIC, port: cfg.Port, onFault: cfg.OnFault, ask: cfg.Ask, poll: cfg.Poll, up: true,
		calls: make(chan *call, 64), stopped: make(chan struct{}),
		buf: make([]byte, bufSize), heldBuf: make([]byte, 0, bufSize), giveUp: yield,
	}
	s.monitored, _ = cfg.Port.(port.Monitored)
	s.poster = cfg.NIC
	if err := s.ep.open(); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	s.loops.Lock()
	go s.run()
	return s, nil
}

// call is a closure on its way to the loop.
type call struct {
	f     func(mono.Time, *rocev2.NIC)
	state atomic.Uint32 // callWaiting, then one of the others
	done  chan struct{}
}

const (
	callWaiting uint32 = iota
	callTaken
	callGivenUp
)

// Do runs f on the shard, or beside it while it is idle, and returns when it has. On error f has
// not run. No frame is on its way then that f could take memory away from: the port has taken
// what was sent, or its copy.
func (s *Shard) Do(ctx context.Context, f func(now mono.Time, n *rocev2.NIC)) error {
	return s.do(ctx, f, true)
}

// Look is Do for an f that changes nothing, so that nothing has to follow.
func (s *Shard) Look(ctx context.Context, f func(now mono.Time, n *rocev2.NIC)) error {
	return s.do(ctx, f, false)
}

func (s *Shard) do(ctx context.Context, f func(now mono.Time, n *rocev2.NIC), changes bool) error {
	if ctx.Err() == nil && s.borrow(f, changes) {
		return nil
	}
	c := &call{f: f, done: make(chan struct{})}
	select {
	case s.calls <- c:
	case <-s.stopped:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.sleeping.Load() != 0 {
		s.ep.wake()
	}
	var err error
	select {
	case <-c.done:
		return nil
	case <-s.stopped:
		err = ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	if c.state.CompareAndSwap(callWaiting, callGivenUp) {
		return err
	}
	<-c.done
	return nil
}

// Close ends the loop and waits for it. The port stays open.
func (s *Shard) Close() error {
	err := s.Do(context.Background(), func(mono.Time, *rocev2.NIC) { s.ending, s.rouse = true, true })
	if errors.Is(err, ErrClosed) {
		err = nil
	}
	<-s.stopped
	return err
}

// Stats returns the counters.
func (s *Shard) Stats(ctx context.Context) (st Stats, err error) {
	err = s.Do(ctx, func(mono.Time, *rocev2.NIC) { st = s.stats })
	return st, err
}

// SetPoll changes how long the loop looks for work before it sleeps.
func (s *Shard) SetPoll(ctx context.Context, d time.Duration) error {
	return s.Do(ctx, func(mono.Time, *rocev2.NIC) { s.poll, s.rouse = d, true })
}

// Poll returns that setting.
func (s *Shard) Poll(ctx context.Context) (d time.Duration, err error) {
	err = s.Do(ctx, func(mono.Time, *rocev2.NIC) { d = s.poll })
	return d, err
}

// addProcs changes by d the number of threads that run Go code at a time. Each
// shard has one of its own, or it would wait for one when it wakes up, and others
// for those that shards hold; whose turn it is decides the kernel then.
func addProcs(d int) {
	procsMu.Lock()
	defer procsMu.Unlock()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + d)
}

var procsMu sync.Mutex

// run is the shard's thread.
func (s *Shard) run() {
	runtime.LockOSThread()
	addProcs(1)
	defer addProcs(-1)
	debug.SetPanicOnFault(true)
	for !s.ending {
		s.guarded()
	}
	close(s.stopped)
	s.ep.close()
}

// guarded runs the loop until it ends or touches memory that is gone. Client
// memory is sealed against shrinking, so that should not happen; when it does,
// the operation at hand is abandoned and the loop goes on.
func (s *Shard) guarded() {
	defer func() { s.faulted(recover()) }()
	s.loop()
}

// faulted takes note of an access to memory that is gone, and lets any other panic go on.
func (s *Shard) faulted(r any) {
	if r == nil {
		return
	}
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok {
		panic(r)
	}
	s.stats.MemFaults++
	if s.onFault != nil {
		s.onFault(fault.Addr())
	}
}

// yield gives the core away. The runtime is told: it may stop the world meanwhile, and all shards with it.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
