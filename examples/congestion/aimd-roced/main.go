// Command aimd-roced is roced with the congestion control aimd.
package main

import (
	"os"

	"example.org/aimd/aimd"

	"roced.io/roced/entry/daemon"
)

func main() {
	aimd.Register()
	os.Exit(daemon.Main(os.Args[1:]))
}
