package soak

import (
	"bytes"
	"math/rand/v2"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
	"roced.io/roced/rocev2/queue"
)

// recvs is the receive requests of a queue pair, or of all queue pairs that share an SRQ.
type recvs struct {
	w      *world
	ends   []*end
	mem    arena
	slots  []recvSlot
	posted int
	known  int // completions processed
	nextAt mono.Time
	queue  *queue.Recv
	srq    *nictest.SRQ
}

type recvSlot struct {
	list list
	room int
	done bool
}

// ghost is the header before a datagram in its receive buffer.
const ghost = 40

// plan reserves the buffers, one for each message to receive.
func (r *recvs) plan(rng *rand.Rand) {
	s := &r.w.s
	var sizes []int
	most := 0
	for _, f := range r.w.flows {
		for _, m := range f.msgs {
			if !m.receives() || m.to.recvs != r {
				continue
			}
			n := m.size
			if s.typ == qp.RC && r.srq == nil && m.op == qp.WRWriteImm && chance(rng, 50) {
				n = 0 // no data is placed there
			}
			sizes = append(sizes, n)
			most = max(most, m.size)
		}
	}
	for _, n := range sizes {
		if s.typ != qp.RC || s.srq {
			n = most
		}
		if s.typ == qp.UD {
			n += ghost
		}
		room := n + pick(rng, 0, 0, 1, 100)
		r.slots = append(r.slots, recvSlot{list: r.mem.list(rng, room, 1+rng.IntN(s.sges)), room: room})
	}
}

// post posts receive requests, and returns the time of its next call.
func (r *recvs) post(now mono.Time) mono.Time {
	s := &r.w.s
	for now >= r.nextAt && r.posted < len(r.slots) && r.posted-r.known < s.depth {
		w := qp.RecvWQE{WRID: uint64(r.posted), SGEs: r.mem.sges(r.slots[r.posted].list)}
		if err := r.queue.Post(w); err != nil {
			r.w.p.Fatalf("receive queue: %v", err)
		}
		r.posted++
		r.w.acts++
		if s.late > 0 {
			r.nextAt = now.Add(s.late)
		}
		if r.srq == nil && r.ends[0].qp.State() == qp.Err {
			r.ends[0].qp.Node.NIC.RecvPosted(now, r.ends[0].qp.QueuePair)
		}
	}
	if r.nextAt > now && r.posted < len(r.slots) {
		return r.nextAt
	}
	return mono.Never
}

// receive processes a completion of e's receive queue.
func (e *end) receive(c qp.CQE) {
	w, r := e.w, e.recvs
	id := int(c.WRID)
	if id >= r.posted || r.slots[id].done || r.srq == nil && id != r.known {
		w.p.Fatalf("%v: completion of receive request %d, %d posted, %d known: %+v", e, id, r.posted, r.known, c)
	}
	slot := &r.slots[id]
	slot.done = true
	r.known++
	if c.Status == qp.StatusWRFlushErr && e.qp.State() == qp.Err {
		if e.flushes++; e.flushes == 1 || w.s.typ != qp.RC || w.s.anyOrder() {
			r.mem.ignore(slot.list) // a message may have begun to arrive
		}
		return
	}
	if c.Status != qp.StatusSuccess || e.flushes > 0 {
		w.p.Fatalf("%v: receive request %d completed as %+v after %d flushed ones", e, id, c, e.flushes)
	}
	e.deliver(slot, c)
}

// deliver finds the message that arrived.
func (e *end) deliver(slot *recvSlot, c qp.CQE) {
	w := e.w
	f := e.peer.out
	if w.s.typ == qp.UD {
		f = w.flowOf(1-e.side, c.SrcQP)
	}
	if f == nil || f.streams[e] == nil || c.SrcQP != uint32(f.from.qp.Num()) {
		w.p.Fatalf("%v: message from an unknown peer: %+v", e, c)
	}
	st := f.streams[e]
	st.got++
	w.count.delivered++
	if w.s.typ == qp.RC {
		if st.pos >= len(st.msgs) || !e.matches(st.msgs[st.pos], slot, c) {
			w.p.Fatalf("%v: message %d from %v is not what was sent: %+v", e, st.pos, f.from, c)
		}
		e.accept(st.msgs[st.pos], slot, c)
		st.pos++
		return
	}
	from := st.pos
	if w.s.disorders() {
		from = 0
	}
	for again := range 2 { // the second round is for copies
		for i := from; i < len(st.msgs); i++ {
			m := st.msgs[i]
			if m.got > again*maxCopies || !e.matches(m, slot, c) {
				continue
			}
			e.accept(m, slot, c)
			st.pos = i + 1
			return
		}
		if !w.s.copies() {
			break
		}
	}
	w.p.Fatalf("%v: a message that nobody sent, or twice, or out of order: %+v", e, c)
}

// maxCopies limits the number of duplicate deliveries of a message.
const maxCopies = 1000

// matches reports whether m arrived in slot as c says.
func (e *end) matches(m *message, slot *recvSlot, c qp.CQE) bool {
	op, flags, length := qp.WCRecv, qp.WCFlags(0), m.size
	if m.op == qp.WRWriteImm {
		op = qp.WCRecvWithImm
	}
	switch {
	case m.withImm():
		flags |= qp.WCWithImm
	case m.op == qp.WRSendWithInv:
		flags |= qp.WCWithInv
	}
	if e.w.s.typ == qp.UD {
		flags |= qp.WCGRH
		length += ghost
	}
	if c.Opcode != op || c.Flags != flags || c.ByteLen != uint32(length) || flags&^qp.WCGRH != 0 && c.Imm != m.imm {
		return false
	}
	if m.writes() {
		return m.to.mem.holds(list{m.remote}, m.data)
	}
	got := e.recvs.mem.gather(slot.list, length)
	if e.w.s.typ == qp.UD {
		got = got[ghost:]
	}
	return bytes.Equal(got, m.data)
}

// accept records that m arrived in slot.
func (e *end) accept(m *message, slot *recvSlot, c qp.CQE) {
	m.got++
	switch {
	case m.op == qp.WRSendWithInv:
		m.win.closed()
	case m.writes() && m.got == 1:
		m.to.mem.expect(list{m.remote}, m.data)
	}
	if e.w.s.typ != qp.RC {
		e.recvs.mem.ignore(slot.list) // it may contain traces of abandoned messages
		return
	}
	if !m.writes() {
		e.recvs.mem.expect(slot.list, m.data)
	}
}

// gather returns the first n bytes of l.
func (a *arena) gather(l list, n int) (b []byte) {
	for _, p := range l {
		k := min(n, p.n)
		b = append(b, a.buf.B[p.off:p.off+k]...)
		n -= k
	}
	return b
}
