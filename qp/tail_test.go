package qp

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

// short posts bursts of messages at both ends, without READs of more than one packet. The first message of each end
// is already answered, so that round trips are known.
func short(t failer, p *pair) [2]*workload {
	rng := rand.New(rand.NewPCG(3, 3))
	loads := [2]*workload{newWorkload(p, 0), newWorkload(p, 1)}
	for _, l := range loads {
		l.add(WRWrite, 8, 0, rng)
	}
	p.run(t)
	for _, l := range loads {
		for _, n := range []uint32{8, 100, 600} {
			for _, op := range []WROpcode{WRWrite, WRSend, WRFetchAdd, WRSendImm, WRWriteImm} {
				l.add(op, n, 0, rng)
			}
		}
		l.add(WRRead, 100, 0, rng)
	}
	return loads
}

// longTimeout has a timeout so long that no test of tail probes should need it.
func longTimeout() pairConfig {
	c := lossless
	c.timeout = 14
	return c
}

// lossesCost runs short without the packets of lost, and checks that no timeout passed.
func lossesCost(t failer, c pairConfig, lost ...int) {
	p := newPair(dummyTB{}, c)
	loads := short(t, p)
	begin, first := p.now, p.count
	p.faults = func(n int, _ *bth.Packet) fault {
		for _, v := range lost {
			if n-first == v {
				return fault{drop: true}
			}
		}
		return fault{}
	}
	p.run(t)
	for i, l := range loads {
		l.verify(t)
		if n := p.ends[i].q.ctr.LocalAckTimeoutErr; n != 0 {
			t.Fatalf("end %d: %d timeouts after %v without packets %v\n%s", i, n, p.now.Sub(begin), lost, p.tail())
		}
	}
}

// TestTailProbes: the loss of any packet, or of any two, never needs the timeout.
func TestTailProbes(t *testing.T) {
	for lost := range 120 {
		lossesCost(t, longTimeout(), lost)
	}
	rapid.Check(t, func(t *rapid.T) {
		c := longTimeout()
		c.unacked = rapid.Uint32Range(2, 40).Draw(t, "unacked")
		a := rapid.IntRange(0, 120).Draw(t, "lost")
		lossesCost(t, c, a, a+rapid.IntRange(1, 40).Draw(t, "lost later"))
	})
}

// TestTailProbesAnyFaults: early retransmissions take effect once.
func TestTailProbesAnyFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { anyFaults(t, longTimeout()) })
}

// TestSlowPeer: a slow peer is probed less and less often. A lossy peer is probed as early as before.
func TestSlowPeer(t *testing.T) {
	p := newPair(t, longTimeout())
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(4, 4))
	say := func(f fault, faulty, n int) (probes uint64, took time.Duration) {
		before, begin := p.ends[0].q.ctr.RetransmittedPackets, p.now
		for i := range n {
			again := false
			p.faults = func(_ int, k *bth.Packet) fault {
				if i%faulty > 0 || k.Opcode.IsAck() || again {
					return fault{}
				}
				again = f.drop
				return f
			}
			l.add(WRWrite, 8, 0, rng)
			p.run(t)
		}
		return p.ends[0].q.ctr.RetransmittedPackets - before, p.now.Sub(begin)
	}
	say(fault{}, 1, 1)
	if n, took := say(fault{drop: true}, 3, 60); n != 20 || took > 30*time.Millisecond {
		t.Errorf("%d probes of 60 messages, of which 20 are lost, in %v", n, took)
	}
	for _, delay := range []time.Duration{900 * time.Microsecond, 3 * time.Millisecond, 8 * time.Millisecond} {
		n, _ := say(fault{delay: delay}, 1, 20)
		if n > 20 {
			t.Errorf("%d probes of 20 messages that take %v", n, delay)
		}
		if n, _ = say(fault{delay: delay}, 1, 20); n > 0 {
			t.Errorf("%d probes of 20 messages that take %v, as those before them", n, delay)
		}
	}
	l.verify(t)
}

// TestProbesAreNotTimed: an answer may belong to either transmission, so it is no RTT sample (Karn's rule).
func TestProbesAreNotTimed(t *testing.T) {
	p := newPair(t, longTimeout())
	d := NewDistributions()
	p.ends[0].q.ctr.Distributions = d
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(5, 5))
	l.add(WRWrite, 8, 0, rng)
	p.run(t)
	sum, first := d.RTT.Sum, p.count
	p.faults = func(n int, _ *bth.Packet) fault { return fault{drop: n == first} }
	l.add(WRWrite, 8, 0, rng)
	p.run(t)
	l.verify(t)
	if d.RTT.Sum != sum {
		t.Errorf("a round trip of %d ns", d.RTT.Sum-sum)
	}
}

// TestProbesOfTimeout: a longer timeout also delays probes.
func TestProbesOfTimeout(t *testing.T) {
	for timeout, probes := range map[uint8]uint64{14: 1, 18: 0} {
		c := longTimeout()
		c.timeout = timeout
		p := newPair(t, c)
		l := newWorkload(p, 0)
		rng := rand.New(rand.NewPCG(6, 6))
		l.add(WRWrite, 8, 0, rng)
		p.run(t)
		last := p.count
		p.faults = func(n int, _ *bth.Packet) fault {
			if n == last {
				return fault{delay: 2 * time.Millisecond}
			}
			return fault{}
		}
		l.add(WRWrite, 8, 0, rng)
		p.run(t)
		l.verify(t)
		if n := p.ends[0].q.ctr.RetransmittedPackets; n != probes {
			t.Errorf("timeout %d: %d probes for a message that takes 2 ms", timeout, n)
		}
	}
}
