package rocev2

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"roced/bth"
	"roced/mono"
	"roced/qp"
)

// Queue pairs with work without end get equal shares of bytes, whatever the size
// of their packets and with or without super-frames.
func TestFairness(t *testing.T) {
	for _, o := range []Offload{{}, superOffload()} {
		cfg := testConfig(macA, "10.0.0.1/24")
		cfg.Offload = o
		n := newNIC(t, cfg)
		var scripts []*script
		for i, size := range []int{4096, 1024, 64, 3000} {
			s := newScript(sends(0x22, 0, size)...)
			s.endless = true
			q := plug(t, n, bth.QPN(0x11+i), qp.RC, s)
			connect(t, n, q, 1, "10.0.0.2", &macB)
			scripts = append(scripts, s)
		}
		for _, q := range []bth.QPN{0x11, 0x12, 0x13, 0x14} {
			n.activate(n.lookupQP(q))
		}
		for total := 0; total < 20<<20; {
			total += n.PollTransmit(0).Len
		}
		least := slices.MinFunc(scripts, func(a, b *script) int { return cmp.Compare(a.bytes, b.bytes) }).bytes
		most := slices.MaxFunc(scripts, func(a, b *script) int { return cmp.Compare(a.bytes, b.bytes) }).bytes
		if most-least > 2*quantum {
			t.Errorf("%+v: shares from %d to %d bytes", o, least, most)
		}
	}
}

// A queue pair with one packet waits for one turn of each other at most.
func TestLatencyBehindBulk(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	n := newNIC(t, cfg)
	bulk, ack := newScript(sends(0x22, 0, 4096)...), newScript(sends(0x22, 0, 0)...)
	bulk.endless = true
	for i, s := range []*script{bulk, ack} {
		connect(t, n, plug(t, n, bth.QPN(0x11+i), qp.RC, s), 1, "10.0.0.2", &macB)
	}
	n.activate(n.lookupQP(0x11))
	n.activate(n.lookupQP(0x12))
	for i := 0; ack.sent == 0; i++ {
		if n.PollTransmit(0) == nil || i > 3 {
			t.Fatal("the short one starves")
		}
	}
}

func TestControlFramesGoFirst(t *testing.T) {
	n := nicA(t)
	s := newScript(sends(0x22, 0, 10)...)
	s.endless = true
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 1, "10.0.0.2", &macB)
	n.activate(q)
	n.PollTransmit(0)
	n.Receive(0, arp(arpRequest, macB, "10.0.0.2", "10.0.0.1"), 0)
	if f := n.PollTransmit(0); f.Bufs[0][13] != 6 {
		t.Error("data before the answer")
	}
	if f := n.PollTransmit(0); f == nil || f.Bufs[0][13] != 0 {
		t.Error("no data after the answer")
	}
}

// Random changes of deadlines: every timer fires when it is due, not before, and
// the next timeout is that of the earliest.
func TestDeadlines(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := nicA(t)
		var scripts []*script
		var qps []*QueuePair
		for i := range 12 {
			s := newScript()
			scripts = append(scripts, s)
			qps = append(qps, plug(t, n, bth.QPN(0x11+i), qp.RC, s))
		}
		now := mono.Time(1)
		for range 300 {
			i := rng.IntN(len(scripts))
			switch rng.IntN(4) {
			case 0:
				scripts[i].deadline = mono.Never
			default:
				scripts[i].deadline = now + 1 + mono.Time(rng.IntN(100))
			}
			n.rearm(qps[i])
			want := mono.Never
			for _, s := range scripts {
				want = want.Min(s.deadline)
			}
			if got := n.NextTimeout(); got != want {
				t.Fatalf("seed %d: next timeout %d, want %d", seed, got, want)
			}
			if rng.IntN(3) == 0 {
				now += mono.Time(rng.IntN(40))
				fireDue(t, n, scripts, now)
			}
			checkHeap(t, &n.sch.deadlines)
		}
		for _, q := range qps {
			n.unschedule(q)
		}
		if len(n.sch.deadlines.entries) != 0 {
			t.Fatalf("seed %d: %d entries left", seed, len(n.sch.deadlines.entries))
		}
	}
}

func fireDue(t *testing.T, n *NIC, scripts []*script, now mono.Time) {
	t.Helper()
	var want, got []int
	for _, s := range scripts {
		fired := s.timeouts
		if s.deadline <= now {
			fired++
		}
		want = append(want, fired)
	}
	n.Advance(now)
	transmit(n, now)
	for _, s := range scripts {
		got = append(got, s.timeouts)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("at %d: fired %v, want %v", now, got, want)
	}
}

func checkHeap(t *testing.T, h *deadlineHeap) {
	t.Helper()
	for i, e := range h.entries {
		if e.at < h.entries[max(i-1, 0)/2].at || e.q.node.heapIndex != i+1 || e.q.node.due < e.at {
			t.Fatalf("entry %d of %+v", i, h.entries)
		}
	}
}

// A queue pair whose timer stays due, as when it is paced, fires once an Advance,
// and does not keep the NIC awake while it waits for an address.
func TestTimerThatStaysDue(t *testing.T) {
	n := nicA(t)
	s := &stuck{}
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 1, "10.0.0.2", nil)
	n.rearm(q)
	n.Advance(5)
	transmit(n, 5)
	if s.timeouts != 1 || q.node.list != &q.path.nb.parked {
		t.Errorf("%d timeouts", s.timeouts)
	}
	if next := n.NextTimeout(); next != mono.Time(5).Add(time.Millisecond) {
		t.Errorf("next timeout %d", next)
	}
	n.Advance(5 + mono.Time(time.Millisecond))
	if s.timeouts != 2 || n.NextTimeout() <= 5+mono.Time(time.Millisecond) {
		t.Errorf("%d timeouts, next %d", s.timeouts, n.NextTimeout())
	}
}

type stuck struct{ script }

func (s *stuck) NextTimeout() mono.Time { return 1 }
