package engine

import (
	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/ring"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
)

// Conn is one connection to the user and several queue pairs to the NIC (Flor 3.2).
type Conn struct {
	Ctx any // for the user

	e       *Engine
	ackPeer uint64
	slots   []slot
	active  int // slot for sending
	from    int // slot on which the peer sends
	err     error
	closed  bool // the user has been notified
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

// slot returns the index of a queue pair of the connection.
func (c *Conn) slot(qp QPN) int {
	for i := range c.slots {
		if c.slots[i].qp == qp {
			return i
		}
	}
	return 0
}

// Err returns the cause of the connection's end, nil before.
func (c *Conn) Err() error { return c.err }

// Peer returns the peer's queue pair that receives from this connection.
func (c *Conn) Peer() QPN { return c.slots[c.active].peer }

// Primary returns the queue pair that the connection uses to send.
func (c *Conn) Primary() QPN { return c.slots[c.active].qp }

// InFlight returns the bytes in flight and the congestion window. The window limits the bytes, but one WQE may always
// be in flight.
func (c *Conn) InFlight() (bytes, window uint64) {
	window, _ = c.cc.Limits()
	return c.inFlight, window
}

// switchFrom abandons a failed queue pair. It moves uncompleted WQEs to a backup and reconnects the failed queue pair
// in the background (Flor 6).
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
	if c.from == failed {
		c.from = c.active
	}
	c.loseAll(now, failed)
	c.chunker.OnLoss()
}

// follow handles an arrival on a queue pair. If the peer has changed queue pairs, the engine abandons the previous one
// and refuses later arrivals on it. The peer has retransmitted those (Flor 6). follow reports whether the arrival
// counts.
func (c *Conn) follow(now mono.Time, on int) bool {
	if !c.slots[on].ready {
		return false
	}
	if on != c.from {
		left := c.from
		c.from = on
		if left == c.active {
			c.active = on
		}
		c.switchFrom(now, left)
	}
	return true
}

// Close ends the connection. It acknowledges all arrivals, and reports unacknowledged messages with ErrClosed. It does
// not notify the peer; the program that connected the queue pairs must do that.
func (c *Conn) Close(now mono.Time) { c.Fail(now, ErrClosed) }

// Fail is Close with another reason.
func (c *Conn) Fail(now mono.Time, err error) {
	if c.err == nil {
		c.sendAck(now)
	}
	c.fail(now, err)
	c.e.tell(now)
}

// fail ends the connection. Messages still held by the NIC are reported after their WQEs complete.
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

// finish reports the end of the connection when no result is outstanding.
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

// rearm adopts the earliest deadline.
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

// expired handles the connection's deadlines.
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

// Send accepts a message. The engine reports its result later under id; the peer's user receives the tag. The memory
// must not change until then. Send returns ErrFull if Config.Queue messages are in flight.
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

// piece is the content of a WQE.
type piece struct {
	m        *outbound // nil if it carries no message data
	kind     Kind      // kindWrite or the kind of a SEND
	numbered bool      // rn is valid
	rn       uint32    // reliable number of a SEND, or Imm without hint of a WRITE
	mid      uint32
	offset   uint32 // offset in the message
	n        uint32 // length in bytes
	addr     uint64 // KindGrant
	key      uint32
}

// kindWrite is the kind of a chunk in a WRITE_WITH_IMM.
const kindWrite Kind = 0

// outbound is a message without a result yet.
type outbound struct {
	id   uint64
	tag  uint32
	data Buffer
	mid  uint32
	sent uint32 // bytes posted at least once
	all  bool   // all bytes have been posted
	open int    // pieces sent and not acknowledged
	wqes int    // WQEs held by the NIC
	part bool   // needs several SENDs

	chunks  []sentChunk // chunks sent by WRITE, in order
	granted bool        // the peer has granted the memory at:
	addr    uint64
	key     uint32

	next, prev *outbound // list of all messages without a result
}

// sentChunk maps a chunk to its WQE.
type sentChunk struct {
	offset uint32 // in units
	gn     uint64
}

func (m *outbound) len() uint32 { return uint32(len(m.data.Data)) }

// part returns n bytes of b.
func (b Buffer) part(offset, n uint32) Buffer {
	return Buffer{Data: b.Data[offset : offset+n : offset+n], Addr: b.Addr + uint64(offset), Key: b.Key}
}

// queueOf is a queue of elements that are copied.
type queueOf[T any] struct{ ring.Ring[T] }

func (q *queueOf[T]) add(v T) { *q.Push() = v }

func (q *queueOf[T]) drop() {
	var zero T
	*q.Oldest() = zero
	q.Head++
}
