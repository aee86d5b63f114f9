// Package daemon is the program roced as a function, for programs that add plug-ins:
// register them, then call Main. docs/guides/extending.md explains how;
// examples/congestion is complete.
package daemon

import (
	"os"

	"roced.io/roced/internal/daemon/cli"
)

// Main runs the program roced with a command line, without the name of the program
// ("run", "--config", "nic.yaml"), until it ends. It returns the exit code: 0 for
// success, 1 for a failure, 2 for a wrong command line or configuration.
func Main(args []string) int { return cli.Main(args, os.Stdout, os.Stderr) }
