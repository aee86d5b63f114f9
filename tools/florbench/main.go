// Command florbench measures calls by Flor on real frames between two network namespaces, and writes a report. In the
// same run it measures WRITEs of roceperf and the same calls by plain RC. Compare only results of one run.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// names are the parts of the report.
var names = []string{"bandwidth", "rate", "latency", "acks", "switchover", "loss"}

func main() {
	b := bench{}
	flag.StringVar(&b.bin, "bin", "bin", "folder of the programs")
	flag.IntVar(&b.seconds, "seconds", 2, "length of each measurement")
	flag.IntVar(&b.rounds, "rounds", 3, "measurements of each kind; the median counts")
	flag.StringVar(&b.only, "only", "", "one part: "+strings.Join(names, ", "))
	out := flag.String("out", "", "report to write, in Markdown; none: print it only")
	flag.Parse()
	if b.only != "" && !slices.Contains(names, b.only) {
		fmt.Fprintf(os.Stderr, "florbench: no part %q; there are %s\n", b.only, strings.Join(names, ", "))
		os.Exit(2)
	}
	if err := b.run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "florbench:", err)
		os.Exit(1)
	}
}
