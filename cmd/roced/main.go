// Command roced is the software RoCEv2 NIC daemon.
package main

import (
	"os"

	"roced.io/roced/internal/daemon/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
