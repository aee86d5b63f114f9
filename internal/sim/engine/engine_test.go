package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// mark is a timer that stores its due time.
type mark struct {
	t     Timer
	at    Time
	order int
	log   *[]int
	id    int
}

func (m *mark) Handle(Time, int32) { *m.log = append(*m.log, m.id) }

// TestOrder: after any sequence of set, reset and stop, timers fire in the order of their instants, then of being set.
// Each fires once, and no state remains.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e Engine
		var fired []int
		marks := make([]mark, 30)
		for i := range marks {
			marks[i] = mark{at: Never, log: &fired, id: i}
			marks[i].t.Init(&marks[i], 0)
		}
		orders := 0
		spans := rapid.SampledFrom([]Time{0, 1, 255, 256, 5000, 4 * Microsecond, 5 * Microsecond, Second})
		pending := func() (want []int) {
			for i := range marks {
				if marks[i].at != Never {
					want = append(want, i)
				}
			}
			slices.SortFunc(want, func(i, j int) int {
				return cmp.Or(cmp.Compare(marks[i].at, marks[j].at), cmp.Compare(marks[i].order, marks[j].order))
			})
			return want
		}
		index := rapid.IntRange(0, len(marks)-1)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				m := &marks[index.Draw(t, "timer")]
				orders++
				m.at, m.order = e.Now()+spans.Draw(t, "in")+Time(rapid.IntRange(0, 3).Draw(t, "more")), orders
				e.Set(&m.t, m.at)
			},
			"stop": func(t *rapid.T) {
				m := &marks[index.Draw(t, "timer")]
				m.at = Never
				e.Stop(&m.t)
			},
			"run": func(t *rapid.T) {
				until := e.Now() + spans.Draw(t, "for")
				var want []int
				for _, i := range pending() {
					if marks[i].at <= until {
						want = append(want, i)
						marks[i].at = Never
					}
				}
				fired = fired[:0]
				if e.Run(until); !slices.Equal(fired, want) || e.Now() != until {
					t.Fatalf("until %d: fired %v at %d, want %v", until, fired, e.Now(), want)
				}
			},
			"": func(t *rapid.T) {
				if want := pending(); e.Pending() != len(want) {
					t.Fatalf("%d pending, want %d", e.Pending(), len(want))
				}
			},
		})
		want := pending()
		fired = fired[:0]
		if e.Drain(); !slices.Equal(fired, want) {
			t.Fatalf("in the end: fired %v, want %v", fired, want)
		}
		if len(e.far) != 0 || e.near.busy != [words]uint64{} || e.near.sum != [words / 64]uint64{} || e.near.day != [days]*Timer{} {
			t.Fatal("something is left")
		}
	})
}

// halting stops its engine.
type halting struct{ e *Engine }

func (h halting) Handle(Time, int32) { h.e.Halt() }

func TestHalt(t *testing.T) {
	var e Engine
	var a, b Timer
	a.Init(halting{&e}, 0)
	b.Init(halting{&e}, 0)
	e.Set(&a, 10)
	e.Set(&b, 20)
	if e.Run(100); e.Now() != 10 || e.Pending() != 1 {
		t.Fatalf("halted at %d with %d pending", e.Now(), e.Pending())
	}
}

// TestMono: queue pairs never see the instant zero, which means "not set" to them.
func TestMono(t *testing.T) {
	for _, at := range []Time{0, 1, 999, 1000, 1001, Second} {
		if m := at.Mono(); m <= 0 || FromMono(m) > at || FromMono(m+1) <= at {
			t.Errorf("%d ps is %d ns", at, m)
		}
	}
}

// ticker sets itself again, like a link under load.
type ticker struct {
	e   *Engine
	t   Timer
	gap Time
}

func (k *ticker) Handle(now Time, _ int32) { k.e.Set(&k.t, now+k.gap) }

// BenchmarkTimers measures the timer load of busy links.
func BenchmarkTimers(b *testing.B) {
	for name, n := range map[string]int{"links=1000": 1000, "links=10000": 10_000} {
		b.Run(name, func(b *testing.B) {
			var e Engine
			rng := rand.New(rand.NewPCG(1, 2))
			tickers := make([]ticker, n)
			for i := range tickers {
				k := &tickers[i]
				k.e, k.gap = &e, Time(80_000+rng.IntN(1_000_000))
				k.t.Init(k, 0)
				e.Set(&k.t, Time(rng.IntN(1_000_000)))
			}
			b.ReportAllocs()
			for b.Loop() {
				e.fire(e.next())
			}
		})
	}
}
