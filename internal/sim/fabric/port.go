package fabric

import (
	"math/bits"

	"roced.io/roced/internal/sim/engine"
)

// PortConfig says how a port of a switch chooses what leaves.
type PortConfig struct {
	// Strict are classes that leave before others, of them higher ones first, a bit each. The
	// rest share what is left by deficit round robin.
	Strict uint8
	// Weights say how: 2 is twice as much as 1, which 0 stands for.
	Weights [Classes]uint8
	// SRPT serves each class by what is left of messages, the shortest first.
	SRPT bool
	// Turns serves each class by the ports where packets came in, in turns.
	Turns bool
}

// discipline is an order in which the packets of a class leave that is not that of their coming.
type discipline interface {
	push(*Packet)
	pop() *Packet // there is one
	len() int
}

// discipline returns a new one as c says, nil if packets leave in the order of their coming.
func (c *PortConfig) discipline(ports int) discipline {
	switch {
	case c.SRPT:
		return new(ranked)
	case c.Turns:
		return newTurns(ports)
	}
	return nil
}

// quantum is what a class may send in its turn, in bytes.
const quantum = 1600

// port is the sending side of a switch's port, and the accounting of what comes in by it. What
// each packet touches stands first.
type port struct {
	sw     *Switch
	out    *Link
	queued int64 // bytes of all classes
	busy   uint8 // classes that have something
	turn   uint8 // class whose turn it is
	toHost bool
	peer   Node                 // at its other end
	order  *[Classes]discipline // instead of the queues of lanes
	marker *marker              // the switch's, unless Link.Mark has given it another
	stats  PortStats

	lanes  [Classes]lane
	stocks [Classes]stock // of what came in by this port
	number int32
}

// lane is what a class has in a port.
type lane struct {
	queue
	bytes   int64
	deficit int64
}

// PortStats are what a switch's port has done.
type PortStats struct {
	Peak   int64 // most bytes that have been queued
	Marked uint64
	// Trimmed packets have lost their payload.
	Trimmed uint64
	Pauses  uint64 // PFC frames sent to stop the other end
}

// add queues p, which has been admitted.
func (o *port) add(p *Packet) {
	c := &o.lanes[p.Class]
	if o.order != nil {
		o.order[p.Class].push(p)
	} else {
		c.push(p)
	}
	c.bytes += int64(p.Bytes)
	o.queued += int64(p.Bytes)
	o.busy |= 1 << p.Class
	o.stats.Peak = max(o.stats.Peak, o.queued)
}

// take removes the next packet of a class.
func (o *port) take(class uint8) (p *Packet) {
	c := &o.lanes[class]
	empty := false
	if o.order != nil {
		p = o.order[class].pop()
		empty = o.order[class].len() == 0
	} else {
		p = c.pop()
		empty = c.head == nil
		if !empty {
			c.head.next.soon()
		}
	}
	c.bytes -= int64(p.Bytes)
	o.queued -= int64(p.Bytes)
	if empty {
		o.busy &^= 1 << class
		c.deficit = 0
	}
	return p
}

// choose returns the class that sends next, of those in ready.
func (o *port) choose(ready uint8) uint8 {
	if s := ready & o.sw.cfg.Port.Strict; s != 0 {
		return uint8(bits.Len8(s) - 1)
	}
	if ready&(ready-1) == 0 {
		return uint8(bits.Len8(ready) - 1)
	}
	for ready>>o.turn&1 == 0 || o.lanes[o.turn].deficit <= 0 {
		o.turn = (o.turn + 1) % Classes
		if ready>>o.turn&1 != 0 {
			o.lanes[o.turn].deficit += quantum * int64(max(o.sw.cfg.Port.Weights[o.turn], 1))
		}
	}
	return o.turn
}

// Next implements Source.
func (o *port) Next(now engine.Time, paused uint8) (p *Packet, more bool) {
	ready := o.busy &^ paused
	if ready == 0 {
		return nil, false
	}
	c := o.choose(ready)
	p = o.take(c)
	if ready&(ready-1) != 0 && o.sw.cfg.Port.Strict>>c&1 == 0 && o.busy>>c&1 != 0 { // alone it owes nobody
		o.lanes[c].deficit -= int64(p.Bytes)
	}
	o.sw.left(now, o, p)
	return p, o.busy&^paused != 0
}

// refresh tells those that have stopped to stay so, before their pause ends.
func (o *port) refresh(now engine.Time) {
	for c := range o.stocks {
		if o.stocks[c].stopped {
			o.stop(now, uint8(c))
		}
	}
}

// stop tells the other end to stop a class.
func (o *port) stop(now engine.Time, c uint8) {
	o.stats.Pauses++
	o.out.sendPause(now, c, o.sw.cfg.PauseTime)
	if what := o.number*things + whatRefresh; !o.sw.agenda.pending(what) {
		o.sw.agenda.set(what, now+o.sw.cfg.PauseTime/2)
	}
}

// watch tells the other end to stop or to go on, if it is time.
func (o *port) watch(now engine.Time, c uint8) {
	s, b := &o.stocks[c], &o.sw.buffer
	switch {
	case b.stops(s):
		s.stopped = true
		o.stop(now, c)
	case b.resumes(s):
		s.stopped = false
		o.out.sendPause(now, c, 0)
	}
}
