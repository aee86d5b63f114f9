package qp_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/qp/qptest"
)

// dice turns bytes into choices of a run. Without bytes left it picks zero.
type dice struct {
	testing.TB
	b []byte
}

func (d *dice) done() bool { return len(d.b) == 0 }

// pick returns a number in [0, n).
func (d *dice) pick(n int) int {
	if d.done() {
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return int(v) % n
}

// tormented is a queue pair whose peer, client and memory behave arbitrarily.
type tormented struct {
	*dice
	*lone
	srq      bool
	expected bth.PSN      // computed from the accepted packets
	message  bth.Opcode   // of the last packet of an unfinished message
	sent     []bth.Packet // the latest ones, for duplicates
	posted   int
	nextCQE  uint64
}

// torment drives a queue pair of any service in any state with the dice. The queue pair must not panic, loop, answer
// requests that it has not executed, or complete a receive twice.
func torment(d *dice) {
	typ := []qp.Type{qp.RC, qp.RC, qp.RC, qp.UC, qp.UD}[d.pick(5)]
	a := loneAttr
	a.RQPSN, a.MaxDestRdAtomic = 0xfffffa, uint8(d.pick(4))
	if d.pick(8) == 0 {
		a.AccessFlags = 0
	}
	s := &tormented{dice: d, srq: d.pick(3) == 0, expected: bth.MakePSN(a.RQPSN)}
	s.lone = newLone(d, typ, []qp.State{qp.RTS, qp.RTR, qp.Init}[d.pick(3)], s.srq, a)
	regions := maps.Clone(s.h.Regions)
	for !d.done() {
		switch d.pick(24) {
		default:
			s.packet()
		case 0, 1, 2, 3, 4, 5, 6, 7:
			s.recv()
		case 8, 9, 10, 11:
			s.drain(1 + d.pick(8))
		case 12: // memory appears and disappears
			s.h.Regions = map[uint32]*qptest.Region{}
			for _, key := range []uint32{lkey, 2, rkey, 6, 7} {
				if d.pick(16) != 0 {
					s.h.Regions[key] = regions[key]
				}
			}
		case 13:
			_ = s.q.Modify(s.now, qp.Attr{State: []qp.State{qp.SQD, qp.RTS}[d.pick(2)]}, qp.AttrState)
		case 14:
			_ = s.q.Modify(s.now, qp.Attr{MaxDestRdAtomic: uint8(d.pick(5))}, qp.AttrMaxDestRdAtomic)
		}
		s.completions()
	}
	s.drain(10_000)
	s.end()
}

// fail reports the failure with the events before it. A seed repeats the run.
func (s *tormented) fail(format string, args ...any) {
	s.Helper()
	s.Fatalf("%s: %s", s.counters(), fmt.Sprintf(format, args...))
}

// packet delivers a request: the next one in sequence, a duplicate, or an arbitrary packet.
func (s *tormented) packet() {
	var p bth.Packet
	switch n := s.pick(12); {
	case n == 0:
		p = s.anything()
	case n <= 3 && len(s.sent) > 0:
		p = s.sent[s.pick(len(s.sent))]
		if p.Opcode.IsReadRequest() && s.pick(2) == 0 {
			p.PSN, p.RETH.VA, p.RETH.Length = p.PSN.Next(), p.RETH.VA+256, p.RETH.Length-256
		}
	default:
		p = s.proper()
		p.PSN = s.expected
		if s.sent = append(s.sent, p); len(s.sent) > 8 {
			s.sent = s.sent[1:]
		}
		if s.pick(10) == 0 {
			return // lost
		}
	}
	if s.q.Receive(s.now, &p, qp.RxMeta{}) != qp.Accepted || !p.Opcode.IsRequest() {
		return
	}
	span := 1
	if p.Opcode.IsReadRequest() {
		span = max(1, (int(p.RETH.Length)+255)/256)
	}
	if s.typ == qp.RC && p.PSN != s.expected {
		s.fail("%v accepted, expected %v", p.PSN, s.expected)
	}
	s.expected = p.PSN.Add(span)
	s.message = 0
	if !p.Opcode.Ends() {
		s.message = p.Opcode
	}
}

// proper returns a request that is valid next.
func (s *tormented) proper() bth.Packet {
	size := []int{0, 1, 88, 256}[s.pick(4)]
	p := bth.Packet{
		AckReq: s.pick(2) == 0, IETH: 6, DETH: bth.DETH{QKey: 0x1111},
		RETH: bth.RETH{VA: remoteVA, RKey: rkey, Length: uint32(size)}, AtomicETH: bth.AtomicETH{VA: remoteVA, RKey: rkey},
	}
	starts := []bth.Opcode{
		bth.OpSendOnly, bth.OpSendOnlyImm, bth.OpWriteOnly, bth.OpWriteOnlyImm, bth.OpSendFirst, bth.OpWriteFirst, bth.OpReadRequest,
		bth.OpReadRequest, bth.OpCmpSwap, bth.OpFetchAdd, bth.OpSendOnlyInv,
	}
	op := starts[s.pick(len(starts))]
	switch {
	case s.message.IsWrite():
		op = []bth.Opcode{bth.OpWriteLast, bth.OpWriteLastImm}[s.pick(2)]
		size = 88
	case s.message != 0:
		op = []bth.Opcode{bth.OpSendLast, bth.OpSendMiddle, bth.OpSendLastImm, bth.OpSendLastInv}[s.pick(4)]
		size = max(1, size)
	}
	switch p.Opcode = transports[s.typ] | op; {
	case op == bth.OpReadRequest:
		p.RETH.Length = uint32(size * 5)
	case p.Opcode.IsFirst() || p.Opcode.IsMiddle():
		size, p.RETH.Length = 256, 256+88
	}
	if p.Opcode.HasPayload() {
		p.Payload = make([]byte, size)
	}
	return p
}

// anything returns a packet of independent, random parts.
func (s *tormented) anything() bth.Packet {
	ops := []bth.Opcode{
		bth.OpSendOnly, bth.OpSendFirst, bth.OpSendMiddle, bth.OpSendLast, bth.OpSendLastImm, bth.OpSendOnlyImm, bth.OpSendOnlyInv,
		bth.OpSendLastInv, bth.OpWriteOnly, bth.OpWriteFirst, bth.OpWriteMiddle, bth.OpWriteLast, bth.OpWriteLastImm, bth.OpWriteOnlyImm,
		bth.OpReadRequest, bth.OpReadRequest, bth.OpCmpSwap, bth.OpFetchAdd, bth.OpAcknowledge, bth.OpReadRespOnly, 0x1f,
	}
	length := []uint32{0, 1, 256, 257, 512, 600, 1 << 31, 1<<31 + 1, 1<<32 - 1}
	va := []uint64{remoteVA, remoteVA + 8, remoteVA + 256, remoteVA + 0x2fff, 1<<64 - 1}
	p := bth.Packet{
		Opcode: transports[s.typ] | ops[s.pick(len(ops))],
		PSN:    s.expected.Add([]int{0, 0, 1, 2, -1, -2, -3, -4, 1 << 22, -1 << 22, 1 << 23}[s.pick(11)]),
		AckReq: s.pick(2) == 0,
		IETH:   uint32(s.pick(9)),
		RETH:   bth.RETH{VA: va[s.pick(len(va))], RKey: []uint32{rkey, rkey, rkey, 6, 7, 99}[s.pick(6)], Length: length[s.pick(len(length))]},
		DETH:   bth.DETH{QKey: []uint32{0x1111, 0x1111, 1}[s.pick(3)]},
	}
	p.AtomicETH = bth.AtomicETH{VA: p.RETH.VA, RKey: p.RETH.RKey}
	p.Payload = make([]byte, []int{0, 1, 88, 256, 256, 257, 5000}[s.pick(7)])
	return p
}

// recv posts a receive, usually a valid one.
func (s *tormented) recv() {
	w := qp.RecvWQE{WRID: uint64(s.posted)}
	s.posted++
	for range []int{1, 2, 1, 2, 1, 2, 0, 5}[s.pick(8)] {
		w.SGEs = append(w.SGEs, qp.SGE{Addr: localVA + uint64(s.pick(3)*256), Length: []uint32{300, 600, 1, 0}[s.pick(4)], LKey: lkey})
	}
	if bad := s.pick(64); bad < 2 && len(w.SGEs) > 0 {
		w.SGEs[0].LKey = []uint32{2, 77}[bad]
	} else if bad == 3 && len(w.SGEs) > 0 {
		w.SGEs[0].Length = 1<<32 - 1
	}
	s.post(w)
}

// drain checks the sent packets. An acknowledgement covers executed requests only, and a NAK requests only the
// expected packet.
func (s *tormented) drain(n int) {
	var t qp.Transmit
	for range n {
		if !s.q.PollTransmit(s.now, &t) {
			return
		}
		p := &t.Packet
		switch {
		case s.typ != qp.RC:
			s.fail("%v sends %v", s.typ, p.Opcode)
		case !p.PSN.Before(s.expected) && (p.PSN != s.expected || !p.Opcode.IsAck() || p.AETH.Syndrome.IsACK()):
			s.fail("%v %v %v, expected %v", p.PSN, p.Opcode, p.AETH.Syndrome, s.expected)
		case len(p.Payload) > 256 || p.DestQP != peerQPN || p.AETH.MSN >= 1<<24:
			s.fail("bad packet %+v", p)
		}
	}
	if n == 10_000 {
		s.fail("never stops sending")
	}
}

// completions checks that receives complete once, in the order of posting.
func (s *tormented) completions() {
	for _, c := range s.h.RecvCQ {
		if c.WRID != s.nextCQE || c.QPN != 17 {
			s.fail("completion %+v, expected %d", c, s.nextCQE)
		}
		s.nextCQE++
	}
	if int(s.nextCQE) > s.h.Recvs.Taken || s.h.Recvs.Taken > int(s.nextCQE)+1 {
		s.fail("%d receives completed, %d taken", s.nextCQE, s.h.Recvs.Taken)
	}
	s.h.RecvCQ, s.h.Events = s.h.RecvCQ[:0], s.h.Events[:0]
}

// end breaks the queue pair and checks that all receives are flushed; with an SRQ, the receives already taken.
func (s *tormented) end() {
	if err := s.q.Modify(s.now, qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
		s.fail("%v", err)
	}
	for range s.posted {
		s.q.RecvPosted(s.now)
	}
	s.completions()
	if want := s.h.Recvs.Taken; int(s.nextCQE) != want || !s.srq && want != s.posted {
		s.fail("%d receives completed, %d taken, %d posted", s.nextCQE, want, s.posted)
	}
	var t qp.Transmit
	if s.q.PollTransmit(s.now, &t) {
		s.fail("sends in ERR")
	}
}

func TestResponderHostile(t *testing.T) {
	b := make([]byte, 3000)
	for seed := range uint64(5000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { torment(&dice{t, b[:rng.IntN(len(b))]}) })
	}
}

func FuzzResponder(f *testing.F) {
	for i := range 8 {
		f.Add([]byte(fmt.Sprintf("%d seed for the responder, as good as any", i)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		torment(&dice{t, b[:min(len(b), 4096)]})
	})
}
