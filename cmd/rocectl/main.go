// Command rocectl shows and controls a running roced.
package main

import (
	"os"

	"roced.io/roced/internal/ctl"
)

func main() { os.Exit(ctl.Main(os.Args[1:], os.Stdout, os.Stderr)) }
