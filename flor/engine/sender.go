package engine

import (
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
)

// sender is the sending half of a connection.
type sender struct {
	cc      ccalgo.Controller
	chunker Chunker
	pacer   sched.Pacer
	rtt     roundTrip

	gn       uint64             // global number of the next WQE
	flights  ring.Ring[flight]  // WQEs by global number, until lost, or completed by the NIC and acknowledged by the peer
	scanned  uint64             // all WQEs before it are settled
	acked    window             // reliable numbers of SENDs
	rn       uint32             // reliable number of the next SEND
	again    queueOf[piece]     // lost SENDs; they go first
	rewrites queueOf[piece]     // lost WRITEs
	control  queueOf[piece]     // requests and grants
	small    queueOf[*outbound] // messages by SEND, before large ones (Flor 3.2)
	large    queueOf[*outbound] // messages waiting for a message id
	granted  queueOf[*outbound] // messages by WRITE
	writes   []*outbound        // messages by message id, from the request on
	mid      uint32             // message id of the next large message
	message  uint32             // number of the next small one
	parts    int                // messages of which some SENDs are in flight

	inFlight uint64    // bytes, counted by weight
	flying   int       // WQEs in flight
	unfed    uint32    // acknowledged bytes not yet passed to congestion control
	timeouts int       // consecutive timeouts
	rto      mono.Time // time at which the oldest WQE counts as lost
	progress mono.Time // time of the last acknowledgement, or of the first WQE since idle

	outstanding int       // messages without a result
	first       *outbound // list of them
	spare       *outbound // free list
}

// flight is a WQE.
type flight struct {
	piece
	slot    uint8
	settled bool // acknowledged, or lost
	left    bool // completed by the NIC
	posted  mono.Time
	sent    mono.Time // T1, by the NIC's clock; zero if unknown
	// ackedAt is T4-(T3'-T2) of an acknowledgement that arrived before T1 was known.
	ackedAt mono.Time
}

func (s *sender) init(c *Config, first Numbers, cc ccalgo.Controller, chunker Chunker) {
	s.cc, s.chunker = cc, chunker
	cc.Reset(int(c.Unit))
	s.gn, s.scanned = first.GN, first.GN
	s.flights.Head, s.flights.Tail = uint32(first.GN), uint32(first.GN)
	s.rn, s.acked = first.RN, newWindow(first.RN, c.Window)
	s.mid, s.writes = first.MID&MaxMessageID, make([]*outbound, c.Writes)
	s.rto = mono.Never
}

// newOutbound returns a new outgoing message.
func (s *sender) newOutbound(id uint64, tag uint32, data Buffer) *outbound {
	m := s.spare
	if m == nil {
		m = &outbound{}
	} else {
		s.spare = m.next
	}
	*m = outbound{id: id, tag: tag, data: data, chunks: m.chunks[:0], next: s.first}
	if s.first != nil {
		s.first.prev = m
	}
	s.first = m
	s.outstanding++
	return m
}

// settle reports the result of m to the user when no piece of it is in flight.
func (c *Conn) settle(m *outbound) {
	if m.wqes > 0 || c.err == nil && (!m.all || m.open > 0) {
		return
	}
	if m.next != nil {
		m.next.prev = m.prev
	}
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		c.first = m.next
	}
	c.outstanding--
	if m.part {
		c.parts--
	}
	c.e.news.add(news{c: c, what: newsTold, id: m.id, err: c.err})
	if w := &c.writes[m.mid&uint32(len(c.writes)-1)]; *w == m {
		*w = nil
		c.request()
	}
	*m = outbound{chunks: m.chunks[:0], next: c.spare}
	c.spare = m
}

// request requests memory for large messages, as many as may be in flight (Flor 3.2). A message id becomes free when
// the previous message in its slot has been acknowledged.
func (c *Conn) request() {
	for c.err == nil && c.large.Len() > 0 {
		w := &c.writes[c.mid&uint32(len(c.writes)-1)]
		if *w != nil {
			return
		}
		m := *c.large.Oldest()
		c.large.drop()
		m.mid, *w = c.mid, m
		c.mid = (c.mid + 1) & MaxMessageID
		m.open++
		c.control.add(piece{m: m, kind: KindRequest, mid: m.mid})
	}
}

// grant processes the grant of a request. It reports whether there was such a request.
func (c *Conn) grant(h *Header) bool {
	m := c.writes[h.Message&uint32(len(c.writes)-1)]
	if m == nil || m.mid != h.Message || m.granted {
		return false
	}
	m.granted, m.addr, m.key = true, h.Addr, h.Key
	c.granted.add(m)
	return true
}

// pump sends as much as the window permits.
func (c *Conn) pump(now mono.Time) {
	for c.err == nil && c.slots[c.active].ready && c.e.nic.Room(c.slots[c.active].qp) && c.transmit(now) {
	}
	c.rearm(now)
	c.finish()
}

// transmit sends one WQE if permitted.
func (c *Conn) transmit(now mono.Time) bool {
	window, rate := c.cc.Limits()
	p, from := c.choose(window)
	if from == fromNowhere || c.flying > 0 && c.inFlight+weight(p.n) > window {
		c.pacer.Waiting = false
		return false
	}
	if !c.pacer.Ready(now) {
		return false
	}
	if c.flying == 0 && from != fromAgain && from != fromRewrites {
		c.progress = now // the peer owed nothing until now; retransmissions do not restart the time
	}
	c.take(&p, from)
	if p.kind != kindWrite && !p.numbered {
		p.rn, p.numbered = c.rn, true
		c.rn++
	}
	if rate == ccalgo.Unlimited {
		c.pacer.Unlimited()
	} else {
		c.pacer.Charge(now, int(weight(p.n)), rate, 0)
	}
	c.post(now, &p, window)
	return true
}

// post posts p to the NIC under the next global number.
func (c *Conn) post(now mono.Time, p *piece, window uint64) {
	if c.flying == 0 {
		c.rto = now.Add(c.rtt.timeout(&c.e.cfg, c.timeouts))
	}
	*c.flights.Push() = flight{piece: *p, slot: uint8(c.active), posted: now}
	c.inFlight += weight(p.n)
	c.flying++
	// The hint marks the last WQE in the window (Flor 5). Without more to send and with room in the window, the
	// receiver's timer is soon enough.
	next, from := c.choose(window)
	if from == fromNowhere {
		next.n = c.e.cfg.Unit
	}
	hint := c.inFlight+weight(next.n) > window
	w := &c.e.wqe
	*w = WQE{ID: c.gn}
	if p.m != nil {
		w.Data = p.m.data.part(p.offset, p.n)
		p.m.wqes++
	}
	if p.kind == kindWrite {
		w.Op, w.Imm = OpWriteImm, MakeImm(hint, p.mid, p.offset/c.e.cfg.Unit)
		w.RemoteAddr, w.RemoteKey = p.m.addr+uint64(p.offset), p.m.key
		p.m.chunks = append(p.m.chunks, sentChunk{p.offset / c.e.cfg.Unit, c.gn})
	} else {
		h := Header{Kind: p.kind, Hint: hint, RN: p.rn, GN: c.gn, Message: p.mid, Offset: p.offset, Key: p.key, Addr: p.addr}
		switch p.kind {
		case KindMessage, KindRequest:
			h.Length, h.Tag = p.m.len(), p.m.tag
		case KindRewrite:
			h.Message = uint32(MakeImm(false, p.mid, p.offset/c.e.cfg.Unit))
		}
		h.Put(w.Header[:])
	}
	c.gn++
	c.e.ctr.WQEs++
	c.cc.OnSent(now, uint32(weight(p.n)), uint32(min(c.inFlight, 1<<32-1)))
	c.e.nic.Post(c.slots[c.active].qp, w)
}

// pending reports whether there is more to send.
func (c *Conn) pending() bool {
	return c.again.Len()+c.rewrites.Len()+c.control.Len()+c.small.Len()+c.granted.Len() > 0
}

// choose returns the next piece to send, and its queue. Retransmissions go first, then requests and grants, then SENDs,
// then WRITEs.
func (c *Conn) choose(window uint64) (p piece, from source) {
	// A chunk waits until a quarter of the window is free. Otherwise small acknowledgements would lead to small chunks.
	size := c.chunker.Size(max(window-min(c.inFlight, window), window/4))
	send := min(size, c.e.cfg.MaxSend)
	number := c.acked.holds(c.rn)
	if a := c.again.Oldest(); a != nil {
		return *a, fromAgain
	}
	if a := c.rewrites.Oldest(); a != nil && number {
		p = *a
		p.n = min(p.n, send)
		return p, fromRewrites
	}
	if a := c.control.Oldest(); a != nil && number {
		return *a, fromControl
	}
	if a := c.small.Oldest(); a != nil && number {
		m := *a
		n := min(m.len()-m.sent, send)
		if n == m.len() || m.sent > 0 || c.parts < c.e.cfg.Partials {
			return piece{m: m, kind: KindMessage, mid: m.mid, offset: m.sent, n: n}, fromSmall
		}
	}
	if a := c.granted.Oldest(); a != nil {
		m := *a
		return piece{m: m, kind: kindWrite, mid: m.mid, offset: m.sent, n: min(m.len()-m.sent, size)}, fromGranted
	}
	return piece{}, fromNowhere
}

// source is the queue of a piece.
type source uint8

const (
	fromNowhere source = iota
	fromAgain
	fromRewrites
	fromControl
	fromSmall
	fromGranted
)

// take removes p, as returned by choose, from its queue.
func (c *Conn) take(p *piece, from source) {
	switch from {
	case fromAgain:
		c.again.drop()
	case fromRewrites:
		if a := c.rewrites.Oldest(); a.n > p.n { // figure 14: several SENDs retransmit a chunk
			a.offset, a.n = a.offset+p.n, a.n-p.n
			a.m.open++
		} else {
			c.rewrites.drop()
		}
	case fromControl:
		c.control.drop()
	case fromSmall:
		if p.m.sent == 0 && p.n < p.m.len() {
			p.m.part = true
			c.parts++
		}
		if p.m.took(p.n) {
			c.small.drop()
		}
	case fromGranted:
		if p.m.took(p.n) {
			c.granted.drop()
		}
	}
}

// took records that n bytes of m are posted, and reports whether they are its last bytes.
func (m *outbound) took(n uint32) bool {
	m.sent += n
	m.open++
	m.all = m.sent == m.len()
	return m.all
}

// end drops all unsent data and reports all messages that the NIC does not hold.
func (s *sender) end(c *Conn) {
	for i := s.flights.Head; i != s.flights.Tail; i++ {
		s.flights.At(i).settled = true
	}
	c.retire()
	s.again.Clear()
	s.rewrites.Clear()
	s.control.Clear()
	s.small.Clear()
	s.large.Clear()
	s.granted.Clear()
	for m := s.first; m != nil; {
		next := m.next
		c.settle(m)
		m = next
	}
}

// deadline returns the time of the sender's next action.
func (s *sender) deadline(c *Conn) mono.Time {
	at := s.pacer.Deadline()
	if s.flying > 0 && !c.e.cfg.Hardware {
		at = min(at, s.rto)
	}
	if s.waits(c) {
		at = min(at, s.progress.Add(c.e.cfg.GiveUp))
	}
	return at
}

// waits reports whether the peer owes an answer.
func (s *sender) waits(c *Conn) bool {
	return s.flying > 0 || !c.slots[c.active].ready && c.pending()
}

// expired handles silence: the oldest WQE counts as lost. The window has shrunk, so more WQEs count as lost until the
// window admits the retransmission. If silence lasts, the connection ends.
func (s *sender) expired(now mono.Time, c *Conn) {
	if s.waits(c) && now.Sub(s.progress) >= c.e.cfg.GiveUp {
		c.fail(now, ErrSilent)
		return
	}
	if s.flying == 0 || now < s.rto || c.e.cfg.Hardware {
		return
	}
	f := c.oldest()
	if f.left { // otherwise it waits in the NIC
		c.e.ctr.Timeouts++
		s.timeouts++
		c.lose(f)
		s.chunker.OnLoss()
		s.cc.OnLoss(now, 1, true)
		window, _ := s.cc.Limits()
		for s.flying > 0 && s.inFlight+weight(f.n) > window && c.oldest().left {
			c.lose(c.oldest())
		}
		if k := c.e.cfg.Stuck; k > 0 && s.timeouts%k == 0 {
			c.switchFrom(now, int(f.slot))
		}
	}
	s.rto = now.Add(s.rtt.timeout(&c.e.cfg, s.timeouts))
}

// oldest returns the first WQE that is not settled; there is one.
func (s *sender) oldest() *flight {
	f := s.flights.At(uint32(s.scanned))
	for f.settled {
		s.scanned++
		f = s.flights.At(uint32(s.scanned))
	}
	return f
}

// feed reports acknowledged bytes and a round trip (zero: unknown) to congestion control and chunking.
func (c *Conn) feed(now mono.Time, rtt time.Duration) {
	if rtt > 0 {
		c.rtt.sample(rtt)
		c.chunker.OnRTT(rtt)
		if c.e.cfg.Measured != nil {
			c.e.cfg.Measured(c, rtt)
		}
	}
	c.cc.OnAck(now, ccalgo.Sample{Bytes: c.unfed, InFlight: uint32(min(c.inFlight, 1<<32-1)), RTT: rtt})
	c.unfed = 0
}
