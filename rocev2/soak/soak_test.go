package soak

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
)

var (
	flagSeeds = flag.Int("seeds", 200, "how many trials TestSoak runs")
	flagSeed  = flag.Uint64("seed", 0, "the only trial to run")
	flagFirst = flag.Uint64("first", 1, "the seed to begin with")
	flagTrace = flag.Bool("trace", false, "show the packets")
)

// TestSoak runs trials. See the package comment for its arguments.
func TestSoak(t *testing.T) {
	if *flagSeed != 0 {
		c, _ := runSeed(t, *flagSeed)
		fmt.Println(scenarioOf(*flagSeed) + c.String())
		return
	}
	seeds := *flagSeeds
	if testing.Short() {
		seeds = min(seeds, 40)
	}
	sum := &total{counts: newCounts(), of: seeds}
	sum.shown = time.Now()
	workers := runtime.GOMAXPROCS(0)
	t.Run("run", func(t *testing.T) {
		for i := range workers {
			t.Run(fmt.Sprintf("worker=%d", i), func(t *testing.T) {
				t.Parallel()
				for k := i; k < seeds; k += workers {
					seed := *flagFirst + uint64(k)
					t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
						c, _ := runSeed(t, seed)
						sum.add(&c)
					})
				}
			})
		}
	})
	t.Log(sum.String())
	if names := sum.missing(); len(names) > 0 && seeds >= 200 && !t.Failed() {
		t.Errorf("never happened: %v", names)
	}
}

// TestFallen runs seeds that failed before. The name of each states the reason.
func TestFallen(t *testing.T) {
	for what, seed := range map[string]uint64{
		"waiting for a receive used retries up":           3000039758,
		"READ responses were no progress for the retries": 4000002869,
	} {
		t.Run(what, func(t *testing.T) { runSeed(t, seed) })
	}
}

func scenarioOf(seed uint64) string {
	s := draw(seed)
	return s.String()
}

// total is the sum over all runs, for progress reports.
type total struct {
	counts
	mu    sync.Mutex
	of    int
	shown time.Time
}

func (s *total) add(c *counts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.add(c)
	if s.seeds < s.of && time.Since(s.shown) > 5*time.Second {
		s.shown = time.Now()
		fmt.Fprintln(os.Stderr, s.String())
	}
}

// TestRepeatable: the same seed produces the same run.
func TestRepeatable(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed++ {
		_, x := runSeed(t, seed)
		if _, y := runSeed(t, seed); x != y {
			t.Errorf("seed %d goes two ways: %x and %x", seed, x, y)
		}
	}
}

// TestSoakOnSwitch runs a quarter of the trials with NICs on a switch. Fault rules act on all frames of such a NIC.
func TestSoakOnSwitch(t *testing.T) {
	sum := &total{counts: newCounts(), of: *flagSeeds / 4}
	for k := range uint64(sum.of) {
		t.Run(fmt.Sprintf("seed=%d", *flagFirst+k), func(t *testing.T) {
			s := draw(*flagFirst + k)
			if s.swtch = true; len(s.rules) > 0 {
				s.offload = link.Offload{Faults: true}
			}
			c, _ := run(t, s)
			sum.add(&c)
		})
	}
	t.Log(sum.String())
}

// runSeed runs the trial of a seed, and returns its counts and its hash.
func runSeed(t *testing.T, seed uint64) (counts, [2]uint64) { return run(t, draw(seed)) }

func run(t *testing.T, s trial) (counts, [2]uint64) {
	var w *world
	defer func() {
		if t.Failed() {
			explain(t, &s, w)
		}
	}()
	w = newWorld(t, s)
	w.count = newCounts()
	if *flagTrace {
		w.wire.shown = os.Stdout
	}
	w.begun = w.p.Now()
	w.drive(w.finished)
	w.finish()
	w.verify()
	w.sum()
	if c := &w.count; s.perfect() && !s.repeats() && c.retransmitted != 0 && c.rnr == 0 {
		w.p.Fatalf("%d packets were sent again, and nothing was lost", c.retransmitted)
	}
	return w.count, [2]uint64{w.p.Digest(), w.digest}
}

// explain prints the context of a failure.
func explain(t *testing.T, s *trial, w *world) {
	var b bytes.Buffer
	if w != nil {
		for _, e := range w.wire.trace[max(0, len(w.wire.trace)-traceLen):] {
			fmt.Fprintln(&b, e)
		}
		for _, f := range w.flows {
			fmt.Fprintf(&b, "%v: %d messages, %d posted, %d known, failed %v (%d), state %v, in queues %d, %d; receives: %d, %d posted, %d known\n",
				f.from, len(f.msgs), f.posted, f.known, f.failed, f.status, f.from.qp.State(), f.from.qp.SQ.Outstanding(), f.from.qp.SendCQ.Len(),
				len(f.from.recvs.slots), f.from.recvs.posted, f.from.recvs.known)
		}
	}
	t.Logf("the last frames:\n%s\nscenario: %v\nagain: go test ./rocev2/soak -run TestSoak -args -seed=%d -trace",
		b.String(), s, s.seed)
}

// drive advances the clock until done, by at most limit.
func (w *world) drive(done func() bool) {
	end := w.p.Now().Add(limit)
	for {
		w.work()
		now := w.p.Now()
		if done() {
			return
		}
		if now >= end {
			w.p.Fatalf("hangs")
		}
		planned := w.wake.Min(end)
		w.p.RunUntil(func() bool {
			// Posted requests must be transmitted before the clock advances, because transmission may complete them.
			acts := w.acts
			w.work()
			return w.acts != acts || done() || w.wake < planned || w.wake <= w.p.Now()
		}, max(planned.Sub(now), 0))
	}
}

// finished reports whether all requests are complete. It also requires that all messages which must arrive have been
// received.
func (w *world) finished() bool {
	for _, f := range w.flows {
		if !f.done() {
			return false
		}
		for e, st := range f.streams {
			if w.s.typ == qp.RC && !f.failed && st.pos < len(st.msgs) && e.flushes == 0 {
				return false
			}
		}
	}
	return true
}

// finish waits until the pair is idle and breaks the queue pairs. All requests posted before or afterwards must be
// flushed.
func (w *world) finish() {
	w.ending = true
	quiet := func() bool { return w.wire.next() == mono.Never }
	for acts := -1; acts != w.acts || !quiet(); {
		w.drive(quiet)
		w.p.RunIdle()
		acts = w.acts
		w.work() // may post to a broken queue pair, whose timer flushes it
	}
	w.afterRest()
	for _, f := range w.flows {
		f.replaceRest()
		if chance(w.rng, 50) {
			f.post(w.p.Now()) // requests posted last are flushed too
		}
		f.from.qp.Modify(qp.Attr{State: qp.Err}, 0, nil)
	}
	w.drive(w.flushed)
	w.p.RunIdle()
	w.work()
}

// replaceRest leaves a few messages that can only be flushed.
func (f *flow) replaceRest() {
	f.msgs = f.msgs[:f.posted:f.posted]
	for range 3 {
		f.msgs = append(f.msgs, &message{op: qp.WRSend, to: f.to()})
	}
	f.nextAt = 0
}

// flushed reports whether everything is posted and completed.
func (w *world) flushed() bool {
	for _, f := range w.flows {
		if f.known != len(f.msgs) {
			return false
		}
	}
	for _, r := range w.recvs {
		if r.srq == nil && r.known != len(r.slots) {
			return false
		}
	}
	return true
}
