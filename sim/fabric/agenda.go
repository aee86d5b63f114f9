package fabric

import (
	"math/bits"

	"roced/sim/engine"
)

// agenda says what a switch has to do next: of a few things, each of which is due at most once, the
// earliest. It is a tournament (Knuth, TAOCP 3, 5.4.1): in the tree above the things, each node has the
// earlier one of its two children, so that a thing that is set meets one other at each level.
type agenda struct {
	at     []engine.Time // by what it is; Never if it is not due
	winner []uint16      // of the tree: 1 is the root, the things begin at len(at)
	doing  int32         // what is being done: it stays the first until it is set anew or done
	// soonest is not later than the first of them, for who looks at many agendas.
	soonest *engine.Time
}

type due struct {
	at   engine.Time
	what int32
}

const nothing = -1

func (a *agenda) init(things int, soonest *engine.Time) {
	size := 1 << bits.Len(uint(max(things, 2)-1))
	*a = agenda{at: make([]engine.Time, size), winner: make([]uint16, 2*size), doing: nothing, soonest: soonest}
	for i := range a.at {
		a.at[i], a.winner[size+i] = engine.Never, uint16(i)
	}
	for i := size - 1; i > 0; i-- {
		a.winner[i] = a.winner[2*i]
	}
	*soonest = engine.Never
}

// next is when the first thing is due.
func (a *agenda) next() engine.Time { return a.at[a.winner[1]] }

// pending reports whether something is due; what is being done is not.
func (a *agenda) pending(what int32) bool { return a.at[what] != engine.Never && what != a.doing }

// set makes something due at an instant, in place of what it was; Never is at none.
func (a *agenda) set(what int32, at engine.Time) {
	if what == a.doing {
		a.doing = nothing
	}
	a.play(what, at)
	*a.soonest = min(*a.soonest, at)
}

// begin returns what is due first, which is being done until done is called.
func (a *agenda) begin() due {
	first := a.winner[1]
	a.doing = int32(first)
	return due{a.at[first], int32(first)}
}

// done ends what has been begun. It is not due any more if it has not been set anew.
func (a *agenda) done() {
	if a.doing != nothing {
		a.play(a.doing, engine.Never)
		a.doing = nothing
	}
}

// play has something meet what else is due. Of two at the same instant the one with the lower number is
// first, so that all machines do the same.
func (a *agenda) play(what int32, at engine.Time) {
	a.at[what] = at
	times, winner, first := a.at, a.winner, uint16(what)
	for node := len(times) + int(what); node > 1; node /= 2 {
		other := winner[node^1]
		if t := times[other]; t < at || t == at && other < first {
			first, at = other, t
		}
		winner[node/2] = first
	}
}
