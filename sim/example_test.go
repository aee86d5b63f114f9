package sim_test

import (
	"fmt"

	"roced/sim"
	"roced/sim/engine"
	"roced/sim/fabric"
	"roced/sim/workload"
)

// Four hosts send 100 KB to a fifth one at once, over a switch that drops what it has no room for.
func Example() {
	wires := fabric.Wires{HostRate: 100e9, Delay: engine.Microsecond}
	s, err := sim.New(sim.Config{
		Graph: fabric.Star(wires, 5),
		Switch: func(_, ports int) fabric.SwitchConfig {
			return fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: 1 << 20}}
		},
		Profile: "irn",
		Apps:    []workload.App{&workload.OpenLoop{Next: workload.List(workload.Incast(5, 0, 4, 100_000, 0))}},
	})
	if err != nil {
		panic(err)
	}
	r, err := s.Run()
	if err != nil {
		panic(err)
	}
	for _, f := range r.Flows {
		fmt.Printf("host %d: %.1f us\n", f.Src, float64(f.FCT)/float64(engine.Microsecond))
	}
	// Output:
	// host 1: 39.4 us
	// host 2: 39.4 us
	// host 3: 39.5 us
	// host 4: 39.6 us
}
