package fabric

import (
	"math/bits"

	"roced.io/roced/internal/sim/engine"
)

// PortConfig defines the order in which packets leave a port of a switch.
type PortConfig struct {
	// Strict is a bit mask of classes that leave before all others, the highest first. The rest share the remaining
	// bandwidth by deficit round robin.
	Strict uint8
	// Weights of the round robin: 2 is twice as much as 1; 0 means 1.
	Weights [Classes]uint8
	// SRPT serves the packets of each class by remaining message bytes, the shortest first.
	SRPT bool
	// Turns serves the packets of each class round robin by ingress port.
	Turns bool
}

// discipline is a non-FIFO order of the packets of a class.
type discipline interface {
	push(*Packet)
	pop() *Packet // must not be empty
	len() int
	each(do func(*Packet))
}

// discipline returns a new discipline, nil for FIFO.
func (c *PortConfig) discipline(ports int) discipline {
	switch {
	case c.SRPT:
		return new(ranked)
	case c.Turns:
		return newTurns(ports)
	}
	return nil
}

// quantum is the number of bytes that a class of weight 1 may send per round.
const quantum = 1600

// port is the egress side of a switch's port, and the accounting of its ingress side. The fields that each packet
// touches are first.
type port struct {
	sw     *Switch
	out    *Link
	queued int64 // bytes of all classes
	busy   uint8 // bit mask of classes with packets
	turn   uint8 // the class served by the round robin
	toHost bool
	peer   Node                 // at the other end
	order  *[Classes]discipline // replaces the queues of lanes
	marker *marker              // the marker of the switch or of Link.Mark
	stats  PortStats

	lanes  [Classes]lane
	stocks [Classes]stock // counts packets that came in by this port
	number int32
}

// lane is the queue of a class.
type lane struct {
	queue
	bytes   int64
	deficit int64
}

// PortStats counts the packets of a switch's port.
type PortStats struct {
	Peak   int64 // longest queue in bytes
	Marked uint64
	// Trimmed packets lost their payload.
	Trimmed uint64
	Pauses  uint64 // PFC frames sent to pause the other end
}

// add queues p after its admission.
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

// choose selects one of the classes in ready.
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
	if ready&(ready-1) != 0 && o.sw.cfg.Port.Strict>>c&1 == 0 && o.busy>>c&1 != 0 { // without competition there is no deficit
		o.lanes[c].deficit -= int64(p.Bytes)
	}
	o.sw.left(now, o, p)
	return p, o.busy&^paused != 0
}

// refresh renews the pauses of the other end before they expire.
func (o *port) refresh(now engine.Time) {
	for c := range o.stocks {
		if o.stocks[c].stopped {
			o.stop(now, uint8(c))
		}
	}
}

// stop pauses a class at the other end.
func (o *port) stop(now engine.Time, c uint8) {
	o.stats.Pauses++
	o.out.sendPause(now, o.sw.part, c, o.sw.cfg.PFC.Pause)
	if what := o.number*things + whatRefresh; !o.sw.agenda.pending(what) {
		o.sw.agenda.set(what, now+o.sw.cfg.PFC.Pause/2)
	}
}

// watch pauses or resumes a class at the other end, if its stock requires it.
func (o *port) watch(now engine.Time, c uint8) {
	s, b := &o.stocks[c], &o.sw.buffer
	switch {
	case b.stops(s):
		s.stopped = true
		o.stop(now, c)
	case b.resumes(s):
		s.stopped = false
		o.out.sendPause(now, o.sw.part, c, 0)
	}
}
