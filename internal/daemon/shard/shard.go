// Package shard runs NICs on OS threads. A shard is the thread of one or more NICs, each with its port. It moves frames
// between each NIC and its port, polls clients' doorbells, runs timers, and sleeps when idle. Only the shard touches its
// NICs; Do runs closures on the shard.
package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
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
	// Poll is the time to poll for work before sleeping: 0 sleeps at once, a negative value never sleeps. The longest
	// one of its NICs applies to a shard.
	Poll time.Duration
	// OnFault, if set, is called on the shard's thread when an access hits client memory that is gone.
	OnFault func(addr uintptr)
	// Ask, if set, receives the queries of a NIC that shares an interface with the kernel, on the shard's thread. It
	// must not block. It may drop a query: the NIC retries.
	Ask func(rocev2.Query)
	// Beside, if set, is a NIC whose shard the new one joins.
	Beside *NIC
}

// Stats are the counters of a NIC and of its shard.
type Stats struct {
	Rounds    uint64 // turns of the shard
	Sleeps    uint64 // turns of the shard that ended with a sleep
	Yields    uint64 // turns of the shard without work that yielded the core
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

// Shard is the loop of one or more NICs.
type Shard struct {
	stopped  chan struct{}
	sleeping atomic.Uint32 // sleeping word for Do, like that of a doorbell page
	loops    sync.Mutex    // guards the loop's state; the loop holds it except while it sleeps or yields
	wanted   atomic.Bool   // the loop wants the mutex back
	visits   atomic.Uint64 // turns that callers of Turn have run

	// The fields below belong to the loop.
	nics           []*NIC
	current        *NIC // the one that the loop serves
	ending         bool
	poll           time.Duration // the longest of the NICs
	lastWork       mono.Time
	giveUp         func()      // yields the core
	oversubscribed func() bool // reports whether threads outnumber the cores
	contended      mono.Time   // until then the core counts as contended
	touched        mono.Time   // time of the last change from outside the loop, which may have put a queue pair into the error state
	until          mono.Time   // latest end of the sleep
	wakeup         bool        // the borrower changed loop state; re-evaluate before sleeping
	buf            []byte
	turn           turn // traffic since the last call of play
	pong           pingPong
	together       together
	rounds         uint64
	sleeps         uint64
	yields         uint64
	known          uint64 // visits at the last idle turn
	long           uint64 // number of the last yield that took long, 0 for none
	ep             epoll
}

// Now reads the clock of the shards, which also stamps completions.
func Now() mono.Time { return clock.Now() }

// bufSize is the size of the longest super-frame, in bytes.
const bufSize = 1<<16 + 64

// New adds a NIC to the shard of cfg.Beside, or starts a shard. Close removes the NIC.
func New(cfg Config) (*NIC, error) {
	n := newNIC(&cfg)
	if cfg.Beside != nil {
		return n, cfg.Beside.admit(n)
	}
	s := &Shard{stopped: make(chan struct{}), buf: make([]byte, bufSize), giveUp: yield, oversubscribed: oversubscribed}
	if err := s.ep.open(); err != nil {
		return nil, fmt.Errorf("shard: %w", err)
	}
	s.add(n)
	s.loops.Lock()
	go s.run()
	return n, nil
}

// admit adds o to the shard of n.
func (n *NIC) admit(o *NIC) error {
	return n.Do(context.Background(), func(mono.Time, *rocev2.NIC) { n.shard.add(o) })
}

// add and remove replace the list of NICs: the loop may be walking through it.
func (s *Shard) add(n *NIC) {
	n.shard = s
	s.nics = append(slices.Clone(s.nics), n)
	s.configure()
}

// remove removes a NIC. The shard ends with its last one.
func (s *Shard) remove(n *NIC) {
	i := slices.Index(s.nics, n)
	if i < 0 {
		return
	}
	s.nics = slices.Delete(slices.Clone(s.nics), i, i+1)
	s.ep.watch(&n.watch, -1, false)
	s.ending = len(s.nics) == 0
	n.gone = true
	close(n.closed)
	s.configure()
}

// configure derives the loop's settings from those of the NICs.
func (s *Shard) configure() {
	s.poll, s.wakeup = 0, true
	for _, n := range s.nics {
		if n.poll < 0 {
			s.poll = -1
			return
		}
		s.poll = max(s.poll, n.poll)
	}
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
func (n *NIC) Do(ctx context.Context, f func(now mono.Time, n *rocev2.NIC)) error {
	return n.do(ctx, f, true)
}

// Look is Do for an f that changes nothing; the shard does no follow-up work.
func (n *NIC) Look(ctx context.Context, f func(now mono.Time, n *rocev2.NIC)) error {
	return n.do(ctx, f, false)
}

func (n *NIC) do(ctx context.Context, f func(now mono.Time, n *rocev2.NIC), changes bool) error {
	if ctx.Err() == nil && n.borrow(f, changes) {
		return nil
	}
	c := &call{f: f, done: make(chan struct{})}
	select {
	case n.calls <- c:
	case <-n.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	n.Wake()
	var err error
	select {
	case <-c.done:
		return nil
	case <-n.closed:
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

// Wake ends the sleep of the shard, after work that the shard finds by itself. It costs nothing if the shard is awake.
func (n *NIC) Wake() {
	if n.shard.sleeping.CompareAndSwap(1, 0) {
		n.shard.ep.wake()
	}
}

// Close removes the NIC and waits until the shard does not use it any more. The port stays open.
func (n *NIC) Close() error {
	s, last := n.shard, false
	err := n.Do(context.Background(), func(mono.Time, *rocev2.NIC) { s.remove(n); last = s.ending })
	if last {
		<-s.stopped
	}
	if errors.Is(err, ErrClosed) {
		err = nil
	}
	return err
}

// Stats returns the counters.
func (n *NIC) Stats(ctx context.Context) (out Stats, err error) {
	err = n.Do(ctx, func(mono.Time, *rocev2.NIC) {
		out = n.stats
		out.Rounds, out.Sleeps, out.Yields = n.shard.rounds, n.shard.sleeps, n.shard.yields
	})
	return out, err
}

// SetPoll sets the time to poll for work before sleeping; see Config.Poll.
func (n *NIC) SetPoll(ctx context.Context, d time.Duration) error {
	return n.Do(ctx, func(mono.Time, *rocev2.NIC) { n.poll = d; n.shard.configure() })
}

// Poll returns the NIC's time to poll for work before sleeping.
func (n *NIC) Poll(ctx context.Context) (d time.Duration, err error) {
	err = n.Do(ctx, func(mono.Time, *rocev2.NIC) { d = n.poll })
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
	if s.current == nil {
		return
	}
	s.current.stats.MemFaults++
	if f := s.current.onFault; f != nil {
		f(fault.Addr())
	}
}

// yield yields the core. It enters a system call through the runtime, which may stop the world meanwhile, and with
// it all shards.
func yield() { unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
