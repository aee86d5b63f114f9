package qp

import (
	"roced/bth"
	"roced/reorder"
)

// orderBuffer is the re-ordering buffer of MELO (3.2.2): packets that are ahead of a gap
// wait there, data and all, and go on to memory in order. Its storage comes with the
// first of them.
type orderBuffer struct {
	trk   reorder.Buffered // nil: data are placed in any order
	slots []buffered
	n     int
}

// buffered is a packet that waits.
type buffered struct {
	full   bool
	packet bth.Packet
	data   []byte
}

// store keeps a packet that the tracker holds.
func (b *orderBuffer) store(p *bth.Packet) {
	if b.slots == nil {
		b.slots = make([]buffered, b.trk.Slots())
	}
	s := &b.slots[b.trk.Slot(p.PSN)]
	s.full, s.packet, s.data = true, *p, append(s.data[:0], p.Payload...)
	s.packet.Payload = s.data
	b.n++
}

// next returns the packet with that PSN if it waits. It may be used until the next call of
// store.
func (b *orderBuffer) next(psn bth.PSN) *bth.Packet {
	if b.n == 0 {
		return nil
	}
	s := &b.slots[b.trk.Slot(psn)]
	if !s.full || s.packet.PSN != psn {
		return nil
	}
	s.full = false
	b.n--
	return &s.packet
}

func (b *orderBuffer) clear() {
	for i := range b.slots {
		b.slots[i].full = false
	}
	b.n = 0
}

// passOn places the packets that have waited in the buffer for those before them.
func (r *extResponder) passOn(before bth.PSN) (bth.PSN, *refusal) {
	for psn := before; r.buffer.n > 0 && psn != r.trk.Expected(); psn = psn.Next() {
		if p := r.buffer.next(psn); p != nil {
			if f := r.take(p); f != nil {
				return psn, f
			}
		}
	}
	return before, nil
}

// hold judges a packet that goes into the buffer: what it needs to be executed later.
func (r *extResponder) hold(p *bth.Packet) *refusal {
	if consumes(p.Opcode) {
		in := r.inboxOf(p.Ext.RecvSN)
		if in == nil {
			return notReady
		}
		if p.Opcode.IsSend() && !in.takes(p) {
			return badSequence
		}
	}
	switch {
	case !p.Opcode.IsWrite() && !p.Opcode.IsSend():
		return r.takeQuery(p)
	}
	return r.checkLength(p)
}

// passOn places the responses that have waited in the buffer.
func (e *extRequester) passOn(before bth.PSN) (*slot, Drop) {
	for psn := before; e.buffer.n > 0 && psn != e.trk.Expected(); psn = psn.Next() {
		p := e.buffer.next(psn)
		if p == nil {
			continue
		}
		s, k := e.locate(psn)
		if s == nil {
			continue
		}
		if d := e.place(s, k, p); d != Accepted {
			return s, d
		}
	}
	return nil, Accepted
}
