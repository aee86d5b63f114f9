package flor

import (
	flor "roced.io/roced/flor/engine"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/qp"
)

// ackUser is a host as the user of its queue pair for acknowledgements.
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
		h.sent[i].header, _ = h.Memory(ackBuffer)
	}
	return nil
}

func (h *Host) postAckRecv(i uint64) {
	h.acks.PostRecv(nic.RecvWR{ID: i, Addr: h.arrived.Addr + i*ackBuffer, Length: ackBuffer})
}

// PostAck implements flor.NIC.
func (h *Host) PostAck(c *flor.Conn, b []byte) {
	h.thread(c.Primary()).spent += h.f.cfg.Software.Ack
	if h.f.cfg.SharedAcks {
		h.postShared(c, b)
		return
	}
	if h.waiting == ackSlots {
		return
	}
	p, to := &h.sent[h.acked%ackSlots], c.Ctx.(*Host)
	h.acked++
	h.waiting++
	p.sges[0] = qp.SGE{Addr: p.header.Addr, Length: uint32(copy(p.header.Data, b))}
	h.acks.Post(qp.SendWQE{Opcode: qp.WRSend, Length: p.sges[0].Length, SGEs: p.sges[:1], AH: to.acks.AddressHandle(),
		RemoteQPN: uint32(to.acks.Num()), RemoteQKey: ackQKey})
}

// postShared sends an acknowledgement behind data.
func (h *Host) postShared(c *flor.Conn, b []byte) {
	e, p := h.end(c.Primary()), h.take()
	p.ack = true
	p.sges[0] = qp.SGE{Addr: p.header.Addr, Length: uint32(copy(p.header.Data, b))}
	e.post(p, qp.SendWQE{Opcode: qp.WRSendImm, Length: p.sges[0].Length, SGEs: p.sges[:1]})
}

// sharedAck processes an acknowledgement that arrived on a data queue pair, in a buffer of the pool.
func (h *Host) sharedAck(e *end, a *arrival) {
	buf := int(a.cqe.WRID)
	h.OnAck(h.Now(), uint64(e.peer.h.acks.Num()), a.at.Mono(), h.memory[buf*h.f.buffer():][:a.cqe.ByteLen])
	h.PostRecv(buf)
}

// Completed implements nic.User for acknowledgements.
func (u *ackUser) Completed(now engine.Time, q *nic.QP, c qp.CQE, receive bool) {
	h := (*Host)(u)
	if !receive {
		h.waiting--
		return
	}
	var a flor.Ack
	if a.Parse(h.arrivedAck(&c)) != nil {
		h.postAckRecv(c.WRID)
		return
	}
	h.came(flor.QPN(a.QPN), arrival{at: now, q: q, cqe: c, receive: true, ack: true})
}

// arrivedAck returns the datagram of a completion, without its GRH.
func (h *Host) arrivedAck(c *qp.CQE) []byte {
	at := int(c.WRID) * ackBuffer
	if c.Status != qp.StatusSuccess || c.ByteLen < grhLen {
		return nil
	}
	return h.arrived.Data[at+grhLen : at+int(c.ByteLen)]
}

// ack processes the completion of an acknowledgement.
func (h *Host) ack(a *arrival) {
	h.OnAck(h.Now(), uint64(a.cqe.SrcQP), a.at.Mono(), h.arrivedAck(&a.cqe))
	h.postAckRecv(a.cqe.WRID)
}
