package engine

import (
	"fmt"
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
)

// Engine manages the connections of a NIC. It belongs to one goroutine.
type Engine struct {
	cfg       Config
	nic       NIC
	user      User
	conns     map[QPN]*Conn
	deadlines sched.Deadlines[*Conn]
	clock     Clock
	held      int // pool buffers that hold partial messages
	open      int // open connections
	ctr       Counters

	news    queueOf[news]
	telling bool

	wqe     WQE // scratch
	ack     Ack
	ackData []byte
}

// New returns an engine and posts its pool.
func New(c Config, n NIC, u User) (*Engine, error) {
	c.setDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, nic: n, user: u, conns: map[QPN]*Conn{}, ackData: make([]byte, 0, MaxAckLen),
		clock: Clock{Every: c.ClockEvery, Threshold: c.ClockThreshold}}
	for i := range c.Pool {
		n.PostRecv(i)
	}
	return e, nil
}

// Counters returns the counters.
func (e *Engine) Counters() Counters { return e.ctr }

// Connections returns the number of open connections.
func (e *Engine) Connections() int { return e.open }

// ConnConfig describes a connection whose queue pairs are connected.
type ConnConfig struct {
	// QPs are the numbers of the queue pairs: the primary one first, then the backups (6: two). Peers are the numbers
	// of their remote queue pairs.
	QPs, Peers []QPN
	// AckPeer is the source of acknowledgements, as passed to OnAck.
	AckPeer uint64
	// First are the first numbers of this end's direction, and PeerFirst those of the peer's.
	First, PeerFirst Numbers
	Ctx              any // for the user
}

// Numbers are the first numbers of a direction.
type Numbers struct {
	GN  uint64 // global number
	RN  uint32 // reliable number of SENDs
	MID uint32 // message id of WRITEs
}

// maxQPs is the maximum number of queue pairs of a connection.
const maxQPs = 8

// Open adds a connection.
func (e *Engine) Open(now mono.Time, c ConnConfig) (*Conn, error) {
	if n := len(c.QPs); n == 0 || n > maxQPs || n != len(c.Peers) {
		return nil, fmt.Errorf("%w: a connection of %d queue pairs and %d peers", ErrConfig, n, len(c.Peers))
	}
	// The engine cannot drop data delivered by RC, and each connection may hold one partial message.
	if e.cfg.Hardware && e.open+1 > len(e.cfg.Pool)/2 {
		return nil, fmt.Errorf("%w: a pool of %d buffers is for %d connections", ErrConfig, len(e.cfg.Pool), len(e.cfg.Pool)/2)
	}
	for i, q := range c.QPs {
		if e.conns[q] != nil || c.Peers[i]>>24 != 0 {
			return nil, fmt.Errorf("%w: queue pair %d, peer %d", ErrConfig, q, c.Peers[i])
		}
	}
	cc, err := ccalgo.New(e.cfg.Congestion, e.cfg.CongestionWith)
	if err != nil {
		return nil, err
	}
	chunker, err := newChunker(e.cfg.Chunking, e.cfg.ChunkingWith, e.cfg.Unit)
	if err != nil {
		return nil, err
	}
	k := newConn(e, c, cc, chunker)
	for _, q := range c.QPs {
		e.conns[q] = k
	}
	e.open++
	k.rearm(now)
	return k, nil
}

// Connected reports that a disconnected queue pair works again.
func (e *Engine) Connected(now mono.Time, qp QPN) {
	if c := e.conns[qp]; c != nil && c.err == nil {
		c.slots[c.slot(qp)].ready = true
		c.pump(now)
		e.tell(now)
	}
}

// Disconnected reports that a queue pair has failed without an error completion, or that the peer has abandoned it. The
// engine asks the NIC to reconnect it.
func (e *Engine) Disconnected(now mono.Time, qp QPN) {
	if c := e.conns[qp]; c != nil && c.err == nil {
		c.switchFrom(now, c.slot(qp))
		c.pump(now)
		e.tell(now)
	}
}

// Complete processes a completion of a data queue pair.
func (e *Engine) Complete(now mono.Time, cp *Completion) {
	e.synchronise(now)
	c := e.conns[cp.QP]
	switch cp.Kind {
	case Sent, Failed:
		if c == nil || !c.completed(now, cp) {
			e.ctr.NoCompletion++
			return
		}
	case Received, Written:
		if c == nil {
			e.ctr.NoCompletion++
			e.nic.PostRecv(cp.Buf)
			return
		}
		c.arrived(now, cp)
	}
	c.pump(now)
	e.tell(now)
}

// OnAck processes a datagram from peer from that arrived at at on the NIC's clock (T4).
func (e *Engine) OnAck(now mono.Time, from uint64, at mono.Time, b []byte) {
	e.synchronise(now)
	a := &e.ack
	if a.Parse(b) != nil {
		e.ctr.BadAcks++
		return
	}
	c := e.conns[QPN(a.QPN)]
	if c == nil || c.ackPeer != from || c.err != nil || e.cfg.Hardware || !c.believes(a) {
		e.ctr.BadAcks++
		return
	}
	e.ctr.AcksReceived++
	c.acknowledged(now, a, at)
	c.pump(now)
	e.tell(now)
}

// synchronise compares the clocks periodically (Flor A.2.1).
func (e *Engine) synchronise(now mono.Time) {
	if e.clock.Due(now) {
		e.clock.Correct(now, e.nic.Time())
	}
}

// Release frees the memory of a delivered message.
func (e *Engine) Release(m Message) {
	if !m.Landing {
		e.nic.PostRecv(m.buf)
	}
}

// NextTimeout returns the time for the next call of OnTimeout, or mono.Never.
func (e *Engine) NextTimeout() mono.Time { return e.deadlines.Next() }

// OnTimeout handles expired deadlines.
func (e *Engine) OnTimeout(now mono.Time) {
	for t := e.deadlines.Take(now); t != nil; t = e.deadlines.Take(now) {
		t.Item.expired(now)
	}
	e.tell(now)
}

// news is a pending notification of the user. The engine delivers it at the end of an input, when all state is
// consistent, because the user may send, release and close.
type news struct {
	c    *Conn
	what newsKind
	id   uint64
	err  error
	msg  Message
	buf  Buffer
}

type newsKind uint8

const (
	newsDelivered newsKind = iota
	newsTold
	newsUnused
	newsClosed
)

func (e *Engine) tell(now mono.Time) {
	if e.telling {
		return // the user called from a notification
	}
	e.telling = true
	for e.news.Len() > 0 {
		n := *e.news.Oldest()
		e.news.drop()
		switch n.what {
		case newsDelivered:
			e.user.Delivered(now, n.c, n.msg)
		case newsTold:
			e.user.Told(now, n.c, n.id, n.err)
		case newsUnused:
			e.user.Unused(n.c, n.buf)
		case newsClosed:
			e.user.Closed(now, n.c, n.err)
		}
	}
	e.telling = false
}

// weight returns the share of the window that a WQE with n payload bytes uses. A WQE without payload counts as a
// header.
func weight(n uint32) uint64 { return uint64(max(n, HeaderLen)) }

// roundTrip smooths round-trip times and computes the timeout (RFC 6298 section 2).
type roundTrip struct{ smooth, deviation time.Duration }

func (r *roundTrip) sample(rtt time.Duration) {
	if r.smooth == 0 {
		r.smooth, r.deviation = rtt, rtt/2
		return
	}
	d := r.smooth - rtt
	r.deviation += (max(d, -d) - r.deviation) / 4
	r.smooth += (rtt - r.smooth) / 8
}

// timeout returns the time to wait for an acknowledgement after n consecutive timeouts.
func (r *roundTrip) timeout(c *Config, n int) time.Duration {
	rto := c.FirstRTO
	if r.smooth > 0 {
		rto = max(r.smooth+4*r.deviation+c.AckDelay, c.MinRTO)
	}
	return min(rto<<min(n, 20), c.MaxRTO)
}
