package qp

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

// single returns a configuration whose WRITEs leave as WRITEs of one packet.
func single() pairConfig {
	c := lossless
	c.single = true
	return c
}

// TestSingleWrites: each packet of a WRITE is a request of its own. Requests that consume a receive stay whole.
func TestSingleWrites(t *testing.T) {
	for op, want := range map[WROpcode][]bth.Opcode{
		WRWrite:    {bth.OpWriteOnly, bth.OpWriteOnly, bth.OpWriteOnly},
		WRWriteImm: {bth.OpWriteFirst, bth.OpWriteMiddle, bth.OpWriteLastImm},
		WRSend:     {bth.OpSendFirst, bth.OpSendMiddle, bth.OpSendLast},
	} {
		p := newPair(t, single())
		var got []bth.RETH
		p.faults = func(_ int, b *bth.Packet) (f fault) {
			if k := len(got); b.Opcode.IsSend() || b.Opcode.IsWrite() {
				if k < len(want) && b.Opcode != want[k] {
					t.Errorf("packet %d of %v is %v, want %v", k, op, b.Opcode, want[k])
				}
				got = append(got, b.RETH)
				f.drop = k == 1 // retransmitted from its middle
			}
			return f
		}
		l := newWorkload(p, 0)
		l.add(op, 600, 0, rand.New(rand.NewPCG(1, 1)))
		p.run(t)
		l.verify(t)
		if op != WRWrite {
			continue
		}
		for k, n := range []uint32{256, 256, 600 - 512} {
			if r := got[k]; r.Length != n || r.VA != got[0].VA+256*uint64(k) || r.RKey != got[0].RKey {
				t.Errorf("packet %d has %+v", k, r)
			}
		}
		if n := p.ends[1].q.ctr.RxWriteRequests; n != uint64(len(want)) {
			t.Errorf("the peer counts %d WRITEs", n)
		}
	}
}

// TestSingleWritesAnyFaults is TestPairAnyFaults with WRITEs of one packet.
func TestSingleWritesAnyFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { anyFaults(t, single()) })
}
