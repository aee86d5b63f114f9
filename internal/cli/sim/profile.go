package sim

import (
	"bytes"
	"runtime/pprof"

	"roced/internal/cpushare"
	"roced/sim/result"
)

// parts are those whose time --profile tells.
var parts = []cpushare.Part{
	{Name: "engine", Packages: []string{"roced/sim/engine"}},
	{Name: "fabric", Packages: []string{"roced/sim/fabric", "roced/sim/prefetch"}},
	{Name: "NICs", Packages: []string{"roced/sim/nic", "roced/sched", "roced/ring"}},
	{Name: "transport", Packages: []string{"roced/qp", "roced/reorder", "roced/retrans", "roced/path", "roced/ccalgo", "roced/bitpool",
		"roced/bth", "roced/mono", "roced/param", "roced/profile"}},
	{Name: "workload", Packages: []string{"roced/sim/workload", "roced/sim", "roced/sim/result", "roced/sim/scenario"}},
}

// runtimePart is what belongs to no part: garbage collection above all.
const runtimePart = "Go's runtime"

// profiled runs a simulation and notes where the CPU's time went.
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
