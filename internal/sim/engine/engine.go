// Package engine is the clock of a simulation: a queue of timers, ordered by instant and then by the order of the
// calls of Set. The same calls give the same order on every machine. Setting a timer allocates nothing, and a
// stopped timer leaves nothing behind.
//
// Timers that are due soon, such as those of links, are in a calendar queue (Brown, CACM 1988): setting and finding
// them takes constant time. Later timers are in a heap.
//
// A part of the simulation may have a clock of its own, a Partner, if it and the rest affect each other only after
// some minimum time. The partner lags behind the engine by less than that time and processes many events in a row,
// which is good for caches.
package engine

import "math/bits"

// Handler is called when a timer is due.
type Handler interface {
	// Handle gets the instant and the value that the timer was made with.
	Handle(now Time, what int32)
}

// Timer calls its handler at an instant. It belongs to one engine and must not be copied.
type Timer struct {
	at         Time
	seq        uint64 // order among timers of the same instant
	next, prev *Timer // a ring of the timers in the same day of the calendar, earliest first
	handler    Handler
	what       int32
	place      int32 // index in the heap plus one; inCalendar; 0: not set
}

const inCalendar = -1

// Init makes t call h with what.
func (t *Timer) Init(h Handler, what int32) { *t = Timer{handler: h, what: what} }

// Pending reports whether t is set.
func (t *Timer) Pending() bool { return t.place != 0 }

// At returns the instant for which t is set.
func (t *Timer) At() Time { return t.at }

func (t *Timer) before(u *Timer) bool { return t.at < u.at || t.at == u.at && t.seq < u.seq }

// Partner has a clock of its own.
type Partner interface {
	// Next returns when the partner's next event is due, Never if there is none.
	Next() Time
	// Advance processes all events that are due before until.
	Advance(until Time)
	// Fired returns the number of processed events.
	Fired() uint64
}

// Engine is a clock and its timers. The zero engine is at instant zero without timers.
type Engine struct {
	now         Time
	seq         uint64
	fired       uint64
	pending     int
	stopped     bool
	near        calendar
	far         heap
	partner     Partner
	apart       Time
	interrupted func() bool // see Group.Interrupt
}

// Join makes the engine drive p. An event in one of them affects the other no earlier than apart later, which is
// above zero. An engine has at most one partner.
func (e *Engine) Join(p Partner, apart Time) { e.partner, e.apart = p, apart }

// Sync makes the partner catch up with the engine. Call it before reading or changing the partner from a timer.
func (e *Engine) Sync() {
	if e.partner != nil {
		e.partner.Advance(e.now)
	}
}

// Now returns the present instant.
func (e *Engine) Now() Time { return e.now }

// Fired returns the number of processed timers, including the partner's events.
func (e *Engine) Fired() uint64 {
	if e.partner != nil {
		return e.fired + e.partner.Fired()
	}
	return e.fired
}

// Pending returns the number of set timers. A partner with a pending event counts as one.
func (e *Engine) Pending() int {
	if e.partner != nil && e.partner.Next() != Never {
		return e.pending + 1
	}
	return e.pending
}

// Set makes t due at at and replaces its earlier instant. An instant in the past means now.
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

// Stop cancels t.
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

// next returns the earliest timer, nil if none is set.
func (e *Engine) next() *Timer {
	t := e.near.first(e.now)
	if len(e.far) > 0 && (t == nil || e.far[0].t.before(t)) {
		return e.far[0].t
	}
	return t
}

// Run calls handlers until no timer is set for until or earlier, or until Halt is called. The clock is then at
// until, or at the instant of Halt.
func (e *Engine) Run(until Time) {
	if e.run(until); !e.stopped {
		e.now = max(e.now, until)
		e.Sync()
	}
}

// Drain calls handlers until no timer is set, or Halt is called.
func (e *Engine) Drain() { e.run(Never) }

// run processes everything that is due up to until. The engine and its partner take turns, in steps within which
// they do not affect each other.
func (e *Engine) run(until Time) {
	if until != Never {
		until++
	}
	for {
		end := until
		if e.partner != nil {
			if t := e.first(); t < until-min(e.apart, until) {
				end = t + e.apart
			}
		}
		if e.step(end) {
			return
		}
		if e.partner != nil {
			e.partner.Advance(end)
		}
		if e.first() >= until {
			return
		}
		if e.interrupted != nil && e.interrupted() {
			e.stopped = true
			return
		}
	}
}

// step calls the handlers of timers that are due before end. It reports whether one of them called Halt.
func (e *Engine) step(end Time) (halted bool) {
	e.stopped = false
	for t := e.next(); t != nil && t.at < end; t = e.next() {
		if e.fire(t); e.stopped {
			return true
		}
	}
	return false
}

// first returns when the next event is due, here or at the partner.
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

// Halt ends Run and Drain after the current handler.
func (e *Engine) Halt() { e.stopped = true }

// A day of the calendar is 256 ps, about the time between two events of a large fabric. A year is 4.2 us, longer
// than most packets are on a link.
const (
	dayShift = 8
	days     = 1 << 14
	words    = days / 64
)

// calendar holds the timers of one year from now on. Each day has a ring of its timers in order.
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
	p := head.prev // it is the last of all timers with its instant
	for p.at > t.at && p != head {
		p = p.prev
	}
	if p.at > t.at { // all others are later
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
	// The words after today's, then, in the next year, those up to it., then, in the next year, those up to it.
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
