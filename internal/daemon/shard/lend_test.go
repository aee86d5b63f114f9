package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// TestBorrow checks that Do runs the closure on the caller's thread while the loop sleeps, and wakes the loop only
// for further work. Look does not wake it.
func TestBorrow(t *testing.T) {
	s := newShard(t, 0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, c := range []struct {
		name   string
		do     func(context.Context, func(mono.Time, *rocev2.NIC)) error
		wakeup bool
		want   uint64
	}{{"Do", s.Do, false, 0}, {"Do that changes the loop", s.Do, true, 1}, {"Look", s.Look, false, 0}} {
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // until the loop sleeps
			var on int
			s.wakes()
			err := c.do(context.Background(), func(mono.Time, *rocev2.NIC) {
				s.scanned = mono.Never // disables the scan of queue pairs
				on, s.shard.wakeup = unix.Gettid(), c.wakeup
			})
			if err != nil {
				t.Fatal(err)
			}
			if on == unix.Gettid() {
				if n := s.wakes(); n != c.want {
					t.Errorf("%s wakes the loop %d times", c.name, n)
				}
				break
			}
			if time.Now().After(end) {
				t.Fatal("the loop does not lend the NIC")
			}
		}
	}
}

// TestBorrowFromBusyLoop checks that a loop that never sleeps lends the NIC while it yields. The loop gets it back
// despite constant demand from borrowers.
func TestBorrowFromBusyLoop(t *testing.T) {
	s := newShard(t, -1)
	var borrowed atomic.Uint64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for {
				select {
				case <-stop:
					return
				default:
				}
				on := 0
				if err := s.Do(context.Background(), func(mono.Time, *rocev2.NIC) { on = unix.Gettid() }); err != nil {
					t.Error(err)
				}
				if on == unix.Gettid() {
					borrowed.Add(1)
				}
			}
		})
	}
	rounds := func() uint64 {
		st, err := s.Stats(context.Background())
		if err != nil {
			t.Error(err)
		}
		return st.Rounds
	}
	before := rounds()
	eventually(t, "the loop lends nothing, or does not turn", func() bool { return borrowed.Load() > 1000 && rounds() > before+1000 })
	close(stop)
	all.Wait()
}

// TestWanted checks that no caller borrows the NIC while the loop waits for it.
func TestWanted(t *testing.T) {
	n := alone(&NIC{})
	s := n.shard
	s.wanted.Store(true)
	if n.borrow(func(mono.Time, *rocev2.NIC) { t.Error("a command overtakes the loop") }, true) {
		t.Error("the NIC is lent")
	}
	s.loops.Lock()
	s.lend(func() {
		if !s.loops.TryLock() {
			t.Error("the NIC is not lent")
		}
		go func() { // returns the NIC when the loop waits for it
			for !s.wanted.Load() {
				time.Sleep(time.Millisecond)
			}
			s.loops.Unlock()
		}()
	})
	if s.loops.TryLock() || s.wanted.Load() {
		t.Error("the loop has not got its NIC back, or wants it still")
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestFollow checks that the borrower does the work that a closure causes, or wakes the loop for it.
func TestFollow(t *testing.T) {
	now, until := Now(), mono.Never
	many := func(s *NIC, n int) {
		err := s.nic.SetAddrs(now, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}, nil)
		for i := range n {
			to := inet.GIDOf(netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + i)}))
			from, _, _ := s.nic.Source(to)
			err = errors.Join(err, s.nic.ResolveNeighbour(now, to, from.Index, 0, func(mono.Time, error) {}))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func(s *NIC) { many(s, 1) }
	for _, c := range []struct {
		name  string
		full  bool
		until mono.Time
		f     func(*NIC)
		want  bool
		sent  bool
	}{
		{"nothing", false, until, func(*NIC) {}, false, false},
		{"a frame, and a timer that ends the sleep too late", false, until, ask, true, true},
		{"a frame, and a sleep that ends before", false, now, ask, false, true},
		{"a frame for which there is no room", true, now, ask, true, false},
		{"more frames than a turn may send", false, now, func(s *NIC) { many(s, txBudget) }, true, true},
		{"a bell more", false, now, func(s *NIC) { s.shard.wakeup = true }, true, false},
		{"queue pairs that may be broken", false, until, func(s *NIC) { s.scanned = 0 }, true, false},
	} {
		nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500})
		if err != nil {
			t.Fatal(err)
		}
		p := &fullPort{}
		p.open.Store(!c.full)
		p.sent.Store(1) // frames may have several parts
		s := alone(&NIC{nic: nic, port: p, scanned: now})
		s.shard.until = c.until
		c.f(s)
		if wake := s.follow(now); wake != c.want || (p.sent.Load() > 1) != c.sent {
			t.Errorf("%s: wakes the loop %v, %d frames sent", c.name, wake, p.sent.Load()-1)
		}
	}
}

// TestBorrowAfterBells checks that commands wait for the loop while a doorbell is pending, which the loop handles
// first.
func TestBorrowAfterBells(t *testing.T) {
	b := newBell(t)
	b.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, 0, 1)
	s := alone(&NIC{bells: []*Bell{b}})
	if s.borrow(func(mono.Time, *rocev2.NIC) { t.Error("a command overtakes a bell") }, true) {
		t.Error("the NIC is lent")
	}
	if !s.shard.loops.TryLock() {
		t.Error("the loop cannot have the NIC back")
	}
}

// TestWakeup checks that changes of the loop's settings end its sleep.
func TestWakeup(t *testing.T) {
	s := sleeper(t)
	b := newBell(t)
	var err error
	if b.fd, err = shm.Eventfd(); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"a bell, whose client is to be told of the sleep", func() error { return s.AddBell(t.Context(), b) }},
		{"another time to poll", func() error { return s.SetPoll(t.Context(), -1) }},
	} {
		if s.shard.wakeup = false; s.wakes() != 0 {
			t.Error("woken before")
		}
		if err := c.f(); err != nil {
			t.Fatal(err)
		}
		if n := s.wakes(); n != 1 {
			t.Errorf("%s wakes the loop %d times", c.name, n)
		}
	}
}

// sleeper returns a shard whose loop sleeps forever.
func sleeper(t *testing.T) *NIC {
	t.Helper()
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	s := alone(&NIC{nic: nic, port: nullPort{}, scanned: mono.Never})
	s.shard.until = mono.Never
	if err := s.shard.ep.open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.shard.ep.close)
	return s
}

// wakes returns the number of wakeups since the last call.
func (s *NIC) wakes() uint64 {
	var b [8]byte
	if n, err := unix.Read(s.shard.ep.control, b[:]); n != len(b) || err != nil {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}
