package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
)

// waiter is a packet that has arrived and waits for those before it: with what it does as
// the last one of its message (a premature completion, IRN 5.3.3, or a READ or atomic in the
// Read WQE buffer, IRN 5.3.2), with its data, or both.
type waiter struct {
	effect
	first  bth.PSN // of its message
	msn    uint32
	sn     uint32 // recv_WQE_SN or read_WQE_SN
	off    uint32 // of the data in the message
	copied bool
	data   []byte
}

// message reports whether it is of a SEND or WRITE.
func (w *waiter) message() bool { return w.opcode.IsSend() || w.opcode.IsWrite() }

// waiting are waiters in the order of their PSNs. Memory of those that are gone is used
// again.
type waiting struct {
	ring.Ring[waiter]
	queries int // READs and atomics among them
	copies  int // those with data
}

// insert returns the place of a waiter, with everything in it but its PSN still to be set.
func (q *waiting) insert(psn bth.PSN) *waiter {
	w, i := q.Push(), q.Tail-1
	for ; i != q.Head && q.At(i-1).psn.After(psn); i-- {
		before := q.At(i - 1)
		*w, *before = *before, *w
		w = before
	}
	return w
}

// pop removes the oldest.
func (q *waiting) pop() {
	w := q.Oldest()
	if !w.message() {
		q.queries--
	}
	if w.copied {
		q.copies--
	}
	q.Head++
}

func (q *waiting) clear() { *q = waiting{Ring: q.Ring}; q.Clear() }

// wait keeps what p does until its turn comes, with its data if copied.
func (a *anyOrder) wait(p *bth.Packet, t *target, copied bool) {
	w := a.waiting.insert(p.PSN)
	data := w.data[:0]
	if *w = (waiter{first: p.PSN, sn: p.Ext.ReadSN, off: t.off, copied: copied}); p.Opcode.Ends() {
		w.effect.set(p, t.off)
	} else {
		w.psn, w.opcode = p.PSN, p.Opcode
	}
	if !w.message() {
		a.waiting.queries++
		w.data = data
		return
	}
	w.first, w.msn, w.sn = p.PSN.Add(-int(p.Ext.Offset)), p.Ext.MSN, p.Ext.RecvSN
	w.va, w.rkey = t.va, t.rkey
	if copied {
		a.waiting.copies++
		data = a.r.q.retain(p.Payload, data)
	}
	w.data = data
}

// retain returns p in memory that stays, which may be that of buf.
func (q *QP) retain(p, buf []byte) []byte {
	if q.cfg.Phantom {
		return p
	}
	return append(buf, p...)
}
