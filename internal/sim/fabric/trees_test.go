package fabric

import (
	"testing"

	"roced.io/roced/internal/sim/engine"
)

// TestPauseTrees: paused links form trees; a cycle has no root.
func TestPauseTrees(t *testing.T) {
	g := LeafSpine(Wires{HostRate: 100e9, Delay: engine.Microsecond}, 3, 1, 2, 1)
	n, err := New(new(engine.Engine), Config{Graph: g, Seed: 1, Switch: func(int, int) SwitchConfig { return SwitchConfig{} }})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		link                 string
		paused, roots, depth int
	}{
		{"spine0-leaf2", 1, 1, 1}, // leaf2 has more for a host than its link takes
		{"leaf0-spine0", 2, 1, 2},
		{"h0-leaf0", 3, 1, 3},
		{"h1-leaf0", 4, 1, 3},
		{"leaf1-spine0", 5, 1, 3},
		{"spine0-leaf1", 6, 2, 3}, // packets waiting in leaf1 do not return to their ingress link
	} {
		ls, err := n.Named(step.link)
		if err != nil {
			t.Fatal(err)
		}
		l := ls[0]
		l.paused = 1
		if paused, roots, depth := n.PauseTrees(); paused != step.paused || roots != step.roots || depth != step.depth {
			t.Errorf("with %s: %d paused, %d roots, depth %d; want %+v", step.link, paused, roots, depth, step)
		}
	}
}
