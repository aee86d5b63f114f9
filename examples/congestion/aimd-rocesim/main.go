// Command aimd-rocesim is rocesim with the congestion control aimd.
package main

import (
	"os"

	"example.org/aimd/aimd"

	"roced.io/roced/entry/simulator"
)

func main() {
	aimd.Register()
	os.Exit(simulator.Main(os.Args[1:]))
}
