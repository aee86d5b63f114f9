// Package simulator is the program rocesim as a function, for programs that add
// plug-ins: register them, then call Main. docs/guides/extending.md explains how;
// examples/congestion is complete. Package simtest returns results in Go.
package simulator

import (
	"os"

	"roced.io/roced/internal/cli/sim"
)

// Main runs the program rocesim with a command line, without the name of the program
// ("run", "scenario.yaml"). It returns the exit code: 0 for success, 1 for a failed
// simulation, 2 for a wrong command line or scenario, 130 after an interrupt.
func Main(args []string) int { return sim.Main(args, os.Stdout, os.Stderr) }
