package engine

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// town is a simulation of nodes in parts. A node sets timers of its own, and sends messages to other nodes.
type town struct {
	t     *testing.T
	g     *Group
	parts []*quarter
	nodes []*node
	meet  Meeting
	met   int
}

// inTurn runs parts one after the other, in alternating order.
type inTurn struct {
	parts, rounds int
	round         func(int)
}

func (w *inTurn) Start(round func(int)) { w.round = round }
func (w *inTurn) Stop()                 {}

func (w *inTurn) Round() {
	w.rounds++
	for i := range w.parts {
		if w.rounds%2 == 0 {
			i = w.parts - 1 - i
		}
		w.round(i)
	}
}

// quarter is a part of a town.
type quarter struct {
	town   *town
	eng    Engine
	boxes  [2][]message
	window int
	busy   bool
}

type message struct {
	at       Time
	from, to int
	n        int // of its sender
}

type node struct {
	id     int
	q      *quarter
	rng    *rand.Rand
	sent   int
	timers []*Timer
	log    []string
}

func newTown(t *testing.T, seed uint64, parts int) *town {
	w := &town{t: t, nodes: make([]*node, 12)}
	var engines []*Engine
	for range parts {
		q := &quarter{town: w}
		q.eng.Join(q, apart)
		w.parts, engines = append(w.parts, q), append(engines, &q.eng)
	}
	w.g = NewGroup(engines, &inTurn{parts: parts}, func(i int) { w.parts[i].begin() })
	for i := range w.nodes {
		w.nodes[i] = &node{id: i, q: w.parts[i%parts], rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		w.nodes[i].in(Time(i%3) * 500)
	}
	w.g.Between = func() {
		for _, q := range w.parts {
			if q.busy {
				t.Error("a part runs between two windows")
			}
		}
	}
	w.meet.Init(w.g, w)
	w.meet.Set(0)
	return w
}

// Handle is a meeting: all engines have the same time. It starts something on one node.
func (w *town) Handle(now Time, _ int32) {
	for _, q := range w.parts {
		if q.eng.Now() != now || q.busy {
			w.t.Errorf("at a meeting at %d a part is at %d", now, q.eng.Now())
		}
	}
	if w.met++; w.met < 40 {
		w.nodes[w.met%len(w.nodes)].in(0)
		w.meet.Set(now + Time(w.met%4)*311)
	}
}

// in sets a timer.
func (n *node) in(d Time) {
	t := new(Timer)
	t.Init(n, int32(len(n.timers)))
	n.timers = append(n.timers, t)
	n.q.eng.Set(t, n.q.eng.Now()+d)
}

// Handle implements Handler.
func (n *node) Handle(now Time, what int32) {
	n.q.busy = true
	n.log = append(n.log, fmt.Sprint(now, " ", what))
	if len(n.timers) < 300 {
		n.in(Time(n.rng.IntN(5)) * 250)
	}
	if n.rng.IntN(3) == 0 {
		n.sent++
		box := &n.q.boxes[n.q.window]
		*box = append(*box, message{now + apart + Time(n.rng.IntN(3))*250, n.id, n.rng.IntN(len(n.q.town.nodes)), n.sent})
	}
	n.q.busy = false
}

// begin takes the messages of the previous window, from all parts in an order that does not depend on these.
func (q *quarter) begin() {
	q.window ^= 1
	q.boxes[q.window] = q.boxes[q.window][:0]
	var all []message
	for _, other := range q.town.parts {
		for _, m := range other.boxes[q.window^1] {
			if q.town.nodes[m.to].q == q {
				all = append(all, m)
			}
		}
	}
	slices.SortFunc(all, func(a, b message) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.n, b.n)) })
	for _, m := range all {
		if m.at < q.eng.Now() {
			q.town.t.Errorf("a message for %d comes at %d", m.at, q.eng.Now())
		}
		q.town.nodes[m.to].in(m.at - q.eng.Now())
	}
}

// Next implements Partner.
func (q *quarter) Next() Time {
	first := Never
	for _, m := range q.boxes[q.window] {
		first = min(first, m.at)
	}
	return first
}

func (q *quarter) Advance(Time)  {}
func (q *quarter) Fired() uint64 { return 0 }

// TestGroup: each node gets the same events in the same order, however many parts there are. All parts meet at the same
// instant.
func TestGroup(t *testing.T) {
	for seed := range uint64(20) {
		var want []string
		for parts := 1; parts <= 4; parts++ {
			w := newTown(t, seed, parts)
			for until := Time(0); w.g.Pending() > 0; until += 1700 {
				if w.g.Run(until); w.g.Now() != until {
					t.Fatalf("until %d: at %d", until, w.g.Now())
				}
			}
			log := []string{fmt.Sprint(w.g.Fired(), w.met)}
			for _, n := range w.nodes {
				log = append(log, n.log...)
			}
			if want == nil {
				want = log
			}
			if w.met != 40 || len(log) < 1000 || !slices.Equal(log, want) {
				t.Fatalf("seed %d, %d parts: %d meetings, %d events instead of %d, or others", seed, parts, w.met, len(log), len(want))
			}
		}
	}
}

// stopping halts its group at a meeting.
type stopping struct{ g *Group }

func (s stopping) Handle(Time, int32) { s.g.Halt() }

func TestGroupHalt(t *testing.T) {
	w := newTown(t, 1, 3)
	var m Meeting
	m.Init(w.g, stopping{w.g})
	m.Set(3333)
	if w.g.Run(10_000); w.g.Now() != 3333 || w.g.Pending() == 0 {
		t.Fatalf("halted at %d", w.g.Now())
	}
}
