package soak

import (
	"encoding/binary"
	"fmt"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// end is a queue pair of the run with its memory.
type end struct {
	w       *world
	side    int
	index   int
	qp      *nictest.QP
	peer    *end // the connected peer; UD: the end with the same number
	mem     arena
	recvs   *recvs
	out     *flow
	windows []*window
	ah      uint32
	flushes int // receive requests flushed
}

// flow is the messages that one queue pair sends.
type flow struct {
	from   *end
	msgs   []*message
	posted int
	known  int // the messages before it are known to be complete
	failed bool
	status qp.Status // of the message that failed
	nextAt mono.Time

	// drainAt is the number of posted messages at which the queue is drained and restarted, 0 for never. Draining
	// waits for that number.
	drainAt  int
	draining bool
	drained  int // events seen
	resumeAt mono.Time
	retired  int // retired requests at the time of the event

	word  place // for atomics, in the peer's memory
	value uint64

	// streams are the messages that consume a receive request, by receiving end, and the progress of each.
	streams map[*end]*stream
}

type stream struct {
	msgs []*message
	pos  int
	got  int
}

// String names the end.
func (e *end) String() string {
	return fmt.Sprintf("%s%d (qp %#06x)", e.qp.Node.Name, e.index, uint32(e.qp.Num()))
}

func (f *flow) to() *end { return f.from.peer }

// done reports whether nothing remains to post or to wait for.
func (f *flow) done() bool {
	if f.failed {
		return f.known == f.posted
	}
	return f.known == len(f.msgs) && !f.draining
}

// post posts as many messages as the queue takes, and returns the time of its next call. A client can rely on a place
// only after it has seen the completion.
func (f *flow) post(now mono.Time) mono.Time {
	w, before := f.from.w, f.posted
	defer func() {
		if f.posted > before {
			f.from.qp.Doorbell()
		}
	}()
	for (!f.failed || w.ending) && now >= f.nextAt && f.posted < len(f.msgs) && f.posted-f.known < w.s.depth {
		m := f.msgs[f.posted]
		if !f.ready(m) {
			return now.Add(20_000)
		}
		if f.posted-f.known == w.s.depth-1 || f.posted == len(f.msgs)-1 {
			m.flags |= qp.SendSignaled
		}
		if err := f.from.qp.SQ.Post(f.request(f.posted, m)); err != nil {
			w.p.Fatalf("%v: the queue is full with %d known of %d posted", f.from, f.known, f.posted)
		}
		w.count.posted[m.op]++
		f.posted++
		w.acts++
		if w.s.pause > 0 && chance(w.rng, 50) {
			f.nextAt = now.Add(w.s.pause)
		}
	}
	if f.nextAt > now && (!f.failed || w.ending) && f.posted < len(f.msgs) {
		return f.nextAt
	}
	return mono.Never
}

// drain takes the queue pair to SQD at its time. After the drained event the queue pair stays idle for a while, then
// it returns to RTS.
func (f *flow) drain(now mono.Time) mono.Time {
	w, q := f.from.w, f.from.qp
	if f.failed {
		f.draining, f.drainAt = false, 0
		return mono.Never
	}
	if f.drainAt > 0 && f.posted >= f.drainAt && q.State() == qp.RTS {
		f.drainAt, f.draining, f.resumeAt = 0, true, mono.Never
		w.acts++
		q.Modify(qp.Attr{State: qp.SQD, EnSQDNotify: true}, qp.AttrEnSQDNotify, nil)
	}
	if !f.draining || q.State() != qp.SQD {
		return mono.Never
	}
	if f.resumeAt == mono.Never {
		if n := f.drainEvents(); n > f.drained {
			f.drained, f.resumeAt = n, now.Add(time.Duration(w.rng.IntN(200_000)))
			f.retired = f.posted - q.SQ.Outstanding()
		}
		return f.resumeAt
	}
	if n := f.posted - q.SQ.Outstanding(); n != f.retired {
		w.p.Fatalf("%v: %d requests were done when the queue had drained, and %d later", f.from, f.retired, n)
	}
	if now >= f.resumeAt {
		f.draining = false
		w.acts++
		w.count.drained++
		q.Modify(qp.Attr{State: qp.RTS}, 0, nil)
	}
	return f.resumeAt
}

// drainEvents counts the events of a drained queue.
func (f *flow) drainEvents() (n int) {
	for _, v := range f.from.qp.Node.Events {
		if v.QP == f.from.qp && v.Type == qp.EventSQDrained {
			n++
		}
	}
	return n
}

// ready chooses the window of a message; false means that the message has to wait.
func (f *flow) ready(m *message) bool {
	switch {
	case f.early(m):
		return false
	case m.op == qp.WRBindMW:
		return f.bind(m)
	case m.op == qp.WRLocalInv:
		return f.unbind(m)
	case m.op == qp.WRSendWithInv:
		f.invalidate(m)
	case f.from.w.s.typ != qp.UD && (m.writes() || m.op == qp.WRRead || m.isAtomic() && !m.atomic.shared):
		if win := f.to().open(); win != nil && chance(f.from.w.rng, 60) {
			m.win = win
			win.uses++
			m.flags |= qp.SendSignaled
		}
	}
	return true
}

// early reports whether no receive is there for m, although the transport has no RNR NAKs: clients of MRC must not send it.
func (f *flow) early(m *message) bool {
	if w := f.from.w; !m.receives() || w.s.transport != "mrc" || w.ending {
		return false
	}
	sent := 0
	for _, before := range f.msgs[:f.posted] {
		if before.receives() {
			sent++
		}
	}
	return sent >= m.to.recvs.posted
}

// complete processes a completion of the send queue.
func (f *flow) complete(c qp.CQE) {
	w := f.from.w
	id := int(c.WRID)
	if id < f.known || id >= f.posted {
		w.p.Fatalf("%v: completion of request %d; %d to %d are outstanding: %+v", f.from, id, f.known, f.posted, c)
	}
	for f.known < id {
		m := f.msgs[f.known]
		if f.failed || m.flags&qp.SendSignaled != 0 || w.s.sigAll {
			w.p.Fatalf("%v: request %d completed before %d, which is signaled", f.from, id, f.known)
		}
		f.succeed(m)
	}
	m := f.msgs[id]
	switch {
	case f.failed && c.Status != qp.StatusWRFlushErr:
		w.p.Fatalf("%v: request %d after a failed one completed as %+v", f.from, id, c)
	case c.Status == qp.StatusSuccess:
		f.checkSuccess(id, m, c)
		f.succeed(m)
	default:
		f.fail(id, m, c)
	}
}

// checkSuccess checks a completion and its data.
func (f *flow) checkSuccess(id int, m *message, c qp.CQE) {
	w := f.from.w
	if m.flags&qp.SendSignaled == 0 && !w.s.sigAll {
		w.p.Fatalf("%v: request %d is not signaled and completed", f.from, id)
	}
	want := map[qp.WROpcode]qp.WCOpcode{
		qp.WRSend: qp.WCSend, qp.WRSendImm: qp.WCSend, qp.WRSendWithInv: qp.WCSend, qp.WRWrite: qp.WCWrite,
		qp.WRWriteImm: qp.WCWrite, qp.WRRead: qp.WCRead, qp.WRCmpSwap: qp.WCCmpSwap, qp.WRFetchAdd: qp.WCFetchAdd,
		qp.WRBindMW: qp.WCBindMW, qp.WRLocalInv: qp.WCLocalInv,
	}[m.op]
	length := uint32(0)
	if m.op == qp.WRRead || m.isAtomic() {
		length = uint32(m.size)
	}
	if c.Opcode != want || c.QPN != uint32(f.from.qp.Num()) || c.ByteLen != length {
		w.p.Fatalf("%v: request %d completed as %+v, want opcode %d, %d bytes", f.from, id, c, want, length)
	}
}

// succeed records that the next message is complete: its effects are in memory.
func (f *flow) succeed(m *message) {
	w := f.from.w
	m.success = true
	f.known++
	w.count.done++
	w.count.bytes += m.size
	switch {
	case m.op == qp.WRRead:
		f.result(m, m.data)
	case m.isAtomic():
		f.atomicResult(m)
	case m.writes() && w.s.typ == qp.RC:
		m.to.mem.expect(list{m.remote}, m.data)
		if !m.to.mem.holds(list{m.remote}, m.data) {
			w.p.Fatalf("%v: write of %d bytes is done and its data are not there", f.from, m.size)
		}
	case m.writes():
		m.to.mem.allow(list{m.remote}, m.data)
	case m.op == qp.WRBindMW:
		m.win.opened()
	case m.op == qp.WRLocalInv:
		m.win.closed()
	}
	if m.win != nil && !m.isLocal() && m.op != qp.WRSendWithInv {
		m.win.uses--
	}
}

// result checks the result of a READ or an atomic.
func (f *flow) result(m *message, data []byte) {
	f.from.mem.expect(m.local, data)
	if !f.from.mem.holds(m.local, data) {
		f.from.w.p.Fatalf("%v: %d bytes read by operation %d differ", f.from, m.size, m.op)
	}
}

// fail records an error. All later requests are flushed; their effects are unknown.
func (f *flow) fail(id int, m *message, c qp.CQE) {
	w := f.from.w
	if !f.failed {
		f.failed, f.status = true, c.Status
		w.count.status[c.Status]++
		if !f.mayFail(c.Status) {
			w.p.Fatalf("%v: request %d (operation %d, %d bytes) failed with status %d", f.from, id, m.op, m.size, c.Status)
		}
	}
	f.known++
	w.count.flushed++
	switch {
	case m.op == qp.WRRead:
		f.from.mem.allow(m.local, m.data)
	case m.isAtomic():
		f.from.mem.ignore(m.local)
	case m.writes():
		m.to.mem.allow(list{m.remote}, m.data)
	}
}

// mayFail reports whether the trial explains an error.
func (f *flow) mayFail(status qp.Status) bool {
	w := f.from.w
	switch status {
	case qp.StatusRetryExcErr:
		return w.s.typ == qp.RC && !w.s.mustSucceed()
	case qp.StatusRNRRetryExcErr:
		return w.s.typ == qp.RC && w.s.rnr != 7
	case qp.StatusWRFlushErr:
		return w.ending
	}
	return false
}

// atomicResult checks the value that an atomic found and the value that it stored.
func (f *flow) atomicResult(m *message) {
	w := f.from.w
	if m.atomic.shared {
		orig := binary.NativeEndian.Uint64(f.from.mem.gather(m.local, 8))
		if w.found[m.to.side][orig] {
			w.p.Fatalf("%v: two additions have found %d", f.from, orig)
		}
		w.found[m.to.side][orig] = true
		f.from.mem.ignore(m.local)
		return
	}
	f.result(m, binary.NativeEndian.AppendUint64(nil, m.atomic.orig))
	m.to.mem.expect(list{m.remote}, binary.NativeEndian.AppendUint64(nil, m.atomic.after))
}

// settleWord determines how many atomics took effect if not all completed.
func (f *flow) settleWord() {
	to := &f.to().mem
	for _, m := range f.msgs[:f.posted] {
		v := binary.NativeEndian.AppendUint64(nil, m.atomic.after)
		if m.isAtomic() && !m.atomic.shared && !m.success && to.holds(list{f.word}, v) {
			to.expect(list{f.word}, v)
		}
	}
}
