package nictest

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// starved is a receiver whose process runs for a millisecond, then waits for a processor. Meanwhile its socket holds at
// most room frames and drops further ones.
type starved struct {
	node *Node
	wait time.Duration
	room int

	wakes   mono.Time // when it has waited
	waiting int       // frames in the socket
}

func (s *starved) hook(f *Flight) Fate {
	if f.To != s.node {
		return Fate{}
	}
	if f.At >= s.wakes.Add(time.Millisecond) {
		s.wakes, s.waiting = f.At.Add(s.wait), 0
	}
	if f.At >= s.wakes {
		return Fate{}
	}
	if s.waiting++; s.waiting > s.room {
		return Fate{Drop: true}
	}
	return Fate{Delay: s.wakes.Sub(f.At)}
}

// traffic posts WRITEs on n queue pairs, and returns a function that reports whether all have ended with success.
func traffic(p *Pair, n, messages, size int, opts ...Option) (done func() bool) {
	var all []*QP
	for range n {
		a, _ := p.RC(opts...)
		src, dst := p.A.Buffer(size), p.B.Buffer(size)
		for i := range messages {
			a.Post(Write(uint64(i), dst.At(0), src.SGE()))
		}
		all = append(all, a)
	}
	ended := 0
	return func() bool {
		for _, a := range all {
			for c, ok := a.SendCQ.Poll(); ok; c, ok = a.SendCQ.Poll() {
				if ended++; c.Status != qp.StatusSuccess {
					p.Fatalf("%v", c.Status)
				}
			}
		}
		return ended == n*messages
	}
}

// TestStarvedReceiver: queue pairs send together no more than the socket of a starved receiver holds. If the NIC does not
// know the size, it learns it.
func TestStarvedReceiver(t *testing.T) {
	for _, c := range []struct {
		name   string
		window uint32 // configured
		room   int    // frames
		qps    int
		most   float64 // part of the packets that is retransmitted
	}{
		{"one", 256, 512, 1, 0.01},
		{"two", 256, 512, 2, 0.01},
		{"sixteen", 256, 512, 16, 0.01},
		{"smaller than expected", 1024, 300, 4, 0.02},
		{"unknown", 0, 600, 16, 0.08},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(t, Options{Seed: 1, Rate: 10e9, Busy: true, Limit: time.Hour, Config: func(k *rocev2.Config) { k.PeerWindow = c.window }})
			s := &starved{node: p.B, wait: 5 * time.Millisecond, room: c.room}
			p.SetHook(OnlyRoCE(s.hook))
			done := traffic(p, c.qps, 32, 16<<20/c.qps/4, func(o *QPOptions) { o.Timeout = 14 })
			if !p.RunUntil(done, time.Hour) {
				t.Fatal("it does not end")
			}
			part := float64(p.A.Counter("retransmitted_packets")) / float64(p.A.Counter("sent_pkts"))
			t.Logf("%d packets, %.2f %% retransmitted, %v", p.A.Counter("sent_pkts"), 100*part, p.now)
			if part > c.most {
				t.Errorf("%.2f %% retransmitted, want at most %.2f %%", 100*part, 100*c.most)
			}
		})
	}
}

// TestSilentPeer: a peer that waits for a processor is kept as long as IBTA permits, and longer if it is near. A dead peer
// is given up then. One packet at a time asks for it.
func TestSilentPeer(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name           string
		near           bool
		timeout, retry uint8
		silence        time.Duration // 0: forever
		least, most    time.Duration // until the end
		resent         uint64
	}{
		{"IBTA", false, 14, 7, 1500 * ms, 1500 * ms, 1800 * ms, 7},
		{"IBTA short", false, 10, 2, 25 * ms, 25 * ms, 50 * ms, 2},
		{"near", true, 10, 2, 1500 * ms, 1500 * ms, 1800 * ms, 12},
		{"near without retries", true, 10, 0, 1500 * ms, 1500 * ms, 1800 * ms, 12},
		{"long", true, 18, 1, 1800 * ms, 1800 * ms, 2200 * ms, 1},
		{"dead", false, 14, 7, 0, 8 * 67 * ms, 32 * 67 * ms, 7},
		{"dead short", false, 10, 2, 0, 3 * 4 * ms, 3 * 17 * ms, 2},
		{"dead near", true, 10, 2, 0, 2000 * ms, 2500 * ms, 14},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := New(t, Options{Seed: 1, Config: func(k *rocev2.Config) { k.PeerWindow, k.Local = 256, c.near }})
			a, _ := p.RC(func(o *QPOptions) { o.Timeout, o.RetryCnt = c.timeout, c.retry })
			src, dst := p.A.Buffer(100_000), p.B.Buffer(100_000)
			p.Run(time.Millisecond)
			began := p.now
			p.SetHook(OnlyRoCE(func(f *Flight) Fate {
				var pkt bth.Packet
				if f.RoCE(&pkt); f.To != p.B || c.silence != 0 && f.At >= began.Add(c.silence) {
					return Fate{}
				}
				return Fate{Drop: c.silence == 0, Delay: began.Add(c.silence).Sub(f.At)}
			}))
			a.Post(Write(1, dst.At(0), src.SGE()))
			e := a.SendCQ.Wait()
			if (e.Status == qp.StatusSuccess) != (c.silence != 0) {
				t.Errorf("%v", e.Status)
			}
			if took := p.now.Sub(began); took < c.least || took > c.most {
				t.Errorf("ended after %v, want %v to %v", took, c.least, c.most)
			}
			if n := p.A.Counter("retransmitted_packets"); n > c.resent {
				t.Errorf("%d packets retransmitted, want at most %d", n, c.resent)
			}
		})
	}
}
