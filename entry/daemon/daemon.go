// Package daemon is the way into roced for programs that bring plug-ins of their own: register them,
// then call Main. docs/guides/extending.md tells how; examples/congestion is one.
package daemon

import (
	"os"

	"roced.io/roced/internal/cli/roced"
)

// Main is the program roced: it runs the daemon that a command line without the program's name
// describes ("run", "--config", "nic.yaml") until it is told to end, and returns the exit code: 0, 1 if it
// failed, 2 if the command line or the configuration is wrong.
func Main(args []string) int { return roced.Main(args, os.Stdout, os.Stderr) }
