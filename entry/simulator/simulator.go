// Package simulator is the way into rocesim for programs that bring plug-ins of their own: register
// them, then call Main. docs/guides/extending.md tells how; examples/congestion is one. Who wants results in Go
// rather than files uses package internal/sim.
package simulator

import (
	"os"

	"roced.io/roced/internal/cli/sim"
)

// Main is the program rocesim: it does what a command line without the program's name says
// ("run", "scenario.yaml") and returns the exit code: 0, 1 if the simulation failed, 2 if the command line
// or the scenario is wrong, 130 if it was interrupted.
func Main(args []string) int { return sim.Main(args, os.Stdout, os.Stderr) }
