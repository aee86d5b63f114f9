package cli

import (
	"bytes"
	"runtime/pprof"

	"roced.io/roced/internal/base/cpushare"
	"roced.io/roced/internal/sim/result"
)

// parts are the parts of the simulator that --profile distinguishes.
var parts = []cpushare.Part{
	{Name: "engine", Packages: []string{"roced.io/roced/internal/sim/engine"}},
	{Name: "fabric", Packages: []string{"roced.io/roced/internal/sim/fabric", "roced.io/roced/internal/sim/prefetch"}},
	{Name: "NICs", Packages: []string{"roced.io/roced/internal/sim/nic", "roced.io/roced/internal/base/sched", "roced.io/roced/internal/base/ring"}},
	{Name: "transport", Packages: []string{"roced.io/roced/qp", "roced.io/roced/reorder", "roced.io/roced/retrans", "roced.io/roced/path", "roced.io/roced/ccalgo", "roced.io/roced/internal/base/bitpool",
		"roced.io/roced/bth", "roced.io/roced/plugin/mono", "roced.io/roced/plugin/param", "roced.io/roced/qp/profile"}},
	{Name: "workload", Packages: []string{"roced.io/roced/internal/sim/workload", "roced.io/roced/internal/sim", "roced.io/roced/internal/sim/result", "roced.io/roced/internal/sim/scenario"}},
}

// runtimePart is the rest, mostly garbage collection.
const runtimePart = "Go's runtime"

// profiled runs a simulation and records the CPU time of its parts.
func profiled(run func() (*result.Result, error)) (*result.Result, error) {
	var file bytes.Buffer
	if err := pprof.StartCPUProfile(&file); err != nil {
		return nil, err
	}
	r, err := run()
	pprof.StopCPUProfile()
	if err != nil {
		return r, err
	}
	r.CPU, err = cpushare.Read(file.Bytes(), parts, runtimePart)
	return r, err
}
