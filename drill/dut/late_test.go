package dut

import (
	"os"
	"strings"
	"testing"
	"time"

	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
)

// TestLate: a tester or an agent that was late makes a run inconclusive, but a device that was late fails.
func TestLate(t *testing.T) {
	const slack, late, soon = time.Hour, 2 * time.Hour, time.Millisecond
	for name, c := range map[string]struct {
		late    lateness
		waited  time.Duration
		outcome engine.Outcome
		silent  bool // nothing came in time
		want    string
	}{
		"in time":                      {lateness{soon, soon}, soon, engine.Passed, false, ""},
		"sent late":                    {lateness{sends: late}, 0, engine.Passed, false, "the tester sent late by 2h0m0s, more than the slack of 1h0m0s (--slack)"},
		"read late":                    {lateness{reads: late}, 0, engine.Passed, false, ""},
		"failed":                       {lateness{soon, soon}, soon, engine.Failed, true, ""},
		"failed, read late":            {lateness{reads: late}, 0, engine.Failed, false, "the tester read late by 2h0m0s, more than the slack of 1h0m0s (--slack); reason"},
		"failed, waited":               {lateness{}, late, engine.Failed, true, "the device waited for a processor for 2h0m0s"},
		"failed in time, waited":       {lateness{}, late, engine.Failed, false, ""},
		"failed, read after a timeout": {lateness{reads: soon}, 0, engine.Failed, false, "the tester read late by 1ms, more than the device's acknowledgement timeout of 500µs; reason"},
		"passed, read after a timeout": {lateness{sends: soon, reads: soon}, 0, engine.Passed, false, ""},
		"failed, too early":            {lateness{}, soon, engine.Failed, true, "the device waited for a processor for 1ms, more than the 500µs by which it was too early; reason"},
		"failed, much too early":       {lateness{}, soon / 4, engine.Failed, true, ""},
		"not applicable, sent late":    {lateness{sends: late}, 0, engine.NotApplicable, false, ""},
		"an agent that answers slowly": {lateness{}, 0, engine.Failed, false, "the agent answered after"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, opens+"while read n line; do case $1 in slow) sleep 0.01;; esac; echo $n ok; done")
			limit := slack
			if strings.HasPrefix(c.want, "the agent") {
				f.agent.Command += " slow"
				limit = soon
			}
			f.connect(t, false)
			f.agent.Slack = limit
			s := f.session(t)
			r := &engine.Result{Outcome: c.outcome, Timed: c.silent}
			if c.outcome == engine.Failed {
				r.Text = "reason"
			}
			if strings.Contains(name, "after a timeout") {
				r.AckTimeout = soon / 2
			}
			if strings.HasSuffix(name, "too early") {
				r.Early = soon / 2
			}
			s.late = c.late
			if err := s.judge(t.Context(), r, c.waited); err != nil || (r.Outcome == engine.Inconclusive) != (c.want != "") || !strings.HasPrefix(r.Text, c.want) {
				t.Errorf("%v: %s, %v", r.Outcome, r.Text, err)
			}
		})
	}
}

// TestRepeated: an inconclusive run is repeated. The tester reads the frame of a device too late in the first one.
func TestRepeated(t *testing.T) {
	f := newFake(t, answers)
	f.connect(t, false)
	s := f.session(t)
	text, err := script.Parse("x.drill", "spec \"x\" must\nneed rc\nqp = dut.qp rc\n> SEND_ONLY within 1ms")
	if err != nil {
		t.Fatal(err)
	}
	before := s.ids.current.Load()
	s.options.Slack = time.Nanosecond // the tester is always late
	if r, err := s.Run(t.Context(), text, 0); err != nil || r.Outcome != engine.Inconclusive {
		t.Errorf("%+v, %v", r, err)
	}
	if n := s.ids.current.Load() - before; n != runs {
		t.Errorf("%d runs, want %d", n, runs)
	}
}

// TestSlack: the slack is measured by the agent's round trip, unless the user sets it.
func TestSlack(t *testing.T) {
	const slow = "read n line; echo $n ok version=5 caps=rc,ipv4\nwhile read n line; do sleep 0.05; echo $n ok; done\n"
	for _, c := range []struct{ set, least, most time.Duration }{{0, leastSlack + 100*time.Millisecond, time.Hour}, {time.Millisecond, time.Millisecond, time.Millisecond}} {
		f := newFake(t, slow)
		f.connect(t, false)
		f.agent.Slack = c.set
		s, err := StartAgent(t.Context(), f.agent)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Slack(); got < c.least || got > c.most {
			t.Errorf("slack %v, want at least %v", got, c.least)
		}
		s.Close()
	}
}

// TestWaits: this process has waited for a processor at some time.
func TestWaits(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the kernel does not tell how long threads wait")
	}
	if got := waits([]int{os.Getpid()}); got <= 0 || waits(nil) != 0 {
		t.Errorf("waited %v", got)
	}
}
