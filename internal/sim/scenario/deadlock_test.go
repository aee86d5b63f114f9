package scenario

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/result"
)

// inRing simulates configs/sim/deadlock.yaml with changes.
func inRing(t *testing.T, set ...string) (*result.Result, error) {
	t.Helper()
	text, err := os.ReadFile("../../../configs/sim/deadlock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := config(string(text), set...)
	if err != nil {
		t.Fatal(err)
	}
	c.Check = true
	s, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s.Run()
}

// TestDeadlock: the summary names the cycle of links that stopped each other, and the run ends although flow control would not.
func TestDeadlock(t *testing.T) {
	r, err := inRing(t)
	if !errors.Is(err, sim.ErrUnfinished) || r.Ended > 20*engine.Millisecond {
		t.Fatalf("ends at %v ps: %v", r.Ended, err)
	}
	want := []string{"s0-s1", "s1-s2", "s2-s3", "s3-s4", "s4-s0"}
	if d := r.Deadlock; d == nil || d.Class != 0 || !slices.Equal(d.Links, want) || d.Since < 10*engine.Microsecond || d.Since > 50*engine.Microsecond {
		t.Errorf("%+v, want %v", d, want)
	}
	var out bytes.Buffer
	r.WriteText(&out)
	if want := "PFC deadlock of class 0 since 0.019 ms, each link waits for the next: s0-s1, s1-s2, s2-s3, s3-s4, s4-s0, s0-s1\n"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
	for _, set := range [][]string{
		{"stop=2ms"},
		{"stop=2ms", "switch.scheduling=srpt"},
	} {
		if r, err := inRing(t, set...); err != nil || r.Deadlock == nil || !slices.Equal(r.Deadlock.Links, want) || r.Ended != 2*engine.Millisecond {
			t.Errorf("%v: %+v, %v", set, r.Deadlock, err)
		}
	}
}

// TestNoDeadlock: links that stop each other in a cycle, and resume, are no deadlock; neither is a cycle of lossy classes.
func TestNoDeadlock(t *testing.T) {
	for _, set := range [][]string{
		{"stop=2ms", "switch.scheduling=voq"},
		{"stop=2ms", "transport.congestion.name=swift"},
		{"stop=2ms", "switch={buffer: 1MiB}", "transport.profile=irn"},
		{"workload=[{kind: incast, to: 0, senders: 4, size: 1MB}]"},
		{"workload.0={kind: stream, from: 0, to: 1, size: 1MB, until: 1ms}"}, // there is no cycle
	} {
		if r, err := inRing(t, set...); err != nil || r.Deadlock != nil || len(r.Flows) < 4 {
			t.Errorf("%v: %+v, %d messages, %v", set, r.Deadlock, len(r.Flows), err)
		}
	}
}
