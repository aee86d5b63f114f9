package qp

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

var lossless = pairConfig{unacked: 16, psn: 0xfffff0, rd: 4, timeout: 5, retry: 7, rnrRetry: 7}

// mixed returns a workload of every operation in sizes around the MTU of 256.
func mixed(p *pair, from int) *workload {
	rng := rand.New(rand.NewPCG(1, uint64(from)))
	l := newWorkload(p, from)
	for _, op := range []WROpcode{
		WRSend, WRWrite, WRRead, WRFetchAdd, WRSendImm, WRRead, WRCmpSwap, WRWriteImm, WRSendWithInv, WRAtomicWrite, WRRead, WRBindMW,
		WRWrite, WRLocalInv, WRSend,
	} {
		for _, n := range []uint32{0, 257, 600} {
			l.add(op, n, 0, rng)
		}
	}
	return l
}

func TestPairEverySize(t *testing.T) {
	for _, op := range []WROpcode{WRSend, WRSendImm, WRSendWithInv, WRWrite, WRWriteImm, WRRead} {
		p := newPair(t, lossless)
		l := newWorkload(p, 0)
		rng := rand.New(rand.NewPCG(2, 2))
		for _, n := range []uint32{0, 1, 2, 3, 4, 255, 256, 257, 511, 512, 513, 1024, 5000, 20000} {
			l.add(op, n, 0, rng)
			if n <= 256 && op != WRRead {
				l.add(op, n, SendInline, rng)
			}
		}
		p.run(t)
		l.verify(t)
		c := p.ends[0].q.ctr
		if c.RetransmittedPackets != 0 || c.LocalAckTimeoutErr != 0 {
			t.Errorf("%d: %d retransmissions, %d timeouts without loss", op, c.RetransmittedPackets, c.LocalAckTimeoutErr)
		}
	}
}

// TestPairEachFault repeats the mixed workload. Each run loses, duplicates or delays another
// packet.
func TestPairEachFault(t *testing.T) { eachFault(t, lossless, mixed) }

// eachFault repeats a workload in both directions.
func eachFault(t *testing.T, c pairConfig, work func(p *pair, from int) *workload) {
	run := func(victim int, f fault) int {
		p := newPair(t, c)
		p.faults = func(n int, _ *bth.Packet) fault {
			if n == victim {
				return f
			}
			return fault{}
		}
		a, b := work(p, 0), work(p, 1)
		p.run(t)
		a.verify(t)
		b.verify(t)
		return p.count
	}
	total := run(-1, fault{})
	for name, f := range map[string]fault{
		"drop": {drop: true}, "dup": {dup: true}, "delay": {delay: 5 * time.Microsecond},
		"late copy": {dup: true, delay: 300 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range total {
				run(i, f)
			}
		})
	}
}

// TestPairLosslessNeedsNoTimeout: without loss no progress depends on a timeout, for any window.
func TestPairLosslessNeedsNoTimeout(t *testing.T) {
	for _, unacked := range []uint32{1, 2, 3, 7, 64, 1000} {
		c := lossless
		c.timeout, c.unacked = 0, unacked
		p := newPair(t, c)
		a, b := mixed(p, 0), mixed(p, 1)
		p.run(t)
		a.verify(t)
		b.verify(t)
		if n := p.ends[0].q.ctr.RetransmittedPackets; n != 0 {
			t.Errorf("window %d: %d retransmissions", unacked, n)
		}
	}
}

// TestPairAnyFaults draws operations and a pattern of loss, duplicates and delay. Each request must take effect once,
// in order, byte for byte.
func TestPairAnyFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { anyFaults(t, lossless) })
}

func anyFaults(t *rapid.T, c pairConfig) {
	c.unacked = rapid.Uint32Range(1, 40).Draw(t, "unacked")
	c.rd = rapid.Uint8Range(1, 5).Draw(t, "rd")
	c.psn = rapid.Uint32Range(0, 1<<24-1).Draw(t, "psn")
	p := newPair(dummyTB{}, c)
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	loss := rapid.IntRange(0, 8).Draw(t, "loss")
	odd := rapid.IntRange(0, 15).Draw(t, "odd")
	p.faults = func(int, *bth.Packet) fault {
		f := fault{drop: rng.IntN(100) < loss, dup: rng.IntN(100) < odd}
		if rng.IntN(100) < odd {
			f.delay = time.Duration(rng.IntN(10_000))
		}
		return f
	}
	loads := []*workload{newWorkload(p, 0), newWorkload(p, 1)}
	ops := c.ops
	if ops == nil {
		ops = []WROpcode{WRWrite, WRWriteImm, WRSend, WRSendImm, WRRead, WRCmpSwap, WRFetchAdd, WRLocalInv, WRBindMW, WRSendWithInv, WRAtomicWrite}
	}
	for range rapid.IntRange(1, 40).Draw(t, "ops") {
		l := loads[rng.IntN(2)]
		flags := SendFlags(0)
		if rng.IntN(4) == 0 {
			flags = SendFence
		}
		n := []uint32{0, 1, 100, 256, 257, 512, 1000, 4000}[rng.IntN(8)]
		l.add(ops[rapid.IntRange(0, len(ops)-1).Draw(t, "op")], n, flags, rng)
		for range rng.IntN(4) {
			p.step()
		}
	}
	p.run(t)
	for _, l := range loads {
		l.verify(t)
	}
}

// dummyTB lets newPair report failures from within a rapid check.
type dummyTB struct{ testing.TB }

func (dummyTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// TestPairRNR posts receives late.
func TestPairRNR(t *testing.T) {
	p := newPair(t, lossless)
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 4 {
		l.add(WRSend, 600, 0, rng)
	}
	h := p.ends[1].h
	recvs := h.recvs
	h.recvs = nil
	for n := 0; p.step(); n++ {
		if n%20 == 19 && len(h.recvs) < len(recvs) {
			h.recvs = recvs[:len(h.recvs)+1]
		}
	}
	l.verify(t)
	if c := p.ends[0].q.ctr; c.RcvdRNRErr == 0 || c.RetryExceededErr != 0 {
		t.Errorf("RNR NAKs: %d", c.RcvdRNRErr)
	}
}

// TestPairNAKInterval loses a packet and its first retransmission. Only the timeout detects the second loss, unless
// the responder repeats NAKs.
func TestPairNAKInterval(t *testing.T) {
	for _, us := range []float64{0, 2} {
		c := lossless
		c.profile = func() Profile {
			return Profile{Tracker: tracker("strict", reorder.Params{"nak_interval_us": us}),
				Recovery: recovery("gobackn", retrans.Params{"nak_interval_us": us})}
		}
		p := newPair(t, c)
		l := newWorkload(p, 0)
		l.add(WRWrite, 200*256, 0, rand.New(rand.NewPCG(5, 5)))
		lost := 0
		p.faults = func(_ int, k *bth.Packet) fault {
			again := len(k.Payload) > 0 && k.PSN == bth.MakePSN(c.psn).Add(3) && lost < 2
			if again {
				lost++
			}
			return fault{drop: again}
		}
		p.run(t)
		l.verify(t)
		ctr := p.ends[0].q.ctr
		if timeouts, naks := ctr.LocalAckTimeoutErr, ctr.PacketSeqErr; (us == 0) != (timeouts == 1 && naks == 1) || (us > 0) != (timeouts == 0 && naks == 2) {
			t.Errorf("interval of %v us: %d timeouts, %d NAKs", us, timeouts, naks)
		}
	}
}

// TestPairCNPWithNAK loses a packet. With CNPWithNAK, BECN and CNPs follow the arrival of the packets behind it; otherwise nothing
// notifies the sender. IRN's responder tracks these packets, or has a bitmap that is too short.
func TestPairCNPWithNAK(t *testing.T) {
	short := reorder.Params{"bdp_packets": 1}
	for name, c := range map[string]pairConfig{
		"rc": {profile: func() Profile { return Profile{} }},
		"irn": {profile: func() Profile {
			return Profile{Kind: bth.ProfileIRN, Tracker: tracker("irn", nil), Recovery: recovery("irn", nil)}
		}},
		"irn, beyond": {profile: func() Profile {
			return Profile{Kind: bth.ProfileIRN, Tracker: tracker("irn", short), Recovery: recovery("irn", nil)}
		}},
	} {
		for _, on := range []bool{false, true} {
			of := c.profile
			c := lossless
			c.profile = func() Profile {
				p := of()
				p.Traits.CNPWithNAK = on
				return p
			}
			p := newPair(t, c)
			p.ends[1].q.np.interval = 1
			l := newWorkload(p, 0)
			l.add(WRWrite, 20*256, 0, rand.New(rand.NewPCG(5, 5)))
			lost, marked, cnps := false, 0, 0
			p.faults = func(_ int, k *bth.Packet) fault {
				switch {
				case k.Opcode.IsCNP():
					cnps++
				case k.Opcode.IsAck() && k.BECN:
					marked++
				case len(k.Payload) > 0 && k.PSN == bth.MakePSN(c.psn).Add(3) && !lost:
					lost = true
					return fault{drop: true}
				}
				return fault{}
			}
			p.run(t)
			l.verify(t)
			if !lost || (marked > 0) != on || (cnps > 0) != on {
				t.Errorf("%s, %v: %d acknowledgements have BECN, %d CNPs", name, on, marked, cnps)
			}
		}
	}
}

// TestPairNAKPaced loses two packets in quick succession. If the responder paces NAKs, the second NAK waits for the
// end of the interval.
func TestPairNAKPaced(t *testing.T) {
	const interval = 100 * time.Microsecond
	for _, paced := range []float64{0, 1} {
		c := lossless
		c.unacked, c.timeout = 1<<10, 14
		c.profile = func() Profile {
			return Profile{Tracker: tracker("strict", reorder.Params{"nak_interval_us": 100, "nak_paced": paced}),
				Recovery: recovery("gobackn", retrans.Params{"nak_interval_us": 100}), Controller: ccalgo.NewStatic(ccalgo.Unlimited, 1e9)}
		}
		p := newPair(t, c)
		l := newWorkload(p, 0)
		l.add(WRWrite, 200*256, 0, rand.New(rand.NewPCG(5, 5)))
		lose := map[bth.PSN]bool{bth.MakePSN(c.psn).Add(3): true, bth.MakePSN(c.psn).Add(20): true}
		var naks []mono.Time
		p.faults = func(_ int, k *bth.Packet) fault {
			if k.Opcode.IsAck() && k.AETH.Syndrome == bth.SyndromePSNSeqErr {
				naks = append(naks, p.now)
			}
			drop := len(k.Payload) > 0 && lose[k.PSN]
			if drop {
				lose[k.PSN] = false
			}
			return fault{drop: drop}
		}
		p.run(t)
		l.verify(t)
		if len(naks) != 2 || (naks[1].Sub(naks[0]) >= interval) != (paced == 1) {
			t.Errorf("paced %v: NAKs at %v", paced, naks)
		}
	}
}

// TestPairRetryExhaustion loses all packets from some packet on. The oldest request fails after 1 + retry_cnt
// transmissions; the others are flushed.
func TestPairRetryExhaustion(t *testing.T) {
	c := lossless
	c.retry = 3
	p := newPair(t, c)
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(4, 4))
	for range 3 {
		l.add(WRWrite, 256, 0, rng)
	}
	p.faults = func(int, *bth.Packet) fault { return fault{drop: true} }
	p.run(t)
	h := p.ends[0].h
	want := []Status{StatusRetryExcErr, StatusWRFlushErr, StatusWRFlushErr}
	for i, s := range want {
		if i >= len(h.sendCQ) || h.sendCQ[i].Status != s {
			t.Fatalf("completions %+v", h.sendCQ)
		}
	}
	if p.count != 3*4 {
		t.Errorf("%d packets, want 4 transmissions of 3", p.count)
	}
}

// TestPairAccessError: a bad rkey ends the queue pair on both sides.
func TestPairAccessError(t *testing.T) {
	p := newPair(t, lossless)
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(5, 5))
	for range 3 {
		l.add(WRWrite, 300, 0, rng)
	}
	p.ends[0].h.queue[1].RKey = 6
	p.run(t)
	for i, s := range []Status{StatusSuccess, StatusRemAccessErr, StatusWRFlushErr} {
		if cq := p.ends[0].h.sendCQ; i >= len(cq) || cq[i].Status != s {
			t.Fatalf("completions %+v", cq)
		}
	}
	if a, b := p.ends[0].q.State(), p.ends[1].q.State(); a != Err || b != Err {
		t.Errorf("states %v and %v", a, b)
	}
}
