package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/base/ring"
)

// oooEntry is a packet that has arrived and waits for the packets before it. It holds the data of the packet, the
// operation of the last packet of a message, or both. The operation is a premature completion (IRN 5.3.3), or a READ
// or atomic in the Read WQE buffer (IRN 5.3.2).
type oooEntry struct {
	effect
	first  bth.PSN // of its message
	msn    uint32
	sn     uint32 // recv_WQE_SN or read_WQE_SN
	off    uint32 // of the data in the message
	copied bool
	data   []byte
}

// message reports whether e is of a SEND or WRITE.
func (e *oooEntry) message() bool { return e.opcode.IsSend() || e.opcode.IsWrite() }

// oooQueue holds entries in PSN order. It reuses the memory of removed entries.
type oooQueue struct {
	ring.Ring[oooEntry]
	queries int // READs and atomics among them
	copies  int // entries with data
}

// insert returns the place of an entry for the caller to set. Its data slice may be reused.
func (q *oooQueue) insert(psn bth.PSN) *oooEntry {
	e, i := q.Push(), q.Tail-1
	for ; i != q.Head && q.At(i-1).psn.After(psn); i-- {
		before := q.At(i - 1)
		*e, *before = *before, *e
		e = before
	}
	return e
}

// pop removes the oldest entry.
func (q *oooQueue) pop() {
	e := q.Oldest()
	if !e.message() {
		q.queries--
	}
	if e.copied {
		q.copies--
	}
	q.Head++
}

func (q *oooQueue) clear() { *q = oooQueue{Ring: q.Ring}; q.Clear() }

// hold keeps the operation of p until it is in order, with its data if copied.
func (a *anyOrder) hold(p *bth.Packet, t *target, copied bool) {
	e := a.held.insert(p.PSN)
	data := e.data[:0]
	if *e = (oooEntry{first: p.PSN, sn: p.Ext.ReadSN, off: t.off, copied: copied}); p.Opcode.Ends() {
		e.effect.set(p, t.off)
	} else {
		e.psn, e.opcode = p.PSN, p.Opcode
	}
	if !e.message() {
		a.held.queries++
		e.data = data
		return
	}
	e.first, e.msn, e.sn = p.PSN.Add(-int(p.Ext.Offset)), p.Ext.MSN, p.Ext.RecvSN
	e.va, e.rkey = t.va, t.rkey
	if copied {
		a.held.copies++
		data = a.r.q.retain(p.Payload, data)
	}
	e.data = data
}

// fetch makes the payload of p independent of the memory of its sender, before retain.
func (q *QP) fetch(p *bth.Packet) (ok bool) {
	p.Payload, ok = q.host.Fetch(p.Payload)
	return ok
}

// retain returns a copy of p, in the memory of buf if it fits. Phantom payload is not copied.
func (q *QP) retain(p, buf []byte) []byte {
	if q.cfg.Phantom {
		return p
	}
	return append(buf, p...)
}
