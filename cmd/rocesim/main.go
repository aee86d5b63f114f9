// Command rocesim simulates RDMA over a fabric, with the transports of the daemon.
package main

import (
	"os"

	"roced.io/roced/internal/sim/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
