// Package engine is the clock of a simulation: a queue of timers in the order of their
// instants, and of being set where these are equal. The same calls give the same order on every
// machine. Nothing is allocated when timers are set, and a timer that is stopped leaves nothing
// behind.
//
// Timers that are due soon, as those of links are, lie in a calendar queue (Brown, CACM 1988):
// setting and finding them takes constant time. Those that are due later lie in a heap.
//
// A part of the simulation that feels nothing of the rest, nor the rest of it, until some time
// later may have a clock of its own: a Partner. It lags behind the engine by less than that time,
// and does much at once, which is kind to caches.
package engine

import "math/bits"

// Handler is called when a timer is due.
type Handler interface {
	// Handle is told the instant and what the timer was made for.
	Handle(now Time, what int32)
}

// Timer calls its handler at an instant. It belongs to one engine and must not be copied.
type Timer struct {
	at         Time
	seq        uint64 // order among those with the same instant
	next, prev *Timer // a ring of those in the same day of the calendar, earliest first
	handler    Handler
	what       int32
	place      int32 // in the heap, plus one; inCalendar; 0 when not set
}

const inCalendar = -1

// Init makes t call h with what.
func (t *Timer) Init(h Handler, what int32) { *t = Timer{handler: h, what: what} }

// Pending reports whether t is set.
func (t *Timer) Pending() bool { return t.place != 0 }

// At is the instant for which t is set.
func (t *Timer) At() Time { return t.at }

func (t *Timer) before(u *Timer) bool { return t.at < u.at || t.at == u.at && t.seq < u.seq }

// Partner is what has a clock of its own.
type Partner interface {
	// Next is when something is due there, Never if nothing is.
	Next() Time
	// Advance deals with all that is due before until.
	Advance(until Time)
	// Fired is how much has been due there.
	Fired() uint64
}

// Engine is a clock and its timers. The zero engine stands at zero with none set.
type Engine struct {
	now     Time
	seq     uint64
	fired   uint64
	pending int
	stopped bool
	near    calendar
	far     heap
	partner Partner
	apart   Time
}

// Join has the engine drive p. What happens in one of the two at an instant concerns the other
// one not before apart later, which is above zero. There is one partner at most.
func (e *Engine) Join(p Partner, apart Time) { e.partner, e.apart = p, apart }

// Sync lets the partner catch up with the engine. Whoever looks at the partner or changes it from
// a timer calls it before.
func (e *Engine) Sync() {
	if e.partner != nil {
		e.partner.Advance(e.now)
	}
}

// Now returns the present instant.
func (e *Engine) Now() Time { return e.now }

// Fired is how many timers have been due, with what has been due at the partner.
func (e *Engine) Fired() uint64 {
	if e.partner != nil {
		return e.fired + e.partner.Fired()
	}
	return e.fired
}

// Pending is how many timers are set; the partner counts as one if something is due there.
func (e *Engine) Pending() int {
	if e.partner != nil && e.partner.Next() != Never {
		return e.pending + 1
	}
	return e.pending
}

// Set makes t due at at, in place of what it was set to before. The past is now.
func (e *Engine) Set(t *Timer, at Time) {
	e.Stop(t)
	if at == Never {
		return
	}
	t.at = max(at, e.now)
	e.seq++
	t.seq = e.seq
	e.pending++
	if e.near.reaches(e.now, t.at) {
		e.near.add(t)
	} else {
		e.far.push(t)
	}
}

// Stop makes t not due, of which nothing is kept.
func (e *Engine) Stop(t *Timer) {
	switch {
	case t.place == 0:
		return
	case t.place == inCalendar:
		e.near.remove(t)
	default:
		e.far.remove(int(t.place) - 1)
	}
	t.place = 0
	e.pending--
}

// next returns the timer that is due first, nil if none is set.
func (e *Engine) next() *Timer {
	t := e.near.first(e.now)
	if len(e.far) > 0 && (t == nil || e.far[0].t.before(t)) {
		return e.far[0].t
	}
	return t
}

// Run calls handlers until none is set to until or before, or Halt is called; the clock then
// stands at until, or where it was halted.
func (e *Engine) Run(until Time) {
	if e.run(until); !e.stopped {
		e.now = max(e.now, until)
		e.Sync()
	}
}

// Drain calls handlers until no timer is set, or Halt is called.
func (e *Engine) Drain() { e.run(Never) }

// run deals with all that is due until until. The partner follows in steps within which it and the
// engine do not concern each other.
func (e *Engine) run(until Time) {
	e.stopped = false
	if until != Never {
		until++
	}
	for !e.stopped {
		end := until
		if e.partner != nil {
			if t := e.first(); t < until-min(e.apart, until) {
				end = t + e.apart
			}
		}
		for t := e.next(); t != nil && t.at < end; t = e.next() {
			if e.fire(t); e.stopped {
				return
			}
		}
		if e.partner != nil {
			e.partner.Advance(end)
		}
		if e.first() >= until {
			return
		}
	}
}

// first is when something is due, here or at the partner.
func (e *Engine) first() Time {
	at := Never
	if t := e.next(); t != nil {
		at = t.at
	}
	if e.partner != nil {
		at = min(at, e.partner.Next())
	}
	return at
}

func (e *Engine) fire(t *Timer) {
	e.Stop(t)
	e.now = t.at
	e.fired++
	t.handler.Handle(t.at, t.what)
}

// Halt ends Run and Drain after the present handler.
func (e *Engine) Halt() { e.stopped = true }

// The calendar has days of 256 ps, about as long as it is between two events of a large
// fabric, and a year of 4.2 us, which a packet on most links does not outlast.
const (
	dayShift = 8
	days     = 1 << 14
	words    = days / 64
)

// calendar has the timers of one year from now on. Each day has a ring of them in their order.
type calendar struct {
	day  [days]*Timer
	busy [words]uint64      // a bit for each day that has timers
	sum  [words / 64]uint64 // a bit for each word of busy that is not zero
}

func (c *calendar) reaches(now, at Time) bool { return at>>dayShift-now>>dayShift < days }

func (c *calendar) add(t *Timer) {
	t.place = inCalendar
	i := int(t.at>>dayShift) & (days - 1)
	head := c.day[i]
	if head == nil {
		t.next, t.prev = t, t
		c.day[i] = t
		c.busy[i/64] |= 1 << (i % 64)
		c.sum[i/4096] |= 1 << (i / 64 % 64)
		return
	}
	p := head.prev // it is the last of all with its instant
	for p.at > t.at && p != head {
		p = p.prev
	}
	if p.at > t.at { // all of them are later
		p, c.day[i] = head.prev, t
	}
	t.prev, t.next = p, p.next
	p.next.prev = t
	p.next = t
}

func (c *calendar) remove(t *Timer) {
	i := int(t.at>>dayShift) & (days - 1)
	if t.next == t {
		c.day[i] = nil
		if c.busy[i/64] &^= 1 << (i % 64); c.busy[i/64] == 0 {
			c.sum[i/4096] &^= 1 << (i / 64 % 64)
		}
	} else {
		t.prev.next, t.next.prev = t.next, t.prev
		if c.day[i] == t {
			c.day[i] = t.next
		}
	}
	t.next, t.prev = nil, nil
}

// first returns the earliest timer, nil if there is none.
func (c *calendar) first(now Time) *Timer {
	i := int(now>>dayShift) & (days - 1)
	if w := c.busy[i/64] >> (i % 64); w != 0 {
		return c.day[i+bits.TrailingZeros64(w)]
	}
	// Words behind today's, then, in the next year, those up to it.
	from := i/64 + 1
	for range len(c.sum) + 1 {
		from %= words
		if s := c.sum[from/64] >> (from % 64); s != 0 {
			word := from + bits.TrailingZeros64(s)
			return c.day[word*64+bits.TrailingZeros64(c.busy[word])]
		}
		from = (from/64 + 1) * 64
	}
	return nil
}
