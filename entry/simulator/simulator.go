// Package simulator is the program rocesim as a function, for programs that add
// plug-ins: register them, then call Main. docs/guides/extending.md explains how;
// examples/congestion is complete. Package simtest returns results in Go.
package simulator

import (
	"os"

	"roced.io/roced/internal/sim/cli"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/plugin/balance"
	"roced.io/roced/plugin/param"
)

// RegisterBalancer adds a load balancer of the calling program for simulated switches, under a name that is free. make reads
// the parameters from r and returns the balancer of a switch; r reports errors of parameters. Scenarios select it by
// switch.balance.
//
// Call it at the beginning of main or in a test's init: look-ups take no lock. It panics if the name is taken, or if a
// parameter has the name of one of a built-in balancer.
func RegisterBalancer(name string, make func(r *param.Reader) balance.Balancer) {
	fabric.Register(name, make)
}

// Main runs the program rocesim with a command line, without the name of the program
// ("run", "scenario.yaml"). It returns the exit code: 0 for success, 1 for a failed
// simulation, 2 for a wrong command line or scenario, 130 after an interrupt.
func Main(args []string) int { return cli.Main(args, os.Stdout, os.Stderr) }
