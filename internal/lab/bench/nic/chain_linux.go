package nic

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/netlab"
	"roced.io/roced/port"
)

// chain is the floor of latencies with two threads a side, a program and its NIC. They pass a counter, and the NICs pass a
// frame of a TAP, without a protocol. The machine's scheduler and the link take the rest of the time.
type chain struct {
	p    *pair
	spin bool // programs never yield, as ib_write_lat; NICs sleep, and programs ring a bell
	side [2]chainSide
	stop atomic.Bool
}

// chainSide is what a program and its NIC share.
type chainSide struct {
	posted, arrived atomic.Uint64
	bell            int
	_               [64]byte // a cache line of its own
}

// chainPayload makes a frame as long as that of a WRITE of 8 bytes.
const chainPayload = 24

// chain measures a bare chain.
func (b *bench) chain(name string, spin bool) error {
	return b.median(name, "us", func() (float64, error) {
		return chained(b.lab.Bed, &kinds[0], spin, time.Duration(b.Seconds)*time.Second)
	})
}

// chained returns the mean one-way latency of a message, in us.
func chained(bed *netlab.Bed, k *kind, spin bool, d time.Duration) (us float64, err error) {
	c := &chain{spin: spin}
	if c.p, err = openPair(bed, k); err != nil {
		return 0, err
	}
	defer c.p.close()
	for i := range c.side {
		bell, err := unix.Eventfd(0, unix.EFD_NONBLOCK)
		if err != nil {
			return 0, err
		}
		defer unix.Close(bell)
		c.side[i].bell = bell
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // threads that spin keep theirs
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i := range c.side {
		all.Go(func() { errs[i] = c.nic(i) })
	}
	all.Go(func() {
		c.program(1, func(s *chainSide, n uint64) bool { return c.await(s, n) && c.post(s) })
	})
	var n uint64
	start := time.Now()
	c.program(0, func(s *chainSide, k uint64) bool {
		n = k
		return c.post(s) && c.await(s, k) && time.Since(start) < d
	})
	took := time.Since(start)
	c.stop.Store(true)
	all.Wait()
	return took.Seconds() * 1e6 / float64(max(n, 1)) / 2, errors.Join(errs...)
}

// program calls turn for messages 1, 2 and so on, until turn returns false.
func (c *chain) program(i int, turn func(s *chainSide, n uint64) bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n := uint64(1); turn(&c.side[i], n); n++ {
	}
}

// post hands a message to the NIC.
func (c *chain) post(s *chainSide) bool {
	s.posted.Add(1)
	if c.spin {
		one := [8]byte{1}
		_, err := unix.Write(s.bell, one[:])
		return err == nil
	}
	return true
}

// await waits for message n. It returns false at the end.
func (c *chain) await(s *chainSide, n uint64) bool {
	for s.arrived.Load() < n {
		if c.stop.Load() {
			return false
		}
		if !c.spin {
			unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
	return true
}

// nic passes messages between a program and a port.
func (c *chain) nic(i int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s, q, f := &c.side[i], c.p.ports[i], c.p.frame(i, chainPayload, 1)
	buf := make([]byte, 1<<17)
	for sent := uint64(0); !c.stop.Load(); {
		worked := false
		if s.posted.Load() > sent {
			worked = true
			sent++
			if err := q.Send(monotonic(), f); err != nil {
				c.stop.Store(true)
				return err
			}
		}
		if frame, _, err := q.Recv(monotonic(), buf); err == nil && len(frame) == f.Len { // not one of warmUp
			worked = true
			s.arrived.Add(1)
		}
		if !worked {
			c.rest(s, q)
		}
	}
	return nil
}

// rest gives the processor away.
func (c *chain) rest(s *chainSide, q port.Port) {
	if !c.spin {
		unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		return
	}
	wait := [2]unix.PollFd{{Fd: int32(q.FD()), Events: unix.POLLIN}, {Fd: int32(s.bell), Events: unix.POLLIN}}
	// The loop checks all sources after any result.
	_, _ = unix.Poll(wait[:], 100)
	if wait[1].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(s.bell, count[:])
	}
}
