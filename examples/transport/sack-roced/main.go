// Command sack-roced is roced with the transport sack.
package main

import (
	"os"

	"example.org/sack/sack"

	"roced.io/roced/entry/daemon"
)

func main() {
	sack.Register()
	os.Exit(daemon.Main(os.Args[1:]))
}
