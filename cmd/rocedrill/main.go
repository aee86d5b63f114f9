// Command rocedrill tests RoCEv2 devices packet by packet, by scripts.
package main

import (
	"os"

	"roced.io/roced/internal/cli/drill"
)

func main() { os.Exit(drill.Main(os.Args[1:], os.Stdout, os.Stderr)) }
