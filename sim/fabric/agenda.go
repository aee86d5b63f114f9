package fabric

import "roced/sim/engine"

// agenda says what a switch has to do next: of a few things, each of which is due at most once, the
// earliest. It is a heap in which each entry has four children.
type agenda struct {
	heap  []due
	place []int32 // by what it is, in the heap, plus one; 0 if it is not due
	doing int32   // what is being done: it stays the first until it is set anew or done
	// soonest is not later than the first of them, for who looks at many agendas.
	soonest *engine.Time
}

type due struct {
	at   engine.Time
	what int32
}

// before is a total order, so that all machines do the same.
func (a due) before(b due) bool { return a.at < b.at || a.at == b.at && a.what < b.what }

const (
	fanOut  = 4
	nothing = -1
)

func (a *agenda) init(things int, soonest *engine.Time) {
	*a = agenda{place: make([]int32, things), doing: nothing, soonest: soonest}
	*soonest = engine.Never
}

// next is when the first thing is due.
func (a *agenda) next() engine.Time {
	if len(a.heap) == 0 {
		return engine.Never
	}
	return a.heap[0].at
}

// pending reports whether something is due; what is being done is not.
func (a *agenda) pending(what int32) bool { return a.place[what] != 0 && what != a.doing }

// set makes something due at an instant, in place of what it was.
func (a *agenda) set(what int32, at engine.Time) {
	i := int(a.place[what]) - 1
	if i < 0 {
		i = len(a.heap)
		a.heap = append(a.heap, due{})
	}
	if what == a.doing {
		a.doing = nothing
	}
	a.settle(i, due{at, what})
	*a.soonest = min(*a.soonest, at)
}

// stop makes something not due.
func (a *agenda) stop(what int32) {
	i, last := int(a.place[what])-1, len(a.heap)-1
	if i < 0 {
		return
	}
	a.place[what] = 0
	moved := a.heap[last]
	if a.heap = a.heap[:last]; i < last {
		a.settle(i, moved)
	}
	if what == a.doing {
		a.doing = nothing
	}
}

// begin returns what is due first, which is being done until done is called.
func (a *agenda) begin() due {
	d := a.heap[0]
	a.doing = d.what
	return d
}

// done ends what has been begun. It is not due any more if it has not been set anew.
func (a *agenda) done() {
	if a.doing != nothing {
		a.stop(a.doing)
	}
}

// settle puts d into place i or above or below it.
func (a *agenda) settle(i int, d due) {
	h := a.heap
	for i > 0 {
		parent := (i - 1) / fanOut
		if !d.before(h[parent]) {
			break
		}
		h[i] = h[parent]
		a.place[h[i].what] = int32(i + 1)
		i = parent
	}
	for first := fanOut*i + 1; first < len(h); first = fanOut*i + 1 {
		least := first
		for c := first + 1; c < min(first+fanOut, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(d) {
			break
		}
		h[i] = h[least]
		a.place[h[i].what] = int32(i + 1)
		i = least
	}
	h[i] = d
	a.place[d.what] = int32(i + 1)
}
