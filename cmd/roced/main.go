// Command roced is the software RoCEv2 NIC daemon.
package main

import (
	"os"

	"roced.io/roced/internal/cli/roced"
)

func main() { os.Exit(roced.Main(os.Args[1:], os.Stdout, os.Stderr)) }
