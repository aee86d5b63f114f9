package flor

import (
	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// Host is what its engine drives.
var _ flor.NIC = (*Host)(nil)

func (h *Host) end(num flor.QPN) *end { return h.ends[num-1] }

// Room implements flor.NIC.
func (h *Host) Room(num flor.QPN) bool { return len(h.end(num).posted) < queueDepth }

// Post implements flor.NIC.
func (h *Host) Post(num flor.QPN, w *flor.WQE) {
	e, p := h.end(num), h.take()
	p.id = w.ID
	x := qp.SendWQE{WRID: w.ID, Opcode: qp.WRWriteImm, Imm: uint32(w.Imm), RemoteVA: w.RemoteAddr, RKey: w.RemoteKey}
	p.sges = [2]qp.SGE{{Addr: p.header.Addr}, {Addr: w.Data.Addr, Length: uint32(len(w.Data.Data))}}
	x.SGEs = p.sges[1:]
	if w.Op == flor.OpSend {
		x.Opcode = qp.WRSend
		p.sges[0].Length = uint32(copy(p.header.Data, w.Header[:]))
		x.SGEs = p.sges[:]
		if p.sges[1].Length == 0 {
			x.SGEs = p.sges[:1]
		}
	}
	x.Length = p.sges[0].Length + p.sges[1].Length
	e.post(p, x)
}

// post posts p on the queue pair.
func (e *end) post(p *posted, x qp.SendWQE) {
	p.at = e.h.f.k.Engine().Now()
	e.posted = append(e.posted, p)
	if e.q == nil {
		e.flush()
		return
	}
	e.q.Post(x)
}

// take returns an unused posted.
func (h *Host) take() *posted {
	if last := len(h.spare) - 1; last >= 0 {
		p := h.spare[last]
		h.spare = h.spare[:last]
		p.ack = false
		return p
	}
	p := &posted{}
	var ok bool
	if p.header, ok = h.Memory(flor.MaxAckLen); !ok {
		panic("sim/flor: a host has too much posted")
	}
	return p
}

// PostRecv implements flor.NIC.
func (h *Host) PostRecv(i int) {
	h.recvs.Post(nic.RecvWR{ID: uint64(i), Addr: uint64(i * h.f.buffer()), Length: uint32(h.f.buffer())})
}

// Expose implements flor.NIC. All memory is exposed.
func (h *Host) Expose(b flor.Buffer) (addr uint64, key uint32) { return b.Addr, 1 }

// Revoke implements flor.NIC.
func (h *Host) Revoke(uint32) {}

// Time implements flor.NIC. The NIC's clock is that of the simulation.
func (h *Host) Time() mono.Time { return h.Now() }

// Disconnect implements flor.NIC.
func (h *Host) Disconnect(num flor.QPN, again bool) {
	e := h.end(num)
	e.close()
	if again && !e.timer.Pending() && !e.peer.timer.Pending() {
		eng := h.f.k.Engine()
		eng.Set(&e.timer, eng.Now()+h.f.cfg.Reconnect)
	}
	if !again {
		h.f.k.Engine().Stop(&e.timer)
		h.f.k.Engine().Stop(&e.peer.timer)
	}
}

// close closes the queue pair and completes outstanding work requests in error.
func (e *end) close() {
	if e.q != nil {
		e.q.Close()
		e.q = nil
	}
	e.flush()
}

// flush completes outstanding work requests in error, at the same instant.
func (e *end) flush() {
	h := e.h
	for _, p := range e.posted {
		if !p.ack {
			h.failed = append(h.failed, failure{e.num, p.id})
		}
		h.spare = append(h.spare, p)
	}
	e.posted = e.posted[:0]
	if eng := h.f.k.Engine(); len(h.failed) > 0 && !h.failing.Pending() {
		eng.Set(&h.failing, eng.Now())
	}
}

// Handle implements engine.Handler: it reconnects the queue pair.
func (e *end) Handle(engine.Time, int32) {
	ends := [...]*end{e, e.peer}
	for _, x := range ends {
		x.close()
		x.h.fail()
	}
	if err := e.connect(); err != nil {
		panic("sim/flor: a queue pair cannot be connected again: " + err.Error())
	}
	for _, x := range ends {
		x.h.Connected(x.h.Now(), x.num)
		x.h.rearm()
	}
}

// Timers of a host.
const (
	whatTimeout int32 = iota
	whatFailed
)

// Handle implements engine.Handler.
func (h *Host) Handle(_ engine.Time, what int32) {
	if what == whatFailed {
		h.fail()
	} else {
		h.OnTimeout(h.Now())
	}
	h.rearm()
}

// fail delivers the flushed work requests to the engine.
func (h *Host) fail() {
	for len(h.failed) > 0 {
		f := h.failed[0]
		h.failed = h.failed[1:]
		h.Complete(h.Now(), &flor.Completion{QP: f.num, Kind: flor.Failed, ID: f.id})
	}
}

// rearm sets the timer to the engine's next timeout.
func (h *Host) rearm() {
	at, eng := engine.FromMono(h.NextTimeout()), h.f.k.Engine()
	if at == engine.Never {
		eng.Stop(&h.timer)
	} else if !h.timer.Pending() || h.timer.At() != at {
		eng.Set(&h.timer, max(at, eng.Now()))
	}
}

// Completed implements nic.User for data.
func (f *Fabric) Completed(now engine.Time, q *nic.QP, c qp.CQE, receive bool) {
	e := q.Ctx.(*end)
	e.h.came(e.num, arrival{at: now, q: q, cqe: c, receive: receive})
}

// data processes a completion of data.
func (h *Host) data(a *arrival) {
	e, c := a.q.Ctx.(*end), &a.cqe
	cp := flor.Completion{QP: e.num, ID: c.WRID, At: a.at.Mono()}
	switch {
	case a.receive && c.Status != qp.StatusSuccess:
		h.PostRecv(int(c.WRID))
		return
	case e.q != a.q && !a.receive:
		return // already flushed
	case a.receive && c.Opcode == qp.WCRecv && c.Flags&qp.WCWithImm != 0:
		h.sharedAck(e, a)
		return
	case a.receive:
		cp.Kind, cp.Buf, cp.Bytes, cp.Imm = flor.Received, int(c.WRID), c.ByteLen, flor.Imm(c.Imm)
		if c.Opcode == qp.WCRecvWithImm {
			cp.Kind = flor.Written
		}
	default:
		p := e.posted[0]
		h.spare = append(h.spare, p)
		e.posted = append(e.posted[:0], e.posted[1:]...)
		if c.Status != qp.StatusSuccess {
			cp.Kind = flor.Failed
		}
		h.noteSwitch(p, cp.Kind)
		if p.ack {
			return
		}
	}
	h.Complete(h.Now(), &cp)
}

// noteSwitch measures how long no request completes after an error (Flor 6).
func (h *Host) noteSwitch(p *posted, k flor.CompletionKind) {
	now := h.f.k.Engine().Now()
	switch {
	case k == flor.Failed && h.broken == 0:
		h.broken = now
	case k == flor.Sent && h.broken > 0 && p.at >= h.broken:
		h.f.Switched = append(h.f.Switched, now-h.broken)
		h.broken = 0
	}
}
