// Command aimd-rocesim is the simulator with one congestion control more.
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
