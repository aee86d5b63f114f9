package fault

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// drawRule draws a lossless rule.
func drawRule(t *rapid.T) string {
	action := rapid.SampledFrom([]string{"delay 1ms", "delay 300us", "reorder 2", "reorder 5 2ms", "duplicate", "duplicate 3", "ecn"}).Draw(t, "action")
	cond := rapid.SampledFrom([]string{"", " p=0.3", " psn=+2..9", " n=1", " op=ack", " op=request count=4", " any", " qpn=1"}).Draw(t, "cond")
	return rapid.SampledFrom([]string{"rx ", "tx ", "both "}).Draw(t, "dir") + action + cond
}

// world is an engine with counters of processed and released frames, by the last byte of the payload.
type world struct {
	e         Engine
	now       mono.Time
	got, want map[byte]int
}

// process passes a frame to the engine.
func (w *world) process(p packet) {
	before := duplicates(&w.e)
	v := w.e.Process(w.now, p.dir, p.build())
	w.got[p.tag] += v.Copies
	w.want[p.tag] = 1 + duplicates(&w.e) - before
}

// drain releases all due frames.
func (w *world) drain() {
	for _, d := range []Dir{Rx, Tx} {
		for {
			f, ok := w.e.Release(w.now, d)
			if !ok {
				break
			}
			w.got[f[len(f)-bth.ICRCLen-1]]++
		}
	}
}

// TestConservation checks that delays and reordering deliver every frame exactly once, plus the copies of duplicate rules.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{got: map[byte]int{}, want: map[byte]int{}}
		var rules []Rule
		for range rapid.IntRange(0, 4).Draw(t, "rules") {
			r, err := Parse(drawRule(t))
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, r)
		}
		if err := w.e.SetRules(rules); err != nil {
			t.Fatal(err)
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "frames") {
			w.process(packet{
				dir: rapid.SampledFrom([]Dir{Rx, Tx}).Draw(t, "dir"),
				op:  rapid.SampledFrom([]bth.Opcode{bth.OpSendOnly, bth.OpReadRespMiddle, bth.OpSendMiddle}).Draw(t, "op"),
				qpn: uint32(rapid.IntRange(0, 2).Draw(t, "qpn")), psn: uint32(rapid.IntRange(0, 12).Draw(t, "psn")),
				payload: 4, tag: byte(i),
			})
			w.now += mono.Time(rapid.IntRange(0, 1000).Draw(t, "us") * 1000)
			w.drain()
		}
		for w.e.NextTimeout() != mono.Never {
			if w.e.NextTimeout() <= w.now {
				t.Fatal("a frame that is due was not released")
			}
			w.now = w.e.NextTimeout()
			w.drain()
		}
		if d := cmp.Diff(w.want, w.got); d != "" {
			t.Fatal(d)
		}
	})
}

// duplicates returns the number of copies that duplicate rules have made.
func duplicates(e *Engine) int {
	n := 0
	for _, r := range e.RuleStats() {
		if r.Rule.Action == Duplicate {
			n += int(r.Hit) * max(r.Rule.Copies, 1)
		}
	}
	return n
}
