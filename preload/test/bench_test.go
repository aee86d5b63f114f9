package test

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkRegister measures the registration and deregistration of 64 KiB in microseconds (median and mean): on an idle
// machine, with one spinning process per processor, and in a program with 16,000 mappings.
func BenchmarkRegister(b *testing.B) {
	const turns = "2000"
	for _, load := range []struct{ spinners, mappings int }{{0, 0}, {runtime.NumCPU(), 0}, {0, 16000}} {
		for _, kind := range []string{"inside", "again", "new", "overlap"} {
			b.Run(fmt.Sprintf("%s/spinners=%d/mappings=%d", kind, load.spinners, load.mappings), func(b *testing.B) {
				out, err := verbs(b, newLab(b), "regcost", kind, "65536", strconv.Itoa(load.spinners), turns,
					strconv.Itoa(load.mappings)).CombinedOutput()
				var median, mean float64
				if _, serr := fmt.Sscan(string(out), &median, &mean); err != nil || serr != nil {
					b.Fatalf("%v, %v\n%s", err, serr, out)
				}
				b.ReportMetric(median, "us/median")
				b.ReportMetric(mean, "us/mean")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkSocketCalls measures the cost of the library in nanoseconds per call of each interposed function of sockets.
func BenchmarkSocketCalls(b *testing.B) {
	out, err := verbs(b, newLab(b), "socketcost").CombinedOutput()
	if err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		var name string
		var with, without float64
		if _, err := fmt.Sscan(line, &name, &with, &without); err != nil {
			b.Fatalf("%q: %v", line, err)
		}
		b.ReportMetric(with-without, "ns/"+name)
	}
	b.ReportMetric(0, "ns/op")
}
