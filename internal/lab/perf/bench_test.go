package perf

import (
	"strings"
	"testing"
)

// BenchmarkDaemon runs roceperf for a second each, with the daemon in the same process. Its profile optimizes the daemon
// (make profiles).
func BenchmarkDaemon(b *testing.B) {
	for _, line := range []string{
		"write-bw -s 64", "write-bw -s 4k -q 8", "write-bw -s 64k", "send-bw -s 64", "send-bw -s 64k", "read-bw -s 64k",
		"write-lat", "send-lat", "read-lat", "atomic-lat",
	} {
		b.Run(line, func(b *testing.B) {
			l := newNICs(b)
			test, flags, _ := strings.Cut(line, " ")
			for b.Loop() {
				r := l.start(b, test, flags+" -D 1s").results(b)
				b.ReportMetric(r[0].MessagesPerSecond, "messages/s")
			}
		})
	}
}
