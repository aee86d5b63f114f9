package shard

import (
	"context"
	"errors"
	"testing"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

func newCore(t *testing.T, name string) *rocev2.NIC {
	t.Helper()
	nic, err := rocev2.New(rocev2.Config{Name: name, MAC: inet.MAC{2, 0, 0, 0, 0, name[0]}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	return nic
}

// beside adds a NIC to the shard of s.
func beside(t *testing.T, s *NIC, poll time.Duration) *NIC {
	t.Helper()
	o, err := New(Config{NIC: newCore(t, "b"), Port: nullPort{}, Poll: poll, Beside: s})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestNICsShareAThread checks that closures of two NICs get their own NIC, never at the same time, and that a
// NIC outlives the other one.
func TestNICsShareAThread(t *testing.T) {
	a := newShard(t, 0)
	b := beside(t, a, 0)
	inside := 0
	done := make(chan struct{})
	run := func(s *NIC) {
		defer func() { done <- struct{}{} }()
		for range 1000 {
			err := s.Do(context.Background(), func(_ mono.Time, n *rocev2.NIC) {
				if inside++; inside != 1 || n != s.nic {
					t.Error("a closure runs beside another one, or on another NIC")
				}
				inside--
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
	go run(a)
	go run(b)
	<-done
	<-done
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Do(context.Background(), func(mono.Time, *rocev2.NIC) { t.Error("ran") }); !errors.Is(err, ErrClosed) {
		t.Errorf("Do on a closed NIC: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := a.Do(context.Background(), func(mono.Time, *rocev2.NIC) {}); err != nil {
		t.Errorf("Do on the other NIC: %v", err)
	}
	if _, err := New(Config{NIC: b.nic, Port: nullPort{}, Beside: b}); !errors.Is(err, ErrClosed) {
		t.Errorf("joined a NIC that has left: %v", err)
	}
}

// TestLongestPoll checks that a shard polls as long as one of its NICs wants.
func TestLongestPoll(t *testing.T) {
	a := newShard(t, time.Microsecond)
	want := func(d time.Duration) {
		t.Helper()
		_ = a.Do(context.Background(), func(mono.Time, *rocev2.NIC) {
			if a.shard.poll != d {
				t.Errorf("the shard polls %v, want %v", a.shard.poll, d)
			}
		})
	}
	b := beside(t, a, time.Second)
	want(time.Second)
	if err := a.SetPoll(context.Background(), -1); err != nil {
		t.Fatal(err)
	}
	want(-1)
	if d, err := b.Poll(context.Background()); d != time.Second || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	if err := errors.Join(a.SetPoll(context.Background(), 0), b.Close()); err != nil {
		t.Fatal(err)
	}
	want(0)
}

// TestNICsTakeTurns besieges a shard from one NIC with endless frames, sends, doorbells and commands. In each
// turn the other NIC gets what it needs, and the first one keeps to its budgets.
func TestNICsTakeTurns(t *testing.T) {
	siege := &wholesale{}
	greedy := alone(&NIC{nic: senders(t, 4, 1<<16), port: siege, up: true})
	victim := &slowPort{}
	modest := &NIC{nic: newCore(t, "b"), port: victim, up: true, shard: greedy.shard, calls: make(chan *call, 1)}
	s := greedy.shard
	s.nics = append(s.nics, modest)
	for range 100 {
		b := newBell(t)
		greedy.bells = append(greedy.bells, b)
	}
	modest.bells = []*Bell{newBell(t)}
	for turn := range 20 {
		for _, b := range greedy.bells {
			b.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, 0, ^uint64(0))
		}
		modest.bells[0].ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, 0, 1)
		victim.frames = 1
		ran := false
		modest.calls <- &call{f: func(mono.Time, *rocev2.NIC) { ran = true }, done: make(chan struct{})}
		before := siege.bytes
		s.input(1)
		s.output()
		s.control(1)
		if victim.frames != 0 || modest.bells[0].ringing() || !ran {
			t.Fatalf("turn %d: the other NIC waits: frame %v, doorbell %v, closure %v", turn,
				victim.frames != 0, modest.bells[0].ringing(), !ran)
		}
		for d, n := range siege.bytes {
			if n -= before[d]; n < byteBudget || n > byteBudget+1<<16 {
				t.Errorf("turn %d: %d bytes in direction %d", turn, n, d)
			}
		}
	}
}

// TestFramesAreHeldApart checks that a port without room does not delay the frames of another NIC.
func TestFramesAreHeldApart(t *testing.T) {
	full, open := &fullPort{}, &fullPort{}
	open.open.Store(true)
	open.sent.Store(1) // frames may have several parts
	a := alone(&NIC{nic: senders(t, 1, 1<<16), port: full, up: true})
	b := &NIC{nic: senders(t, 1, 1<<16), port: open, up: true, shard: a.shard, calls: make(chan *call, 1)}
	a.shard.nics = append(a.shard.nics, b)
	for range 3 {
		a.shard.output()
	}
	if a.held == nil || b.held != nil || a.stats.TxBlocked != 1 || open.sent.Load() < 3 {
		t.Errorf("held %v and %v, %d frames sent", a.held != nil, b.held != nil, open.sent.Load())
	}
}

// TestBellsWakeBoth checks that the doorbells of each NIC end the sleep of the shard.
func TestBellsWakeBoth(t *testing.T) {
	a := newShard(t, 0)
	b := beside(t, a, 0)
	for _, s := range []*NIC{a, b} {
		ev, err := shm.Eventfd()
		if err != nil {
			t.Fatal(err)
		}
		bell := newBell(t)
		bell.fd = ev
		if err := s.AddBell(t.Context(), bell); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the shard does not sleep", func() bool { return s.shard.sleeping.Load() != 0 })
		bell.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, 0, 1)
		if err := shm.Signal(ev); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the doorbell does not reach the NIC", func() bool { return !bell.ringing() })
		if err := errors.Join(s.RemoveBell(bell), bell.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestLateTurn delays the turn after a caller of Do has sent, until the sender's timers are due. The receiver's
// acknowledgement still comes first, in either order of the NICs: nothing is retransmitted.
func TestLateTurn(t *testing.T) {
	for sender := range 2 {
		t.Run([]string{"sender first", "sender last"}[sender], func(t *testing.T) {
			p := nictest.New(t, nictest.Options{Switch: &rocev2.Switch{}})
			x, y := p.RC()
			if sender == 1 {
				x, y = y, x
			}
			src, dst := x.Node.Buffer(4096), y.Node.Buffer(4096)
			pair := [2]*NIC{alone(&NIC{nic: p.A.NIC, port: nullPort{}, up: true})}
			s := pair[0].shard
			pair[1] = &NIC{nic: p.B.NIC, port: nullPort{}, up: true, shard: s, calls: make(chan *call, 1)}
			s.nics = append(s.nics, pair[1])
			s.output() // the timers of the pair's virtual time
			if err := x.SQ.Post(nictest.Write(1, dst.At(0), src.SGE())); err != nil {
				t.Fatal(err)
			}
			x.Node.NIC.Doorbell(Now(), x.QueuePair)
			sent := Now()
			if !pair[sender].follow(Now()) {
				t.Error("the loop sleeps on, but the receiver has to acknowledge")
			}
			if due := x.Node.NIC.NextTimeout(); due < sent {
				t.Fatalf("a timer is due %v before the message", sent.Sub(due))
			}
			eventually(t, "the sender has no timer", func() bool { return x.Node.NIC.NextTimeout() <= Now() })
			for range 4 {
				s.input(Now())
				s.output()
			}
			x.WaitSend(1)
			if n := x.Node.Counter("retransmitted_packets"); n != 0 {
				t.Errorf("%d retransmissions", n)
			}
		})
	}
}

// latePort is a port that gets a frame from another shard when its own shard is about to sleep.
type latePort struct {
	nullPort
	shard *Shard
}

func (p *latePort) NextTimeout() mono.Time {
	if p.shard.sleeping.Load() != 0 {
		return 0
	}
	return mono.Never
}

// TestSleepMissesNoFrame checks that a shard does not sleep if a frame arrives after its last look, and before another
// shard sees that it sleeps.
func TestSleepMissesNoFrame(t *testing.T) {
	p := &latePort{}
	n := alone(&NIC{nic: newCore(t, "a"), port: p, up: true})
	p.shard = n.shard
	if due := n.shard.due(); due != mono.Never {
		t.Fatalf("work is due at %d", due)
	}
	n.shard.loops.Lock() // as the loop does
	n.shard.until = Now().Add(time.Hour)
	n.shard.sleep(time.Hour)
	if n.shard.sleeps != 0 {
		t.Error("the shard has slept")
	}
}
