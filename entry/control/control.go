// Package control is the program rocectl as a function, for programs that add
// transports: register them, then call Main. Then decode shows the fields of their
// packets by name. docs/tutorials/transport.md explains how.
package control

import (
	"os"

	"roced.io/roced/internal/ctl"
)

// Main runs the program rocectl with a command line, without the name of the program
// ("decode", "out.pcapng"). It returns the exit code: 0 for success, 1 for a failure,
// 2 for a wrong command line.
func Main(args []string) int { return ctl.Main(args, os.Stdout, os.Stderr) }
