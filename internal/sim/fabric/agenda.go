package fabric

import (
	"math/bits"

	"roced.io/roced/internal/sim/engine"
)

// agenda says what a switch has to do next: of a few things, each of which is due at most once, the
// earliest. It is a calendar queue (Brown, CACM 1988) like the engine's, of things that have numbers: setting
// and finding one takes constant time. Each day has a list of what is due then, in its order; of two at the same
// instant the one with the lower number is first, so that all machines do the same.
type agenda struct {
	at     []engine.Time    // by what it is; Never if it is not due
	behind []uint16         // by what it is: what comes after it in its day's list, plus one
	day    [agendaDays]item // what is first
	busy   [agendaDays / 64]uint64
	today  engine.Time // nothing is due on a day before
	// soonest is not later than the first of them, for who looks at many agendas.
	soonest *engine.Time
}

// item is what a list has next, plus one; zero: nothing.
type item = uint16

// A day is 2 ns, less than it is between two events of a switch with many ports, and a year 2.1 us, within
// which what packets do is due on most links. What is due later waits in the same lists.
const (
	agendaShift = 11
	agendaDays  = 1 << 10
)

type due struct {
	at   engine.Time
	what int32
}

func (a *agenda) init(things int, soonest *engine.Time) {
	*a = agenda{at: make([]engine.Time, things), behind: make([]item, things), soonest: soonest}
	for i := range a.at {
		a.at[i] = engine.Never
	}
	*soonest = engine.Never
}

// pending reports whether something is due.
func (a *agenda) pending(what int32) bool { return a.at[what] != engine.Never }

// set makes something due at an instant, in place of what it was; Never is at none.
func (a *agenda) set(what int32, at engine.Time) {
	if a.at[what] != engine.Never {
		a.remove(what)
	}
	if at == engine.Never {
		return
	}
	a.at[what] = at
	i := uint(at>>agendaShift) % agendaDays
	p := &a.day[i]
	for *p != 0 && a.before(*p-1, what) {
		p = &a.behind[*p-1]
	}
	a.behind[what], *p = *p, item(what+1)
	a.busy[i/64] |= 1 << (i % 64)
	a.today = min(a.today, at>>agendaShift)
	*a.soonest = min(*a.soonest, at)
}

// before reports whether x, which is due, comes before what.
func (a *agenda) before(x item, what int32) bool {
	return a.at[x] < a.at[what] || a.at[x] == a.at[what] && int32(x) < what
}

// remove makes something not due that is.
func (a *agenda) remove(what int32) {
	i := uint(a.at[what]>>agendaShift) % agendaDays
	p := &a.day[i]
	for int32(*p) != what+1 {
		p = &a.behind[*p-1]
	}
	a.at[what] = engine.Never
	if *p = a.behind[what]; a.day[i] == 0 {
		a.busy[i/64] &^= 1 << (i % 64)
	}
}

// take removes what is due first, if that is before until; at is when it is due in either case.
func (a *agenda) take(until engine.Time) (d due, ok bool) {
	d = a.first()
	if d.at >= until {
		return d, false
	}
	a.today = d.at >> agendaShift
	i := uint(a.today) % agendaDays
	a.at[d.what] = engine.Never
	if a.day[i] = a.behind[d.what]; a.day[i] == 0 {
		a.busy[i/64] &^= 1 << (i % 64)
	}
	return d, true
}

// first returns what is due first, at Never if nothing is.
func (a *agenda) first() due {
	i := uint(a.today) % agendaDays
	word, mask := i/64, ^uint64(0)<<(i%64)
	for range len(a.busy) + 1 { // of today's word the days before today are the last ones
		for w := a.busy[word] & mask; w != 0; w &= w - 1 {
			what := int32(a.day[word*64+uint(bits.TrailingZeros64(w))]) - 1
			if at := a.at[what]; at>>agendaShift-a.today < agendaDays {
				return due{at, what}
			}
		}
		word, mask = (word+1)%uint(len(a.busy)), ^uint64(0)
	}
	return a.later()
}

// later returns what is due first if nothing is within a year.
func (a *agenda) later() due {
	d := due{at: engine.Never}
	for what, at := range a.at {
		if at < d.at {
			d = due{at, int32(what)}
		}
	}
	return d
}
