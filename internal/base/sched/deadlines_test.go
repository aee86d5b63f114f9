package sched

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/plugin/mono"
)

// TestDeadlines: after any sequence of set and stop, Next returns the earliest timer. Each timer fires once, when due,
// and stopped timers leave no state.
func TestDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Deadlines[int]
		timers := make([]Timer[int], 40)
		due := make([]mono.Time, len(timers))
		for i := range timers {
			timers[i].Item, due[i] = i, mono.Never
		}
		now := mono.Time(0)
		index := rapid.IntRange(0, len(timers)-1)
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				i := index.Draw(t, "timer")
				due[i] = now + mono.Time(rapid.IntRange(0, 100).Draw(t, "in"))
				d.Set(&timers[i], due[i])
			},
			"stop": func(t *rapid.T) {
				i := index.Draw(t, "timer")
				due[i] = mono.Never
				d.Set(&timers[i], mono.Never)
			},
			"remove": func(t *rapid.T) {
				i := index.Draw(t, "timer")
				due[i] = mono.Never
				d.Remove(&timers[i])
			},
			"advance": func(t *rapid.T) {
				now += mono.Time(rapid.IntRange(0, 50).Draw(t, "by"))
				for timer := d.Take(now); timer != nil; timer = d.Take(now) {
					if i := timer.Item; due[i] > now {
						t.Fatalf("timer %d fires at %d, due %d", i, now, due[i])
					} else {
						due[i] = mono.Never
					}
				}
			},
			"": func(t *rapid.T) {
				want := mono.Never
				for _, at := range due {
					want = want.Min(at)
				}
				if got := d.Next(); got != want {
					t.Fatalf("next at %d, want %d", got, want)
				}
				for i, e := range d.heap {
					if i > 0 && e.at < d.heap[(i-1)/fanOut].at || int(e.t.place) != i+1 || e.t.due < e.at {
						t.Fatalf("entry %d of %+v", i, d.heap)
					}
				}
			},
		})
		for i := range timers {
			d.Remove(&timers[i])
		}
		if d.Len() != 0 || d.Next() != mono.Never {
			t.Fatalf("%d timers left", d.Len())
		}
	})
}

// BenchmarkDeadlines measures the effect of acknowledgements on the timers of many queue pairs: most move later, and
// some fire.
func BenchmarkDeadlines(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		b.Run(map[int]string{100: "100", 100_000: "100000"}[n], func(b *testing.B) {
			var d Deadlines[int]
			timers := make([]Timer[int], n)
			rng := rand.New(rand.NewPCG(1, 2))
			now := mono.Time(0)
			for i := range timers {
				d.Set(&timers[i], now+mono.Time(rng.IntN(n*100)))
			}
			b.ReportAllocs()
			for b.Loop() {
				now += 100
				d.Set(&timers[rng.IntN(n)], now+mono.Time(n*100))
				for t := d.Take(now); t != nil; t = d.Take(now) {
					d.Set(t, now+mono.Time(n*100))
				}
			}
		})
	}
}
