package flor

import (
	"context"

	"roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// pair is a data queue pair of a connection.
type pair struct {
	d       *Device
	c       *Conn
	slot    int
	q       *verbs.QP
	num     uint32
	headers *Message // memory for the headers of the posted SENDs
	posted  []posted // a ring of posted work requests
	head    uint32
	tail    uint32
	state   pairState
	going   bool // being destroyed
	held    []engine.Completion
	peerQPN uint32
	joinState
}

// posted is a work request that the NIC holds.
type posted struct {
	id  uint64
	ack bool // an acknowledgement, unknown to the engine
}

type pairState uint8

const (
	pairNew     pairState = iota // not in the engine yet
	pairUp                       // sends and receives
	pairLeft                     // out of use; waits for posted work requests
	pairReset                    // on the way to INIT
	pairReady                    // in INIT; waits for the peer
	pairJoining                  // on the way to RTS
	pairGone
)

// newPair creates a queue pair.
func (d *Device) newPair(slot int) (*pair, error) {
	attr := verbs.QPInitAttr{Type: verbs.UC, SendCQ: d.sendCQ, RecvCQ: d.recvCQ, SRQ: d.srq, MaxSendWR: 2 * d.cfg.Depth, MaxSendSGE: 2}
	if d.cfg.Engine.Hardware {
		attr.Type = verbs.RC
	}
	ring := d.cfg.Depth
	if d.cfg.SharedAcks {
		attr.MaxInline, ring = engine.MaxAckLen, 2*ring
	}
	q, err := d.pd.CreateQP(attr)
	if err != nil {
		return nil, err
	}
	p := &pair{d: d, slot: slot, q: q, num: q.Num(), posted: make([]posted, ring)}
	p.psn = randomPSN()
	if p.headers, err = d.header.take(context.Background(), d.quit, ring*engine.HeaderLen); err != nil {
		_ = q.Destroy()
		return nil, err
	}
	return p, nil
}

// outstanding returns the number of posted work requests.
func (p *pair) outstanding() int { return int(p.tail - p.head) }

// nic implements the engine's NIC on a Device.
type nic Device

var _ engine.NIC = (*nic)(nil)

// Room implements engine.NIC.
func (n *nic) Room(q engine.QPN) bool {
	return n.pairs[uint32(q)].outstanding() < n.cfg.Depth
}

// Post implements engine.NIC.
func (n *nic) Post(q engine.QPN, w *engine.WQE) {
	d := (*Device)(n)
	p := d.pairs[uint32(q)]
	at := int(p.tail) % len(p.posted)
	p.posted[at] = posted{id: w.ID}
	p.tail++
	wr, sges := &d.sendWR, d.sges[:0]
	*wr = verbs.SendWR{WRID: w.ID, Opcode: verbs.OpWriteImm, Flags: verbs.SendSignaled, Imm: uint32(w.Imm), RemoteAddr: w.RemoteAddr, RKey: w.RemoteKey}
	if w.Op == engine.OpSend {
		wr.Opcode = verbs.OpSend
		offset := at * engine.HeaderLen
		copy(p.headers.Data[offset:], w.Header[:])
		sges = append(sges, verbs.SGE{Addr: p.headers.base + uint64(offset), Length: engine.HeaderLen, LKey: p.headers.lkey})
	}
	if len(w.Data.Data) > 0 {
		sges = append(sges, verbs.SGE{Addr: w.Data.Addr, Length: uint32(len(w.Data.Data)), LKey: w.Data.Key})
	}
	wr.SGEs = sges
	if p.c.failed != 0 && p.slot != p.c.failedSlot {
		d.ctr.Failover, p.c.failed = d.now().Sub(p.c.failed), 0
	}
	if p.state != pairUp || p.q.PostSend(wr) != nil {
		// The NIC completes neither this work request nor later ones.
		p.tail--
		d.failed = append(d.failed, failure{p, w.ID})
	}
}

// PostRecv implements engine.NIC.
func (n *nic) PostRecv(i int) {
	d := (*Device)(n)
	b := &d.cfg.Engine.Pool[i]
	d.recvSGE[0] = verbs.SGE{Addr: b.Addr, Length: uint32(len(b.Data)), LKey: b.Key}
	d.recvWR = verbs.RecvWR{WRID: uint64(i), SGEs: d.recvSGE[:]}
	if err := d.srq.PostRecv(&d.recvWR); err != nil && d.err == nil {
		d.err = err // the next poll reports the failure, too
	}
}

// Time implements engine.NIC.
func (n *nic) Time() mono.Time { return (*Device)(n).now() }

// Disconnect implements engine.NIC. The engine ignores later receives of the queue pair, so the NIC may learn of it
// late.
func (n *nic) Disconnect(q engine.QPN, again bool) {
	d := (*Device)(n)
	p := d.pairs[uint32(q)]
	if p == nil {
		return
	}
	p.going = p.going || !again
	switch p.state {
	case pairUp:
		p.state = pairLeft
		p.target = max(p.target, p.epoch+1)
		if d.lost {
			p.abandon()
			return
		}
		d.worker.do(func() {
			_ = p.q.Modify(verbs.QPAttr{State: verbs.QPErr}, verbs.AttrState) // fails if it is in ERR already
			d.enter()
			p.flushed = true
			p.drained()
			d.leave()
			d.kick() // flushed completions are present, and possibly no event wakes the loop
		})
	case pairReady, pairJoining:
		if p.going && p.state == pairReady {
			p.remove()
		}
	}
}

// completed reports a completed or failed work request to the engine.
func (p *pair) completed(now mono.Time, id uint64, kind engine.CompletionKind, at mono.Time) {
	p.d.eng.Complete(now, &engine.Completion{QP: engine.QPN(p.num), Kind: kind, ID: id, At: at})
	p.drained()
}

// sendCompleted processes a completion of a data queue pair.
func (d *Device) sendCompleted(now mono.Time, wc *verbs.WC) {
	p := d.pairs[wc.QPN]
	if p == nil || p.outstanding() == 0 { // the completion of a removed queue pair
		return
	}
	w := p.posted[int(p.head)%len(p.posted)]
	p.head++
	kind := engine.Sent
	if wc.Status != verbs.StatusSuccess {
		kind = engine.Failed
		if p.state == pairUp {
			p.c.failed, p.c.failedSlot = now, p.slot
			d.takeReceived()
		}
	}
	if w.ack {
		p.drained()
		return
	}
	p.completed(now, w.id, kind, mono.Time(wc.Time))
}

// received processes a completion of the shared receive queue.
func (d *Device) received(now mono.Time, wc *verbs.WC) {
	p := d.pairs[wc.QPN]
	if wc.Status != verbs.StatusSuccess {
		(*nic)(d).PostRecv(int(wc.WRID))
		if p != nil && p.state == pairUp {
			d.eng.Disconnected(now, engine.QPN(p.num))
		}
		return
	}
	if d.cfg.SharedAcks && wc.Opcode == verbs.WCRecv && wc.Flags&verbs.WCWithImm != 0 {
		d.sharedAck(now, p, wc)
		return
	}
	cp := engine.Completion{QP: engine.QPN(wc.QPN), Kind: engine.Received, Buf: int(wc.WRID), Bytes: wc.ByteLen, Imm: engine.Imm(wc.Imm), At: mono.Time(wc.Time)}
	if wc.Opcode == verbs.WCRecvWithImm {
		cp.Kind = engine.Written
	}
	switch {
	case p == nil || p.state != pairUp && p.state != pairJoining:
		(*nic)(d).PostRecv(cp.Buf)
	case p.state == pairJoining: // the peer has connected first
		p.held = append(p.held, cp)
	default:
		d.eng.Complete(now, &cp)
	}
}

// abandon completes all posted work requests after the NIC is lost.
func (p *pair) abandon() {
	for ; p.outstanding() > 0; p.head++ {
		if w := p.posted[int(p.head)%len(p.posted)]; !w.ack {
			p.d.failed = append(p.d.failed, failure{p, w.id})
		}
	}
	p.remove()
}

// remove removes the queue pair and destroys it in the background.
func (p *pair) remove() {
	if p.state == pairGone {
		return
	}
	p.state = pairGone
	d := p.d
	for i := range p.held {
		(*nic)(d).PostRecv(p.held[i].Buf)
	}
	p.held = nil
	delete(d.pairs, p.num)
	delete(d.joining, p)
	d.worker.do(func() {
		p.destroy()
		p.c.left.Done()
	})
}

// destroy destroys the queue pair.
func (p *pair) destroy() {
	_ = p.q.Destroy() // if this fails, it ends with the device
	p.headers.Release()
}
