// Curves draws the reactions of congestion control. Each script has CNPs, marks, round-trip times and
// losses; the curve is the resulting rate or window of the algorithm. The test compares the curves as text; this
// program draws them.
//
// # Scenarios
//
//	title WORDS                     above the picture
//	algorithm NAME [PARAM=VALUE]... as in the configuration
//	mtu BYTES                       path MTU, default 1024
//	until TIME every TIME           end of the curve, and interval of its points
//	at TIME EVENT                   once
//	from TIME to TIME every TIME EVENT
//
// Events are
//
//	cnp                             a congestion notification packet
//	send BYTES [full]               a packet was sent; full: the whole window is then in flight
//	ack BYTES|window [rtt=TIME] [ecn] [full]  an acknowledgement of so many bytes; full: the rest of the window is in flight
//	                                further options: report, penalty=N, restore: with MRC's report of the receiver;
//	                                load=PART, queued=BYTES: with telemetry of a link of 100 Gb/s
//	nack REASON [rtt=TIME]          MRC's report of a dropped packet, with its number
//	loss [timeout]
//
// Lines that begin with # are comments.
package main

import (
	"embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:embed scripts/*.txt
var files embed.FS

func main() {
	out := flag.String("out", "docs/curves", "folder of the pictures")
	flag.Parse()
	if err := draw(*out); err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
}

// draw writes one picture for each script.
func draw(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range scripts() {
		c, err := load(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), c.svg(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// scripts returns the names of the scripts.
func scripts() (names []string) {
	entries, err := files.ReadDir("scripts")
	if err != nil {
		panic(err) // the folder is embedded in the program
	}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".txt"))
	}
	return names
}

// load runs the named script.
func load(name string) (*curve, error) {
	text, err := files.ReadFile("scripts/" + name + ".txt")
	if err != nil {
		return nil, err
	}
	s, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s.run()
}
