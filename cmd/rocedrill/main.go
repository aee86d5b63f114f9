// Command rocedrill tests RoCEv2 devices packet by packet, by scripts.
package main

import (
	"os"

	"roced.io/roced/drill/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
