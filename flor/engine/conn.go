package engine

import (
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
)

// Conn is a connection: one to its user, several queue pairs to the NIC (Flor 3.2).
type Conn struct {
	Ctx any // the user's

	e       *Engine
	ackPeer uint64
	slots   []slot
	active  int // slot that we send by
	heard   int // slot that the peer sends by
	err     error
	closed  bool // the user has been told
	timer   sched.Timer[*Conn]

	sender
	receiver
}

// slot is a queue pair of a connection.
type slot struct {
	qp, peer QPN
	ready    bool
}

func newConn(e *Engine, c ConnConfig, cc ccalgo.Controller, chunker Chunker) *Conn {
	k := &Conn{Ctx: c.Ctx, e: e, ackPeer: c.AckPeer}
	for i := range c.QPs {
		k.slots = append(k.slots, slot{c.QPs[i], c.Peers[i], true})
	}
	k.timer.Item = k
	k.sender.init(&e.cfg, c.First, cc, chunker)
	k.receiver.init(&e.cfg, c.PeerFirst)
	return k
}

// slot returns the place of a queue pair that is the connection's.
func (c *Conn) slot(qp QPN) int {
	for i := range c.slots {
		if c.slots[i].qp == qp {
			return i
		}
	}
	return 0
}

// Err is why the connection has ended, nil if it has not.
func (c *Conn) Err() error { return c.err }

// Peer is the queue pair that the connection sends to.
func (c *Conn) Peer() QPN { return c.slots[c.active].peer }

// Primary is the queue pair that the connection sends by.
func (c *Conn) Primary() QPN { return c.slots[c.active].qp }

// InFlight returns the bytes that are believed to be in the network, and the congestion window. There
// are never more of them, but one WQE may always be in flight.
func (c *Conn) InFlight() (bytes, window uint64) {
	window, _ = c.cc.Limits()
	return c.inFlight, window
}

// switchFrom takes a queue pair that has failed out of use, moves what was not completed to a backup
// and has the failed one connected anew behind it (Flor 6).
func (c *Conn) switchFrom(now mono.Time, failed int) {
	s := &c.slots[failed]
	if !s.ready {
		return
	}
	s.ready = false
	c.e.ctr.Switches++
	c.e.nic.Disconnect(s.qp, true)
	for i := 1; i < len(c.slots) && !c.slots[c.active].ready; i++ {
		if next := (failed + i) % len(c.slots); c.slots[next].ready {
			c.active = next
		}
	}
	if c.heard == failed {
		c.heard = c.active
	}
	c.loseAll(now, failed)
	c.chunker.OnLoss()
}

// follow is called when the peer is heard on a queue pair. If it is another one, the peer has left the one
// before, on which nothing may be received any more: what is late there was sent again (Flor 6).
// It reports whether what was received counts.
func (c *Conn) follow(now mono.Time, on int) bool {
	if !c.slots[on].ready {
		return false
	}
	if on != c.heard {
		left := c.heard
		c.heard = on
		if left == c.active {
			c.active = on
		}
		c.switchFrom(now, left)
	}
	return true
}

// Close ends the connection. What has come is acknowledged; messages that have not been are told of with
// ErrClosed. The peer is not informed: whoever has connected the queue pairs does that.
func (c *Conn) Close(now mono.Time) { c.Fail(now, ErrClosed) }

// Fail is Close for another reason.
func (c *Conn) Fail(now mono.Time, err error) {
	if c.err == nil {
		c.sendAck(now)
	}
	c.fail(now, err)
	c.e.tell(now)
}

// fail ends the connection. What the NIC still has is told of when it has completed.
func (c *Conn) fail(now mono.Time, err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.e.deadlines.Remove(&c.timer)
	for i := range c.slots {
		c.slots[i].ready = false
		c.e.nic.Disconnect(c.slots[i].qp, false)
	}
	c.receiver.end(c)
	c.sender.end(c)
	c.finish()
}

// finish tells that the connection has ended when there is nothing left to tell before.
func (c *Conn) finish() {
	if c.err == nil || c.closed || c.flights.Len() > 0 || c.outstanding > 0 {
		return
	}
	c.closed = true
	for i := range c.slots {
		delete(c.e.conns, c.slots[i].qp)
	}
	c.e.open--
	c.e.news.add(news{c: c, what: newsClosed, err: c.err})
}

// rearm takes over the earliest deadline.
func (c *Conn) rearm(now mono.Time) {
	if c.err != nil {
		return
	}
	at := min(c.ackAt, c.sender.deadline(c), c.cc.Deadline(), c.stalls(now))
	if at != mono.Never {
		at = max(at, now)
	}
	c.e.deadlines.Set(&c.timer, at)
}

// expired deals with the connection's deadlines.
func (c *Conn) expired(now mono.Time) {
	if c.ackAt <= now {
		c.sendAck(now)
	}
	if c.cc.Deadline() <= now {
		c.cc.OnTimeout(now)
	}
	if c.stalls(now) <= now {
		c.e.ctr.Stalled++
		c.fail(now, ErrStalled)
		return
	}
	c.sender.expired(now, c)
	c.pump(now)
}

// Send takes a message, which the user is told of later under id; the peer's user is given the tag with it.
// Its memory must stay as it is until then. If as many as possible are under way it reports ErrFull.
func (c *Conn) Send(now mono.Time, id uint64, tag uint32, data Buffer) error {
	switch cfg := &c.e.cfg; {
	case c.err != nil:
		return c.err
	case len(data.Data) > cfg.MaxMessage():
		return ErrTooLong
	case c.outstanding >= cfg.Queue:
		return ErrFull
	}
	if c.outstanding == 0 {
		c.progress = now
	}
	m := c.newOutbound(id, tag, data)
	if len(data.Data) <= int(c.e.cfg.MaxSend) {
		m.mid = c.message
		c.message++
		*c.small.Push() = m
	} else {
		*c.large.Push() = m
		c.request()
	}
	c.pump(now)
	c.e.tell(now)
	return nil
}

// piece is the contents of a WQE.
type piece struct {
	m        *outbound // nil if it is part of no message of ours
	kind     Kind      // kindWrite or that of a SEND
	numbered bool      // rn has been given
	rn       uint32    // of a SEND; of a WRITE its Imm without hint
	mid      uint32
	offset   uint32 // in the message
	n        uint32 // bytes
	addr     uint64 // KindGrant
	key      uint32
}

// kindWrite is the kind of a chunk in a WRITE_WITH_IMM.
const kindWrite Kind = 0

// outbound is a message whose result the user expects.
type outbound struct {
	id   uint64
	tag  uint32
	data Buffer
	mid  uint32
	sent uint32 // bytes that have been handed out once
	all  bool   // all of them have
	open int    // pieces that have been sent and not acknowledged
	wqes int    // that the NIC has
	part bool   // goes by several SENDs

	chunks  []sentChunk // by WRITE, in their order
	granted bool        // it may go there:
	addr    uint64
	key     uint32

	next, prev *outbound // of all that the user is to be told of
}

// sentChunk says by which WQE a chunk went.
type sentChunk struct {
	offset uint32 // in units
	gn     uint64
}

func (m *outbound) len() uint32 { return uint32(len(m.data.Data)) }

// part returns n bytes of b.
func (b Buffer) part(offset, n uint32) Buffer {
	return Buffer{Data: b.Data[offset : offset+n : offset+n], Addr: b.Addr + uint64(offset), Key: b.Key}
}

// queueOf is a queue whose elements are copied.
type queueOf[T any] struct{ ring.Ring[T] }

func (q *queueOf[T]) add(v T) { *q.Push() = v }

func (q *queueOf[T]) drop() {
	var zero T
	*q.Oldest() = zero
	q.Head++
}
