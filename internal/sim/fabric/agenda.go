package fabric

import (
	"math/bits"

	"roced.io/roced/internal/sim/engine"
)

// agenda holds the pending events of a switch: at most one event per number. Like the engine it is a calendar queue
// (Brown, CACM 1988), so setting and finding an event takes constant time. Each day has an ordered list of its events.
// Events at the same instant are in the order of their numbers, so that all machines behave the same.
type agenda struct {
	at     []engine.Time    // by event; Never: not pending
	behind []uint16         // by event: the next event in its day's list, plus one
	day    [agendaDays]item // the first event of each day
	busy   [agendaDays / 64]uint64
	today  engine.Time // no event is pending on an earlier day
	// soonest is at most the time of the first event. It belongs to the owner of many agendas.
	soonest *engine.Time
}

// item is the number of a list's next event plus one; zero: none.
type item = uint16

// A day is 2 ns, less than the time between two events of a switch with many ports. A year is 2.1 us, within which
// packets on most links arrive. Later events wait in the same lists.
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

func (a *agenda) pending(what int32) bool { return a.at[what] != engine.Never }

// set makes an event due at an instant and replaces its earlier instant. Never cancels it.
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

// before reports whether the pending event x comes before what.
func (a *agenda) before(x item, what int32) bool {
	return a.at[x] < a.at[what] || a.at[x] == a.at[what] && int32(x) < what
}

// remove cancels a pending event.
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

// take removes the first event if it is due before until. In either case d.at is when it is due.
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

// first returns the first event, at Never if there is none.
func (a *agenda) first() due {
	i := uint(a.today) % agendaDays
	word, mask := i/64, ^uint64(0)<<(i%64)
	for range len(a.busy) + 1 { // the days before today are the last ones of today's word
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

// later returns the first event if none is due within a year.
func (a *agenda) later() due {
	d := due{at: engine.Never}
	for what, at := range a.at {
		if at < d.at {
			d = due{at, int32(what)}
		}
	}
	return d
}
