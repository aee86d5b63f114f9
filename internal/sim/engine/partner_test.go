package engine

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const apart = 1000

// other is a partner with events at given instants. At each event it sets a timer of the engine, the earliest permitted
// one.
type other struct {
	t     *rapid.T
	e     *Engine
	due   []Time
	upTo  Time // all events before it are processed
	fired []Time
	echo  []*echo
	log   []Time // instants of timers of the engine
}

type echo struct {
	o     *other
	timer Timer
	again int
}

func (o *other) Next() Time {
	if len(o.due) == 0 {
		return Never
	}
	return slices.Min(o.due)
}

func (o *other) Fired() uint64 { return uint64(len(o.fired)) }

func (o *other) Advance(until Time) {
	for o.Next() < until {
		at := o.Next()
		i := slices.Index(o.due, at)
		o.due = slices.Delete(o.due, i, i+1)
		o.fired = append(o.fired, at)
		c := &echo{o: o, again: len(o.fired) % 3}
		c.timer.Init(c, 0)
		o.echo = append(o.echo, c)
		if at+apart < o.e.Now() {
			o.t.Fatalf("what is due at %d comes when the engine is at %d", at, o.e.Now())
		}
		o.e.Set(&c.timer, at+apart)
	}
	o.upTo = max(o.upTo, until)
}

func (c *echo) Handle(now Time, _ int32) {
	o := c.o
	if now != c.timer.at || now+apart < o.upTo {
		o.t.Fatalf("a timer of %d fires at %d, the partner has come to %d", c.timer.at, now, o.upTo)
	}
	o.log = append(o.log, now)
	if c.again > 0 {
		o.due = append(o.due, now+apart)
	}
	if c.again == 2 {
		if o.e.Sync(); o.Next() < now {
			o.t.Fatalf("at %d the partner has not caught up: something is due at %d", now, o.Next())
		}
	}
}

// TestPartner: an engine and its partner process all events at their instants. Neither is early for a request of the
// other, and after Sync both have reached the same time.
func TestPartner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Engine
		o := &other{t: t, e: &e}
		e.Join(o, apart)
		for range rapid.IntRange(0, 8).Draw(t, "events") {
			o.due = append(o.due, Time(rapid.IntRange(0, 5000).Draw(t, "at")))
		}
		for range 20 {
			until := e.Now() + Time(rapid.SampledFrom([]int{0, 1, 500, 999, 1000, 1001, 7000}).Draw(t, "for"))
			if e.Run(until); e.Now() != until || o.Next() < until {
				t.Fatalf("until %d: at %d, the partner's next is at %d", until, e.Now(), o.Next())
			}
		}
		if !slices.IsSorted(o.log) || !slices.IsSorted(o.fired) {
			t.Fatalf("order of timers %v, of the partner's events %v", o.log, o.fired)
		}
		if (e.Pending() > 0) != (len(o.due) > 0 || e.pending > 0) || e.Fired() != uint64(len(o.fired)+len(o.log)) {
			t.Fatalf("%d pending, %d fired", e.Pending(), e.Fired())
		}
	})
}
