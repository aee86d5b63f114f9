package flor

import (
	flor "roced/flor/engine"
	"roced/mono"
	"roced/qp"
	"roced/sim/engine"
	"roced/sim/nic"
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
	p.sges[0] = qp.SGE{Addr: w.Data.Addr, Length: uint32(len(w.Data.Data))}
	if w.Op == flor.OpSend {
		x.Opcode = qp.WRSend
		copy(p.stage.Data, w.Header[:])
		copy(p.stage.Data[flor.HeaderLen:], w.Data.Data)
		p.sges[0] = qp.SGE{Addr: p.stage.Addr, Length: flor.HeaderLen + uint32(len(w.Data.Data))}
	}
	x.Length, x.SGEs = p.sges[0].Length, p.sges[:]
	e.posted = append(e.posted, p)
	if e.q == nil {
		e.flush()
		return
	}
	e.q.Post(x)
}

// take returns a place for a work request.
func (h *Host) take() *posted {
	if last := len(h.spare) - 1; last >= 0 {
		p := h.spare[last]
		h.spare = h.spare[:last]
		return p
	}
	p := &posted{}
	var ok bool
	if p.stage, ok = h.Memory(flor.HeaderLen + int(h.f.cfg.Engine.MaxSend)); !ok {
		panic("sim/flor: Config.Memory is too small for what is posted")
	}
	return p
}

// PostRecv implements flor.NIC.
func (h *Host) PostRecv(i int) {
	buffer := uint32(flor.HeaderLen) + h.f.cfg.Engine.MaxSend
	h.recvs.Post(nic.RecvWR{ID: uint64(i), Addr: uint64(i) * uint64(buffer), Length: buffer})
}

// Expose implements flor.NIC: everything is exposed.
func (h *Host) Expose(b flor.Buffer) (addr uint64, key uint32) { return b.Addr, 1 }

// Revoke implements flor.NIC.
func (h *Host) Revoke(uint32) {}

// Time implements flor.NIC: the NIC's clock is that of the simulation.
func (h *Host) Time() mono.Time { return h.Now() }

// Disconnect implements flor.NIC.
func (h *Host) Disconnect(num flor.QPN, again bool) {
	e := h.end(num)
	e.close()
	e.again = again
	if again && !e.timer.Pending() && !e.peer.timer.Pending() {
		eng := h.f.k.Engine()
		eng.Set(&e.timer, eng.Now()+h.f.cfg.Reconnect)
	}
	if !again {
		h.f.k.Engine().Stop(&e.timer)
		h.f.k.Engine().Stop(&e.peer.timer)
	}
}

// close takes the queue pair away, and completes what it has not.
func (e *end) close() {
	if e.q != nil {
		e.q.Close()
		e.q = nil
	}
	e.flush()
}

// flush completes what has been posted in error, soon.
func (e *end) flush() {
	h := e.h
	for _, p := range e.posted {
		h.failed = append(h.failed, failure{e.num, p.id})
		h.spare = append(h.spare, p)
	}
	e.posted = e.posted[:0]
	if eng := h.f.k.Engine(); len(h.failed) > 0 && !h.failing.Pending() {
		eng.Set(&h.failing, eng.Now())
	}
}

// Handle implements engine.Handler: the queue pair is connected anew.
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

// What the timers of a host are for.
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

// fail tells the engine what was flushed.
func (h *Host) fail() {
	for len(h.failed) > 0 {
		f := h.failed[0]
		h.failed = h.failed[1:]
		h.Complete(h.Now(), &flor.Completion{QP: f.num, Kind: flor.Failed, ID: f.id})
	}
}

// rearm sets the timer to when the engine wants to be called.
func (h *Host) rearm() {
	at, eng := engine.FromMono(h.NextTimeout()), h.f.k.Engine()
	if at == engine.Never {
		eng.Stop(&h.timer)
	} else if !h.timer.Pending() || h.timer.At() != at {
		eng.Set(&h.timer, max(at, eng.Now()))
	}
}

// Completed implements nic.User for data.
func (f *Fabric) Completed(_ engine.Time, q *nic.QP, c qp.CQE, receive bool) {
	e := q.Ctx.(*end)
	h := e.h
	now := h.Now()
	cp := flor.Completion{QP: e.num, ID: c.WRID, At: now}
	switch {
	case receive && c.Status != qp.StatusSuccess:
		h.PostRecv(int(c.WRID))
		return
	case e.q != q && !receive:
		return // it has been flushed
	case receive:
		cp.Kind, cp.Buf, cp.Bytes, cp.Imm = flor.Received, int(c.WRID), c.ByteLen, flor.Imm(c.Imm)
		if c.Opcode == qp.WCRecvWithImm {
			cp.Kind = flor.Written
		}
	default:
		if c.Status != qp.StatusSuccess {
			cp.Kind = flor.Failed
		}
		h.spare = append(h.spare, e.posted[0])
		e.posted = append(e.posted[:0], e.posted[1:]...)
	}
	h.Complete(now, &cp)
	h.rearm()
}

// ackUser is a host to its queue pair for acknowledgements.
type ackUser Host

// openAcks makes the queue pair for acknowledgements.
func (h *Host) openAcks() error {
	q := h.f.cfg.QP
	q.User, q.SRQ, q.Traffic, q.Class, q.QKey = (*ackUser)(h), [2]*nic.Receives{}, h.f.cfg.AckTraffic, ackClass, ackQKey
	q.Memory = [2][]byte{h.memory, h.memory}
	var err error
	if h.acks, err = h.f.k.Datagrams(h.num, q); err != nil {
		return err
	}
	h.arrived, _ = h.Memory(acksPosted * ackBuffer)
	for i := range acksPosted {
		h.postAckRecv(uint64(i))
	}
	for i := range h.sent {
		h.sent[i].stage, _ = h.Memory(ackBuffer)
	}
	return nil
}

func (h *Host) postAckRecv(i uint64) {
	h.acks.PostRecv(nic.RecvWR{ID: i, Addr: h.arrived.Addr + i*ackBuffer, Length: ackBuffer})
}

// PostAck implements flor.NIC.
func (h *Host) PostAck(c *flor.Conn, b []byte) {
	if h.waiting == ackSlots {
		return
	}
	p, to := &h.sent[h.acked%ackSlots], c.Ctx.(*Host)
	h.acked++
	h.waiting++
	p.sges[0] = qp.SGE{Addr: p.stage.Addr, Length: uint32(copy(p.stage.Data, b))}
	h.acks.Post(qp.SendWQE{Opcode: qp.WRSend, Length: p.sges[0].Length, SGEs: p.sges[:], AH: uint32(to.num),
		RemoteQPN: uint32(to.acks.Num()), RemoteQKey: ackQKey})
}

// Completed implements nic.User for acknowledgements.
func (u *ackUser) Completed(_ engine.Time, _ *nic.QP, c qp.CQE, receive bool) {
	h := (*Host)(u)
	if !receive {
		h.waiting--
		return
	}
	if c.Status == qp.StatusSuccess && c.ByteLen >= grhLen {
		at := int(c.WRID) * ackBuffer
		h.OnAck(h.Now(), uint64(c.SrcQP), h.Now(), h.arrived.Data[at+grhLen:at+int(c.ByteLen)])
	}
	h.postAckRecv(c.WRID)
	h.rearm()
}
