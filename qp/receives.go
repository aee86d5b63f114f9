package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
)

// maxRecvAhead limits the receive work requests that are taken before the oldest of them completes: messages that
// arrive ahead of others need theirs (IRN 5.3.2).
const maxRecvAhead = 256

// receive is a receive work request that has been taken for a message.
type receive struct {
	wqe    RecvWQE
	room   uint64 // bytes of the list
	usable bool   // the list is not too long

	// Messages that arrive in any order: the number of packets of the SEND that have arrived, and its first PSN.
	packets uint32
	first   bth.PSN
}

// receives holds the receive work requests that have been taken and not completed, by the sequence numbers of their
// messages (recv_WQE_SN). In-order transports have at most one.
type receives = ring.Ring[receive]

// takeRecv returns the receive work request with a sequence number. It returns nil if the request has not been
// posted, is too far ahead, or has completed.
func (r *responder) takeRecv(sn uint32) *receive {
	w := &r.recvs
	ahead := (sn - w.Head) & mask24
	if ahead >= maxRecvAhead {
		return nil
	}
	for w.Tail-w.Head <= ahead {
		in := w.Push()
		*in = receive{wqe: RecvWQE{SGEs: in.wqe.SGEs[:0]}}
		if !r.q.host.NextRecv(&in.wqe) {
			w.Tail--
			return nil
		}
		in.measure(r.q)
	}
	return w.At(w.Head + ahead)
}

// nextRecv returns the oldest receive work request, and takes it from the host if necessary.
func (r *responder) nextRecv() *receive { return r.takeRecv(r.recvs.Head & mask24) }

// measure adds up the list. WRITE with immediate places no data there and ignores its length.
func (in *receive) measure(q *QP) {
	if len(in.wqe.SGEs) > int(q.cfg.MaxRecvSGE) && !q.cfg.HasSRQ || len(in.wqe.SGEs) > MaxSGE {
		return
	}
	in.usable = true
	for _, s := range in.wqe.SGEs {
		in.room += uint64(s.Length)
	}
}

// fill places p at off of the list. As rxe (copy_data in rxe_mr.c), it checks rights and bounds of the bytes that
// arrive, not of the whole list: a message that fits completes, though an element is longer than its region.
func (in *receive) fill(q *QP, off uint32, p []byte) *refusal {
	switch {
	case !in.usable:
		return badBuffer
	case uint64(off)+uint64(len(p)) > in.room:
		return shortBuffer
	case !scatter(q.host.WriteRecv, in.wqe.SGEs, off, p):
		return q.failed(badBuffer)
	}
	return nil
}

// matches reports whether p, of a SEND in any order, is of the message that in was taken for.
func (in *receive) matches(p *bth.Packet) bool {
	first := p.PSN.Add(-int(p.Ext.Offset))
	if in.packets == 0 {
		in.first = first
	}
	return in.first == first
}

// scatter places p at off of a list of memory by write.
func scatter(write func(lkey uint32, va uint64, p []byte, ahead uint32) bool, list []SGE, off uint32, p []byte) bool {
	for i := 0; i < len(list) && len(p) > 0; i++ {
		s := &list[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		n := min(uint32(len(p)), s.Length-off)
		if !write(s.LKey, s.Addr+uint64(off), p[:n], s.Length-off-n) {
			return false
		}
		p, off = p[n:], 0
	}
	return len(p) == 0
}
