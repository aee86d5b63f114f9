// Command sack-rocesim is rocesim with the transport sack.
package main

import (
	"os"

	"example.org/sack/sack"

	"roced.io/roced/entry/simulator"
)

func main() {
	sack.Register()
	os.Exit(simulator.Main(os.Args[1:]))
}
