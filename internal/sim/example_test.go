package sim_test

import (
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/workload"
)

// Example: four hosts send 100 KB to a fifth one at once, over a switch that drops packets without buffer.
func Example() {
	s, err := sim.New(sim.Config{
		Graph: fabric.Star(fabric.Wires{HostRate: 100e9, Delay: engine.Microsecond}, 5),
		Switch: func(_, _ int) fabric.SwitchConfig {
			return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 1 << 20}}
		},
		Profile: "irn",
		Apps:    []workload.App{&workload.OpenLoop{Next: workload.List(workload.Incast(5, 0, 4, 100_000, 0))}},
	})
	if err != nil {
		log.Fatal(err)
	}
	r, err := s.Run()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range r.Flows {
		fmt.Printf("host %d: %.1f us\n", f.Src, f.FCT.Seconds()*1e6)
	}
	// Output:
	// host 1: 39.4 us
	// host 2: 39.4 us
	// host 3: 39.5 us
	// host 4: 39.6 us
}

// TestDoc: the tested example is the one that `go doc roced.io/roced/sim` shows.
func TestDoc(t *testing.T) {
	doc, err := os.ReadFile("sim.go")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(example), "func Example() {\n")
	body, _, _ = strings.Cut(body, "\t// Output:")
	lines := 0
	for line := range strings.Lines(body) {
		lines++
		if !strings.Contains(string(doc), "//"+line) {
			t.Errorf("the package's comment does not have %q", line)
		}
	}
	if lines < 10 || lines > 20 {
		t.Errorf("the example has %d lines", lines)
	}
}
