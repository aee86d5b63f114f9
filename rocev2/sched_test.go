package rocev2

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
)

// TestFairness: queue pairs with endless work get equal shares of bytes, for any packet size, with or without
// super-frames.
func TestFairness(t *testing.T) {
	for _, o := range []link.Offload{{}, superOffload()} {
		cfg := testConfig(macA, "10.0.0.1/24")
		cfg.Offload = o
		n := newNIC(t, cfg)
		var scripts []*script
		for i, size := range []int{4096, 1024, 64, 3000} {
			s := newScript(sends(0x22, 0, size)...)
			s.endless = true
			q := plug(t, n, bth.QPN(0x11+i), qp.RC, s)
			connect(t, n, q, 0, "10.0.0.2", &macB)
			scripts = append(scripts, s)
		}
		for _, q := range []bth.QPN{0x11, 0x12, 0x13, 0x14} {
			n.sch.activate(n.lookupQP(q))
		}
		for total := 0; total < 20<<20; {
			total += n.PollTransmit(0).Len
		}
		least := slices.MinFunc(scripts, func(a, b *script) int { return cmp.Compare(a.bytes, b.bytes) }).bytes
		most := slices.MaxFunc(scripts, func(a, b *script) int { return cmp.Compare(a.bytes, b.bytes) }).bytes
		if most-least > 2*defaultQuantum {
			t.Errorf("%+v: shares from %d to %d bytes", o, least, most)
		}
	}
}

// TestShares: one client's 512 queue pairs leave half of the link to another client. One user's many clients leave
// half to another user. Weights change the shares, and a higher class goes first.
func TestShares(t *testing.T) {
	many := func(x Share, clients int) (out []Share) {
		for i := range 512 {
			x.Client = uint64(i % clients)
			out = append(out, x)
		}
		return out
	}
	for _, c := range []struct {
		name string
		one  Share
		many []Share
		want float64
	}{
		{"clients", Share{Client: 1}, many(Share{}, 1), 0.5},
		{"users", Share{User: 1}, many(Share{}, 64), 0.5},
		{"weights", Share{User: 1, Weight: 3}, many(Share{}, 64), 0.75},
		{"low weight", Share{User: 1}, many(Share{Weight: 3}, 64), 0.25},
		{"high class", Share{Class: 1}, many(Share{}, 64), 1},
		{"low class", Share{}, many(Share{Class: 7}, 1), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(macA, "10.0.0.1/24")
			cfg.Offload = superOffload()
			n := newNIC(t, cfg)
			var one *script
			for i, x := range append(c.many, c.one) {
				one = newScript(sends(0x22, 0, 4096)...)
				one.endless = true
				q := plugFor(t, n, bth.QPN(0x11+i), qp.RC, one, x)
				connect(t, n, q, 0, "10.0.0.2", &macB)
			}
			for q := range n.obj.qps.All {
				n.sch.activate(q)
			}
			total := 0
			for total < 64<<20 {
				total += n.PollTransmit(0).Len
			}
			if share := float64(one.bytes) / float64(total); share < c.want-0.01 || share > c.want+0.01 {
				t.Errorf("share %.3f of the link, want %.2f", share, c.want)
			}
			for q := range n.obj.qps.All {
				n.unschedule(q)
				n.sch.leave(q)
			}
			if len(n.sch.shares) != 0 || n.sch.turns.Next() != nil {
				t.Errorf("left behind: %d shares", len(n.sch.shares))
			}
		})
	}
}

// TestPriorityIsTheClients: priorities apply within a client. The highest goes first among its queue pairs, and
// another client keeps its half.
func TestPriorityIsTheClients(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	n := newNIC(t, cfg)
	var all []*script
	for i, x := range []struct {
		client   uint64
		priority uint8
	}{{0, 7}, {0, 7}, {0, 2}, {1, 0}} {
		s := newScript(sends(0x22, 0, 4096)...)
		s.endless = true
		q := plugFor(t, n, bth.QPN(0x11+i), qp.RC, s, Share{Client: x.client})
		connect(t, n, q, 0, "10.0.0.2", &macB)
		n.sch.prioritise(q, x.priority)
		all = append(all, s)
	}
	for q := range n.obj.qps.All {
		n.sch.activate(q)
	}
	total := 0
	for total < 16<<20 {
		total += n.PollTransmit(0).Len
	}
	for i, want := range []float64{0.25, 0.25, 0, 0.5} {
		if part := float64(all[i].bytes) / float64(total); part < want-0.02 || part > want+0.02 {
			t.Errorf("queue pair %d has %.3f of the link, want %.2f", i, part, want)
		}
	}
}

// TestQuantum: a smaller quantum shortens the wait of other queue pairs, if frames are single packets.
func TestQuantum(t *testing.T) {
	for _, quantum := range []int{4200, 0} {
		cfg := testConfig(macA, "10.0.0.1/24")
		cfg.Quantum = quantum
		n := newNIC(t, cfg)
		bulk, short := newScript(sends(0x22, 0, 4096)...), newScript(sends(0x22, 0, 0)...)
		bulk.endless = true
		for i, s := range []*script{bulk, short} {
			connect(t, n, plug(t, n, bth.QPN(0x11+i), qp.RC, s), 0, "10.0.0.2", &macB)
		}
		n.sch.activate(n.lookupQP(0x11))
		n.PollTransmit(0)
		n.sch.activate(n.lookupQP(0x12))
		for short.sent == 0 {
			n.PollTransmit(0)
		}
		if want := map[int]int{4200: 2, 0: 17}[quantum]; bulk.sent != want {
			t.Errorf("quantum %d: %d packets before the short one, want %d", quantum, bulk.sent, want)
		}
	}
}

// TestLatencyBehindBulk: a queue pair with one packet waits for at most one turn of each other queue pair.
func TestLatencyBehindBulk(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24")
	cfg.Offload = superOffload()
	n := newNIC(t, cfg)
	bulk, ack := newScript(sends(0x22, 0, 4096)...), newScript(sends(0x22, 0, 0)...)
	bulk.endless = true
	for i, s := range []*script{bulk, ack} {
		connect(t, n, plug(t, n, bth.QPN(0x11+i), qp.RC, s), 0, "10.0.0.2", &macB)
	}
	n.sch.activate(n.lookupQP(0x11))
	n.sch.activate(n.lookupQP(0x12))
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
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.sch.activate(q)
	n.PollTransmit(0)
	n.Receive(0, arp(arpRequest, macB, "10.0.0.2", "10.0.0.1"), 0)
	if f := n.PollTransmit(0); f.Bufs[0][13] != 6 {
		t.Error("data before the answer")
	}
	if f := n.PollTransmit(0); f == nil || f.Bufs[0][13] != 0 {
		t.Error("no data after the answer")
	}
}

// TestDeadlines changes deadlines at random. Every timer fires when it is due, not before, and the next timeout is
// the earliest one.
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
			n.sch.rearm(qps[i])
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
		}
		for _, q := range qps {
			n.unschedule(q)
		}
		if left := n.sch.deadlines.Len(); left != 0 {
			t.Fatalf("seed %d: %d timers left", seed, left)
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

// TestTimerThatStaysDue: a queue pair whose timer stays due, for example a paced one, fires once per Advance. It does
// not keep the NIC awake while it waits for an address.
func TestTimerThatStaysDue(t *testing.T) {
	n := nicA(t)
	s := &stuck{}
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.2", nil)
	n.sch.rearm(q)
	n.Advance(5)
	transmit(n, 5)
	if s.timeouts != 1 || !q.node.wait.Listed() {
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
