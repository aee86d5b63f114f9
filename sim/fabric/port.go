package fabric

import (
	"math/bits"

	"roced/ring"
	"roced/sim/engine"
)

// PortConfig says how a port of a switch chooses what leaves.
type PortConfig struct {
	// Strict are classes that leave before others, of them higher ones first, a bit each. The
	// rest share what is left by deficit round robin, alike.
	Strict uint8
	// SRPT serves each class by what is left of messages, the shortest first.
	SRPT bool
}

// quantum is what a class may send in its turn, in bytes.
const quantum = 1600

// port is the sending side of a switch's port, and the accounting of what comes in by it.
type port struct {
	sw     *Switch
	out    *Link
	peer   Node // at its other end
	toHost bool

	queues  [Classes]ring.Ring[Packet]
	ranked  *[Classes]ranked // SRPT: instead
	bytes   [Classes]int64
	queued  int64 // of all classes
	busy    uint8 // classes that have something
	turn    uint8 // class whose turn it is
	deficit [Classes]int64

	stocks  [Classes]stock // of what came in by this port
	refresh engine.Timer   // tells those that have stopped to stay so

	stats PortStats
}

// PortStats are what a switch's port has done.
type PortStats struct {
	Peak   int64 // most bytes that have been queued
	Marked uint64
	Pauses uint64 // PFC frames sent to stop the other end
}

// add queues p, which has been admitted.
func (o *port) add(p *Packet) {
	c := p.Class
	if o.ranked != nil {
		o.ranked[c].push(p)
	} else {
		*o.queues[c].Push() = *p
	}
	o.bytes[c] += int64(p.Bytes)
	o.queued += int64(p.Bytes)
	o.busy |= 1 << c
	o.stats.Peak = max(o.stats.Peak, o.queued)
}

// take removes the next packet of class c.
func (o *port) take(c uint8, p *Packet) {
	empty := false
	if o.ranked != nil {
		*p = o.ranked[c].pop()
		empty = len(o.ranked[c].heap) == 0
	} else {
		*p = *o.queues[c].Oldest()
		o.queues[c].Head++
		empty = o.queues[c].Len() == 0
	}
	o.bytes[c] -= int64(p.Bytes)
	o.queued -= int64(p.Bytes)
	if empty {
		o.busy &^= 1 << c
		o.deficit[c] = 0
	}
}

// choose returns the class that sends next, of those in ready.
func (o *port) choose(ready uint8) uint8 {
	if s := ready & o.sw.cfg.Port.Strict; s != 0 {
		return uint8(bits.Len8(s) - 1)
	}
	if ready&(ready-1) == 0 {
		return uint8(bits.Len8(ready) - 1)
	}
	for ready>>o.turn&1 == 0 || o.deficit[o.turn] <= 0 {
		o.turn = (o.turn + 1) % Classes
		if ready>>o.turn&1 != 0 {
			o.deficit[o.turn] += quantum
		}
	}
	return o.turn
}

// Next implements Source.
func (o *port) Next(now engine.Time, paused uint8, p *Packet) (ok, more bool) {
	ready := o.busy &^ paused
	if ready == 0 {
		return false, false
	}
	c := o.choose(ready)
	o.take(c, p)
	if o.sw.cfg.Port.Strict>>c&1 == 0 {
		o.deficit[c] -= int64(p.Bytes)
	}
	o.sw.left(now, o, p)
	return true, o.busy&^paused != 0
}

// Handle implements engine.Handler: a pause is told again before it ends.
func (o *port) Handle(now engine.Time, _ int32) {
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
	if !o.refresh.Pending() {
		o.sw.net.eng.Set(&o.refresh, now+o.sw.cfg.PauseTime/2)
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
