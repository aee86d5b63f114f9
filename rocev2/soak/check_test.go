package soak

import (
	"encoding/binary"

	"roced.io/roced/qp"
)

// afterRest checks the invariants of an idle pair.
func (w *world) afterRest() {
	for _, f := range w.flows {
		st := f.from.qp.State()
		if !f.failed && st != qp.RTS || f.failed && st != qp.Err {
			w.p.Fatalf("%v is in state %v", f.from, st)
		}
		if n := f.from.qp.SQ.Outstanding(); n != 0 {
			w.p.Fatalf("%v: %d places of the send queue are not given back", f.from, n)
		}
		for e, stream := range f.streams {
			w.checkDelivery(f, e, stream)
		}
	}
	for _, n := range []int{0, 1} {
		for _, e := range w.node(n).Events {
			switch e.Type {
			case qp.EventCommEst, qp.EventSQDrained, qp.EventPortActive, qp.EventPortErr, qp.EventQPLastWQE:
			default:
				w.p.Fatalf("event %d", e.Type)
			}
		}
	}
}

// checkDelivery compares received with sent messages.
func (w *world) checkDelivery(f *flow, e *end, st *stream) {
	missing := 0
	for i, m := range st.msgs {
		if m.success && m.got == 0 && m.win == nil { // UC: the window may have been closed meanwhile
			missing++
		}
		if w.s.typ == qp.RC && (m.got > 1 || m.got == 1 != (i < st.pos) || m.success && m.got == 0) {
			w.p.Fatalf("%v: message %d to %v: done %v, received %d times", f.from, i, e, m.success, m.got)
		}
	}
	if missing > 0 && !w.s.loses() && !w.s.disorders() && w.s.late == 0 && !w.s.cold && !e.recvs.short() {
		w.p.Fatalf("%v: %d messages to %v have not arrived, and nothing was lost", f.from, missing, e)
	}
}

// short reports whether messages may have arrived without a posted request.
func (r *recvs) short() bool {
	return r.w.s.depth < len(r.slots)
}

// verify compares memory and completions at the end of a run.
func (w *world) verify() {
	for _, f := range w.flows {
		if f.known != f.posted || f.from.qp.SQ.Outstanding() != 0 {
			w.p.Fatalf("%v: %d completions known of %d posted, %d outstanding", f.from, f.known, f.posted, f.from.qp.SQ.Outstanding())
		}
		f.settleWord()
	}
	for _, r := range w.recvs {
		if left := r.queue.Len(); r.known+left != r.posted || left > 0 && r.srq == nil {
			w.p.Fatalf("%d receive requests posted, %d completed, %d left", r.posted, r.known, left)
		}
		if err := r.mem.check(); err != nil {
			w.p.Fatalf("receive buffers: %v", err)
		}
	}
	for side, ends := range w.ends {
		for _, e := range ends {
			if err := e.mem.check(); err != nil {
				w.p.Fatalf("%v: %v", e, err)
			}
		}
		w.checkShared(side)
	}
}

// checkShared compares the sum of the additions.
func (w *world) checkShared(side int) {
	sum := binary.NativeEndian.Uint64(w.shared[side].B[w.sharedWord[side]:])
	least, most := uint64(0), uint64(0)
	for _, f := range w.flows {
		for _, m := range f.msgs[:f.posted] {
			if m.atomic.shared && m.to.side == side {
				most++
				if m.success {
					least++
				}
			}
		}
	}
	if sum < least || sum > most {
		w.p.Fatalf("%d additions, %d of them complete, make %d", most, least, sum)
	}
	for v := range w.found[side] {
		if v >= sum {
			w.p.Fatalf("an addition has found %d of %d", v, sum)
		}
	}
}

// sum gathers the counters of the run.
func (w *world) sum() {
	c := &w.count
	c.seeds, c.frames, c.cut = 1, w.p.Frames(), w.wire.lost
	c.services[w.s.typ]++
	for _, r := range w.wire.eng.RuleStats() {
		c.faults[r.Rule.Action] += r.Hit
	}
	for side := range 2 {
		n := w.node(side)
		c.retransmitted += n.Counter("retransmitted_packets")
		c.rnr += n.Counter("rcvd_rnr_err")
		c.timeouts += n.Counter("local_ack_timeout_err")
		c.implied += n.Counter("implied_nak_seq_err")
	}
}
