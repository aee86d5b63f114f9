// Command sack-rocectl is rocectl with the transport sack.
package main

import (
	"os"

	"example.org/sack/sack"

	"roced.io/roced/entry/control"
)

func main() {
	sack.Register()
	os.Exit(control.Main(os.Args[1:]))
}
