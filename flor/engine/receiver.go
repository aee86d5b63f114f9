package engine

import (
	"roced.io/roced/plugin/mono"
)

// receiver is the receiving half of a connection.
type receiver struct {
	taken    window     // reliable numbers of SENDs
	partials []*inbound // messages of which only some SENDs have arrived
	landings []landing  // messages by WRITE, indexed by message id
	idle     *inbound   // free list
	lent     int        // landings granted and not complete
	fresh    uint32     // units that have arrived for landings since moved
	moved    mono.Time  // time of the last sufficient progress; zero: not set
	nextImm  Imm        // the next WRITE in order, unless starts:
	starts   bool       // the next WRITE is a message's first one

	ack       Ack       // content of the next acknowledgement
	ackBytes  uint32    // bytes that it acknowledges
	arrivedAt mono.Time // T2 of its last WQE, by the NIC's clock
	ackAt     mono.Time
}

// inbound is a message of which only some SENDs have arrived. It lies in the pool buffer of the first SEND received,
// which has room for the whole message.
type inbound struct {
	mid, length uint32
	tag         uint32
	buf         int
	got         units
	next        *inbound
}

// landing is the state of a message by WRITE.
type landing struct {
	state  landingState
	mid    uint32
	length uint32
	tag    uint32
	b      Buffer
	key    uint32
	got    units
}

type landingState uint8

const (
	landingNever   landingState = iota // the slot has had no message
	landingWaits                       // waits for memory
	landingGranted                     // granted, not complete
	landingOver                        // delivered
)

// units tracks the parts of a message that have arrived.
type units struct {
	bits [MaxChunks / 64]uint64
	left uint32
}

// expect begins a message of length bytes; an empty message has one unit.
func (u *units) expect(length, unit uint32) { *u = units{left: max((length+unit-1)/unit, 1)} }

// add marks n units beginning with first as received, and returns the number of new ones.
func (u *units) add(first, n uint32) (fresh uint32) {
	for i := first; i < first+n; i++ {
		if w, m := &u.bits[i/64], uint64(1)<<(i%64); *w&m == 0 {
			*w |= m
			fresh++
		}
	}
	u.left -= fresh
	return fresh
}

func (r *receiver) init(c *Config, first Numbers) {
	r.taken = newWindow(first.RN, c.Window)
	r.landings = make([]landing, c.Writes)
	r.starts = true
	r.ackAt = mono.Never
}

// arrived processes data of the peer. It returns the buffer to the pool unless the engine needs it.
func (c *Conn) arrived(now mono.Time, cp *Completion) {
	kept := false
	if c.err == nil && c.follow(now, c.slot(cp.QP)) {
		if cp.Kind == Received {
			kept = c.receivedSend(now, cp)
		} else {
			c.receivedWrite(now, cp)
		}
	}
	if !kept {
		c.e.nic.PostRecv(cp.Buf)
	}
}

// receivedSend processes a SEND, and reports whether its buffer stays in use.
func (c *Conn) receivedSend(now mono.Time, cp *Completion) (kept bool) {
	var h Header
	b := c.e.cfg.Pool[cp.Buf].Data
	if int(cp.Bytes) > len(b) || h.Parse(b[:cp.Bytes]) != nil || !c.taken.holds(h.RN) {
		c.e.ctr.BadHeaders++
		return false
	}
	inOrder := h.RN == c.taken.next
	if c.taken.done(h.RN) {
		c.e.ctr.Duplicates++
	} else {
		var ok bool
		if kept, ok = c.execute(&h, cp.Buf, b[HeaderLen:cp.Bytes]); !ok {
			return false
		}
		c.taken.mark(h.RN)
	}
	c.noteSend(now, &h, cp, inOrder)
	return kept
}

// execute processes a SEND with its payload in a buffer of the pool. If ok is false, the SEND is refused and not
// acknowledged.
func (c *Conn) execute(h *Header, buf int, payload []byte) (kept, ok bool) {
	switch {
	case h.Kind == KindMessage:
		return c.takeMessage(h, buf, payload)
	case h.Kind == KindRequest && len(payload) == 0 && c.takeRequest(h),
		h.Kind == KindGrant && len(payload) == 0 && c.grant(h),
		h.Kind == KindRewrite && c.takeRewrite(Imm(h.Message), payload):
		return false, true
	}
	c.e.ctr.BadHeaders++
	return false, false
}

// takeMessage processes a chunk of a message by SEND.
func (c *Conn) takeMessage(h *Header, buf int, payload []byte) (kept, ok bool) {
	n, unit := uint32(len(payload)), c.e.cfg.Unit
	if h.Length > c.e.cfg.MaxSend || !aligned(h.Offset, n, h.Length, unit) {
		c.e.ctr.BadHeaders++
		return false, false
	}
	if n == h.Length { // most messages are whole and delivered in place
		c.delivered(Message{Data: payload, Tag: h.Tag, buf: buf})
		return true, true
	}
	at, i := c.partial(h.Message)
	if at != nil && (at.length != h.Length || at.tag != h.Tag) {
		c.e.ctr.BadHeaders++
		return false, false
	}
	if at == nil {
		if len(c.partials) >= c.e.cfg.Partials || !c.e.cfg.Hardware && c.e.held >= len(c.e.cfg.Pool)/2 {
			c.e.ctr.NoRoom++
			return false, false
		}
		at, i, kept = c.begin(h, buf), len(c.partials)-1, true
	}
	whole := c.e.cfg.Pool[at.buf].Data[HeaderLen:]
	copy(whole[h.Offset:h.Offset+n], payload)
	at.got.add(h.Offset/unit, (n+unit-1)/unit)
	if at.got.left == 0 {
		c.delivered(Message{Data: whole[:h.Length:h.Length], Tag: at.tag, buf: at.buf})
		c.forget(i)
	}
	return kept, true
}

// aligned reports whether n bytes at offset are a valid chunk of a message of length bytes.
func aligned(offset, n, length, unit uint32) bool {
	end := uint64(offset) + uint64(n)
	return offset%unit == 0 && (n > 0 || length == 0) && (end == uint64(length) || end < uint64(length) && n%unit == 0)
}

func (c *Conn) partial(mid uint32) (*inbound, int) {
	for i, p := range c.partials {
		if p.mid == mid {
			return p, i
		}
	}
	return nil, 0
}

// begin records the first chunk of a message. Its buffer becomes the message's buffer.
func (c *Conn) begin(h *Header, buf int) *inbound {
	p := c.idle
	if p == nil {
		p = &inbound{}
	} else {
		c.idle = p.next
	}
	*p = inbound{mid: h.Message, length: h.Length, tag: h.Tag, buf: buf}
	p.got.expect(h.Length, c.e.cfg.Unit)
	c.partials = append(c.partials, p)
	c.e.held++
	return p
}

// forget drops the record of a partial message; its buffer has another owner now.
func (c *Conn) forget(i int) {
	p, last := c.partials[i], len(c.partials)-1
	c.partials[i] = c.partials[last]
	c.partials = c.partials[:last]
	p.next, c.idle = c.idle, p
	c.e.held--
}

// delivered passes a message to the user.
func (c *Conn) delivered(m Message) {
	c.e.ctr.Messages++
	c.e.ctr.Bytes += uint64(len(m.Data))
	c.e.news.add(news{c: c, what: newsDelivered, msg: m})
}

func (c *Conn) landing(mid uint32) *landing { return &c.landings[mid&uint32(len(c.landings)-1)] }

// takeRequest processes a request for a message's memory.
func (c *Conn) takeRequest(h *Header) bool {
	l := c.landing(h.Message)
	free := l.state == landingNever || l.state == landingOver && midDiff(h.Message, l.mid) > 0
	if !free || h.Length <= c.e.cfg.MaxSend || uint64(h.Length) > uint64(c.e.cfg.MaxMessage()) {
		return false
	}
	*l = landing{state: landingWaits, mid: h.Message, length: h.Length, tag: h.Tag}
	l.got.expect(h.Length, c.e.cfg.Unit)
	c.offer(l)
	return true
}

// offer grants a request if the user has memory.
func (c *Conn) offer(l *landing) {
	b, ok := c.e.user.Landing(c, int(l.length))
	if !ok || len(b.Data) < int(l.length) {
		return
	}
	l.state, l.b = landingGranted, b
	p := piece{kind: KindGrant, mid: l.mid}
	p.addr, p.key = c.e.nic.Expose(b.part(0, l.length))
	l.key = p.key
	c.control.add(p)
	c.lent++
}

// enough is the number of bytes that a peer with granted memory must send in Config.GiveUp, unless it completes a
// message.
const enough = 64 << 10

// stalls returns the time at which a peer has held memory for too long.
func (c *Conn) stalls(now mono.Time) mono.Time {
	switch {
	case c.lent == 0:
		c.moved = 0
		return mono.Never
	case c.moved == 0 || c.fresh*c.e.cfg.Unit >= enough:
		c.moved, c.fresh = now, 0
	}
	return c.moved.Add(c.e.cfg.GiveUp)
}

// Resume retries the requests that found no memory.
func (c *Conn) Resume(now mono.Time) {
	if c.err != nil {
		return
	}
	for i := range c.landings {
		if l := &c.landings[i]; l.state == landingWaits {
			c.offer(l)
		}
	}
	c.pump(now)
	c.e.tell(now)
}

// whereIs returns the landing of a chunk of n bytes that arrived by WRITE or by retransmission. over means that its
// message has been delivered.
func (c *Conn) whereIs(i Imm, n uint32) (l *landing, over, ok bool) {
	l = c.landing(i.MessageID())
	if d := midDiff(i.MessageID(), l.mid); l.state == landingNever || d > 0 {
		return nil, false, false
	} else if d < 0 || l.state == landingOver {
		return nil, true, true
	}
	ok = l.state == landingGranted && n > 0 && aligned(i.Offset()*c.e.cfg.Unit, n, l.length, c.e.cfg.Unit)
	return l, false, ok
}

// receivedWrite processes a chunk that the NIC has written.
func (c *Conn) receivedWrite(now mono.Time, cp *Completion) {
	l, over, ok := c.whereIs(cp.Imm, cp.Bytes)
	if !ok {
		c.e.ctr.BadImms++
		return
	}
	ends := over || cp.Imm.Offset()*c.e.cfg.Unit+cp.Bytes == l.length
	if over {
		c.e.ctr.Late++
	} else {
		c.place(l, cp.Imm, cp.Bytes)
	}
	c.noteWrite(now, cp, ends)
}

// takeRewrite processes the retransmission of a chunk first sent by WRITE. It copies the chunk only if its message has
// not been delivered: the user may have changed the memory since (Flor 5).
func (c *Conn) takeRewrite(i Imm, payload []byte) bool {
	l, over, ok := c.whereIs(i, uint32(len(payload)))
	switch {
	case !ok:
		return false
	case over:
		c.e.ctr.Late++
	default:
		copy(l.b.Data[i.Offset()*c.e.cfg.Unit:l.length], payload)
		c.place(l, i, uint32(len(payload)))
	}
	return true
}

// place records a chunk whose bytes are in place, and delivers its message if complete.
func (c *Conn) place(l *landing, i Imm, n uint32) {
	unit := c.e.cfg.Unit
	fresh := l.got.add(i.Offset(), (n+unit-1)/unit)
	if fresh == 0 {
		c.e.ctr.Duplicates++
	}
	c.fresh += fresh
	if l.got.left > 0 {
		return
	}
	// A WRITE of this message that is still in flight must not change the memory any more.
	c.e.nic.Revoke(l.key)
	c.delivered(Message{Data: l.b.Data[:l.length:l.length], Tag: l.tag, Landing: true, Buffer: l.b})
	*l = landing{state: landingOver, mid: l.mid}
	c.lent--
	c.moved = 0
}

// end frees the memory of messages that cannot complete.
func (r *receiver) end(c *Conn) {
	r.ackAt = mono.Never
	for i := range r.landings {
		if l := &r.landings[i]; l.state == landingGranted {
			c.e.nic.Revoke(l.key)
			c.e.news.add(news{c: c, what: newsUnused, buf: l.b})
			*l = landing{}
		}
	}
	for len(r.partials) > 0 {
		c.e.nic.PostRecv(r.partials[0].buf)
		c.forget(0)
	}
}

// noteSend adds a SEND to the next acknowledgement.
func (c *Conn) noteSend(now mono.Time, h *Header, cp *Completion, inOrder bool) {
	if c.e.cfg.Hardware {
		return
	}
	if !c.ack.AddSend(h.GN) { // too far from the other numbers (Flor A.1.2)
		c.sendAck(now)
		c.ack.AddSend(h.GN)
	}
	c.note(now, cp, h.Hint || !inOrder)
}

// noteWrite adds a WRITE to the next acknowledgement. ends means that it completes its message.
func (c *Conn) noteWrite(now mono.Time, cp *Completion, ends bool) {
	if c.e.cfg.Hardware {
		return
	}
	i := cp.Imm &^ immHint
	inOrder := i == c.nextImm && !c.starts || c.starts && i.Offset() == 0
	c.nextImm, c.starts = i+Imm((cp.Bytes+c.e.cfg.Unit-1)/c.e.cfg.Unit), ends
	c.ack.AddWrite(i)
	c.note(now, cp, cp.Imm.Hint() || !inOrder)
}

// note updates the pending acknowledgement after an addition. The acknowledgement leaves at once after AckWQEs WQEs,
// AckBytes bytes, a hint or reordering. Otherwise it leaves when the timer expires (Flor 5).
func (c *Conn) note(now mono.Time, cp *Completion, trigger bool) {
	r, cfg := &c.receiver, &c.e.cfg
	r.ackBytes += cp.Bytes
	r.arrivedAt = cp.At
	if trigger || r.ack.Len() >= cfg.AckWQEs || r.ackBytes >= cfg.AckBytes {
		c.sendAck(now)
	} else if r.ackAt == mono.Never {
		r.ackAt = now.Add(cfg.AckDelay)
	}
}

// sendAck sends the acknowledgement with the time since the last arrival: T3'-T2 (Flor 4.1).
func (c *Conn) sendAck(now mono.Time) {
	r := &c.receiver
	r.ackAt = mono.Never
	if r.ack.Len() == 0 {
		return
	}
	r.ack.QPN = uint32(c.slots[c.from].peer)
	if r.arrivedAt != 0 {
		r.ack.Delay = max(c.e.clock.NIC(now).Sub(r.arrivedAt), 0)
	}
	c.e.ctr.Acks++
	c.e.nic.PostAck(c, r.ack.Append(c.e.ackData[:0]))
	r.ack.Reset()
	r.ackBytes = 0
}
