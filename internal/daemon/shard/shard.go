// Package shard runs one NIC on one OS thread. The thread moves frames between the NIC and its port, polls clients'
// doorbells, runs timers, and sleeps when idle. Only the shard touches the NIC; Do runs closures on the shard.
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

// ErrClosed reports that the shard has ended.
var ErrClosed = errors.New("shard: closed")

type Config struct {
	NIC  *rocev2.NIC
	Port port.Port
	// Poll is the time to poll for work before sleeping: 0 sleeps at once, a negative value never sleeps.
	Poll time.Duration
	// OnFault, if set, is called on the shard's thread when an access hits client memory that is gone.
	OnFault func(addr uintptr)
	// Ask, if set, receives the queries of a NIC that shares an interface with the kernel, on the shard's thread. It
	// must not block. It may drop a query: the NIC retries.
	Ask func(rocev2.Query)
}

// Stats are the counters of the loop.
type Stats struct {
	Rounds    uint64 // turns of the loop
	Sleeps    uint64 // turns that ended with a sleep
	Yields    uint64 // turns without work that yielded the core
	Calls     uint64 // closures run
	Doorbells uint64 // objects named by doorbells
	RxFrames  uint64 // frames and super-frames received
	RxBatches uint64 // turns that received frames
	TxFrames  uint64
	TxBatches uint64
	TxBlocked uint64 // times that the port had no room
	TxDropped uint64 // frames dropped because the link was down
	PortErrs  uint64 // unexpected errors of the port
	MemFaults uint64 // accesses to memory that was gone
}

// Shard is the loop of one NIC.
type Shard struct {
	nic     *rocev2.NIC
	port    port.Port
	onFault func(uintptr)
	ask     func(rocev2.Query)
	// monitored is the port if it reports its link state, else nil.
	monitored port.Monitored

	calls    chan *call
	stopped  chan struct{}
	sleeping atomic.Uint32 // sleeping word for Do, like that of a doorbell page
	loops    sync.Mutex    // guards the loop's state; the loop holds it except while it sleeps or yields
	wanted   atomic.Bool   // the loop wants the mutex back

	// The fields below belong to the loop.
	ending   bool
	small    bool // the last batch was one small frame
	up       bool
	mtu      int // of the link, 0 if unknown
	poll     time.Duration
	lastWork mono.Time
	giveUp   func()    // yields the core
	crowded  mono.Time // until then the core counts as contended
	touched  mono.Time // time of the last change from outside the loop, which may have put a queue pair into the error state
	until    mono.Time // latest end of the sleep
	rouse    bool      // the borrower changed loop state; re-evaluate before sleeping
	bells    []*Bell
	listen   int // the bell polled last
	buf      []byte
	unsent   bool          // transmit stopped before it had sent everything
	held     *rocev2.Frame // a frame that the port had no room for
	heldFrm  rocev2.Frame
	heldBuf  []byte
	heldBufs [1][]byte
	stats    Stats
	ep       epoll

	poster   recvPoster
	watched  []watched
	placeOf  map[*rocev2.QueuePair]int // index in watched
	scanned  mono.Time                 // start of the last scan
	scanning bool                      // the scan is not complete
	seen     int                       // number of entries scanned
	broken   bool                      // the scan found a queue pair in the error state
}

// Now reads the clock of the shards, which also stamps completions.
func Now() mono.Time { return clock.Now() }

// bufSize is the size of the longest super-frame, in bytes.
const bufSize = 1<<16 + 64

// New starts a shard. Close ends it.
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

// call is a closure in the queue of the loop.
type call struct {
	f     func(mono.Time, *rocev2.NIC)
	state atomic.Uint32 // callWaiting first, then one of the others
	done  chan struct{}
}

const (
	callWaiting uint32 = iota
	callTaken
	callGivenUp
)

// Do runs f on the shard, or on the caller's thread while the shard is idle, and returns after f. If Do returns an
// error, f has not run.
//
// f may free memory that frames refer to: the port has accepted every sent frame, or the shard holds a copy.
func (s *Shard) Do(ctx context.Context, f func(now mono.Time, n *rocev2.NIC)) error {
	return s.do(ctx, f, true)
}

// Look is Do for an f that changes nothing; the shard does no follow-up work.
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

// SetPoll sets the time to poll for work before sleeping; see Config.Poll.
func (s *Shard) SetPoll(ctx context.Context, d time.Duration) error {
	return s.Do(ctx, func(mono.Time, *rocev2.NIC) { s.poll, s.rouse = d, true })
}

// Poll returns the time to poll for work before sleeping.
func (s *Shard) Poll(ctx context.Context) (d time.Duration, err error) {
	err = s.Do(ctx, func(mono.Time, *rocev2.NIC) { d = s.poll })
	return d, err
}

// addProcs adds d to the number of threads that run Go code at a time. Each shard adds one, so that it does not wait
// for a slot on wakeup or take slots from others. The kernel then schedules the threads.
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

// guarded runs the loop until it ends or accesses memory that is gone. Package mapped handles pages that clients
// free, and seals prevent clients from shrinking their memory, so a fault is unexpected here. After a fault the shard
// abandons the operation, and run restarts the loop.
func (s *Shard) guarded() {
	defer func() { s.faulted(recover()) }()
	s.loop()
}

// faulted counts an access to memory that is gone. It re-raises any other panic.
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

// yield yields the core. It enters a system call through the runtime, which may stop the world meanwhile, and with
// it all shards.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
