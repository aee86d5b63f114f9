package fabric

import (
	"testing"

	"pgregory.net/rapid"

	"roced/sim/engine"
)

// Whatever is set, stopped and done, an agenda knows what is due first, and what is being done is
// not due any more unless it has been set anew.
func TestAgenda(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const things = 20
		var soonest engine.Time
		var a agenda
		a.init(things, &soonest)
		model := map[int32]engine.Time{}
		first := func() (f due) {
			f = due{engine.Never, things}
			for what, at := range model {
				if at < f.at || at == f.at && what < f.what {
					f = due{at, what}
				}
			}
			return f
		}
		what := rapid.Int32Range(0, things-1)
		set := func(x int32) {
			model[x] = engine.Time(rapid.IntRange(0, 50).Draw(t, "at"))
			a.set(x, model[x])
		}
		t.Repeat(map[string]func(*rapid.T){
			"set":  func(t *rapid.T) { set(what.Draw(t, "what")) },
			"stop": func(t *rapid.T) { x := what.Draw(t, "what"); delete(model, x); a.set(x, engine.Never) },
			"do": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				d := a.begin()
				if d != first() {
					t.Fatalf("%+v is done, %+v is due first", d, first())
				}
				if delete(model, d.what); a.pending(d.what) {
					t.Fatal("what is being done is due")
				}
				for range rapid.IntRange(0, 3).Draw(t, "sets") {
					set(what.Draw(t, "what"))
				}
				if rapid.Bool().Draw(t, "stops") {
					x := what.Draw(t, "what")
					delete(model, x)
					a.set(x, engine.Never)
				}
				if rapid.Bool().Draw(t, "again") {
					set(d.what)
				}
				a.done()
			},
			"": func(t *rapid.T) {
				if got := a.next(); got != first().at || soonest > got {
					t.Fatalf("next at %d, said to be at %d, want %d", got, soonest, first().at)
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
