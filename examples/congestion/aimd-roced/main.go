// Command aimd-roced is the daemon with one congestion control more.
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
