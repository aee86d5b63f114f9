// Command florbench measures calls by Flor on real frames between two network namespaces, and writes a report. In the
// same run it measures WRITEs of roceperf and the same calls by plain RC. Compare only results of one run.
package main

import (
	"strings"

	"roced.io/roced/internal/lab/bench/measure"
)

// names are the parts of the report.
var names = []string{"bandwidth", "rate", "latency", "acks", "switchover", "loss"}

func main() {
	measure.Main("florbench", "one part: "+strings.Join(names, ", "), measure.Run{Seconds: 2, Rounds: 3}, write)
}
