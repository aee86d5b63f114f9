package fabric

import (
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/internal/sim/engine"
)

// TestAgenda: after any sequence of set, cancel and take, the agenda returns the first event, in this year and in later
// ones.
func TestAgenda(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const things = 20
		var soonest engine.Time
		var a agenda
		a.init(things, &soonest)
		model := map[int32]engine.Time{}
		first := func() (f due) {
			f = due{at: engine.Never}
			for what, at := range model {
				if at < f.at || at == f.at && what < f.what {
					f = due{at, what}
				}
			}
			return f
		}
		what := rapid.Int32Range(0, things-1)
		at := rapid.Custom(func(t *rapid.T) engine.Time {
			unit := rapid.SampledFrom([]engine.Time{1, 1 << (agendaShift - 1), 60 << agendaShift, agendaDays << (agendaShift - 1)}).Draw(t, "unit")
			return unit * engine.Time(rapid.IntRange(0, 50).Draw(t, "units"))
		})
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				x := what.Draw(t, "what")
				model[x] = at.Draw(t, "at")
				a.set(x, model[x])
			},
			"stop": func(t *rapid.T) { x := what.Draw(t, "what"); delete(model, x); a.set(x, engine.Never) },
			"take": func(t *rapid.T) {
				until := at.Draw(t, "until")
				d, ok := a.take(until)
				if want := first(); d != want || ok != (want.at < until) {
					t.Fatalf("%+v is due, %+v is first; taken before %d: %v", d, want, until, ok)
				}
				if ok {
					delete(model, d.what)
				}
			},
			"": func(t *rapid.T) {
				if f := first(); a.first() != f || soonest > f.at {
					t.Fatalf("%+v is due first, said to be at %d, want %+v", a.first(), soonest, f)
				}
				for x := range int32(things) {
					if _, want := model[x]; a.pending(x) != want {
						t.Fatalf("%d is pending: %v", x, !want)
					}
				}
			},
		})
	})
}
