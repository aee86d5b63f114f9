package siege

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"roced.io/roced/verbs"
)

// BenchmarkBacklog measures WRITEs of 1 KiB, one after another, beside a program of another user with 32 MiB outstanding.
// It alternates with one that has two messages of 64 KiB outstanding on one queue pair, and reports the medians of both
// 99th percentiles and their ratio.
func BenchmarkBacklog(b *testing.B) {
	c := newCastle(b)
	for _, link := range []struct {
		name   string
		device int
	}{{"unix", 0}, {"packet", onPacket}} {
		for name, op := range map[string]verbs.Opcode{"write": verbs.OpWrite, "read": verbs.OpRead} {
			for _, k := range []int{1, 16, 64} {
				b.Run(fmt.Sprintf("%s/%s/%d", link.name, name, k), func(b *testing.B) { c.compare(b, load{link.device, k, 32 << 20, op}) })
			}
		}
	}
}

// compare measures a victim beside l, and beside a program that just saturates the link.
func (c *castle) compare(b *testing.B, l load) {
	victim := &pair{}
	defer victim.close()
	must(b, victim.connect([2]string{device(c.runDir(), l.device), device(c.runDir(), l.device+1)}, 1, 4096))
	programs := [2]load{{l.device, 1, 2 * loadMessage, l.op}, l}
	var p99 [2][]time.Duration
	for b.Loop() {
		for i, program := range programs {
			stop := c.attacker(program.String(), 0)
			c.watch(victim, 200*time.Millisecond, func() {}) // until the program runs
			p99[i] = append(p99[i], c.watch(victim, time.Second, func() {}).at(0.99))
			stop()
		}
	}
	var ms [2]float64
	for i := range p99 {
		slices.Sort(p99[i])
		ms[i] = float64(p99[i][len(p99[i])/2]) / 1e6
	}
	b.ReportMetric(ms[0], "ms-saturated")
	b.ReportMetric(ms[1], "ms-backlog")
	b.ReportMetric(ms[1]/ms[0], "ratio")
}
