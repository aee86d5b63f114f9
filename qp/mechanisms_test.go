package qp

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/retrans"
)

// Mechanisms of docs/results/mechanisms-transports.md that involve a queue pair.

// TestLostGoFirst: no new packet leaves while a lost packet waits for retransmission (IRN 3.1).
func TestLostGoFirst(t *testing.T) {
	c := lossless
	c.profile = func() Profile { return irn(nil) }
	p := newPair(t, c)
	l := newWorkload(p, 0)
	l.add(WRWrite, 60*256, 0, rand.New(rand.NewPCG(1, 1)))
	again := 0
	p.faults = func(_ int, k *bth.Packet) fault {
		if len(k.Payload) == 0 {
			return fault{}
		}
		if k.Ext.Flags&bth.XReTx != 0 {
			again++
			return fault{}
		}
		if psn, waits := p.ends[0].q.req.rec.NextRetransmit(); waits {
			t.Fatalf("%v leaves while %v, which is lost, waits", k.PSN, psn)
		}
		return fault{drop: k.Ext.Offset%7 == 3}
	}
	p.run(t)
	l.verify(t)
	if again == 0 {
		t.Error("nothing was lost")
	}
}

// TestRequestsWithinBDP: BDP-FC limits the number of outstanding request packets (IRN 3.2).
func TestRequestsWithinBDP(t *testing.T) {
	c := lossless
	c.unacked = 64
	c.profile = func() Profile { return irn(retrans.Params{"bdp_packets": 5}) }
	p := newPair(t, c)
	l := newWorkload(p, 0)
	l.add(WRWrite, 60*256, 0, rand.New(rand.NewPCG(1, 1)))
	most := uint32(0)
	p.faults = func(int, *bth.Packet) fault {
		most = max(most, p.ends[0].q.req.outstanding())
		return fault{}
	}
	p.run(t)
	l.verify(t)
	if most != 5 {
		t.Errorf("%d packets are outstanding, the cap is 5", most)
	}
}

// TestSyncEarly: a synchronise operation that arrives before its predecessors touches no memory. The responder
// refuses it, and the requester retransmits it (MP-RDMA 3.4).
func TestSyncEarly(t *testing.T) {
	c := lossless
	c.profile = extended["mp-rdma"]
	p := newPair(t, c)
	clear(p.ends[1].h.mem)
	l := newWorkload(p, 0)
	rng := rand.New(rand.NewPCG(1, 1))
	l.add(WRWrite, 4*256, 0, rng)
	l.add(WRWrite, 4*256, SendFence, rng)
	there := func(i int) bool {
		at := l.ops[i].off
		return !bytes.Equal(p.ends[1].h.mem[at:at+256], make([]byte, 256))
	}
	refused := 0
	p.links.arrive = func(*flight) {
		if there(1) && !there(0) {
			t.Fatal("the operation is in memory before the one that precedes it")
		}
	}
	p.faults = func(_ int, k *bth.Packet) fault {
		if k.Opcode.IsAck() && k.Ext.Flags&bth.XRefused != 0 {
			refused++
		}
		if len(k.Payload) > 0 && k.PSN == bth.MakePSN(c.psn) && k.Ext.Flags&bth.XReTx == 0 {
			return fault{delay: 300 * time.Microsecond}
		}
		return fault{}
	}
	p.run(t)
	l.verify(t)
	if refused == 0 {
		t.Error("it did not come early")
	}
}

// TestSyncWaits: a synchronise operation leaves later than the packet before it, so that the earlier packet most
// likely arrives first (MP-RDMA 3.4).
func TestSyncWaits(t *testing.T) {
	for _, flags := range []SendFlags{0, SendFence} {
		c := lossless
		c.profile = extended["mp-rdma"]
		p := newPair(t, c)
		l := newWorkload(p, 0)
		rng := rand.New(rand.NewPCG(1, 1))
		l.add(WRWrite, 256, 0, rng)
		l.add(WRWrite, 256, flags, rng)
		var left []mono.Time
		p.faults = func(_ int, k *bth.Packet) fault {
			if len(k.Payload) > 0 && k.Ext.Flags&bth.XReTx == 0 {
				left = append(left, p.now)
			}
			return fault{}
		}
		p.run(t)
		l.verify(t)
		if len(left) != 2 || (left[1] > left[0]) != (flags == SendFence) {
			t.Errorf("flags %d: packets left at %v", flags, left)
		}
	}
}
