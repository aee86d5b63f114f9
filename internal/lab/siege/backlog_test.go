package siege

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"roced.io/roced/verbs"
)

// load is a program that keeps bytes outstanding from one device to the next.
type load struct {
	device     int
	queuePairs int
	bytes      int
	op         verbs.Opcode
}

// loadMessage is the size of its messages.
const loadMessage = 64 << 10

const loadFormat = "load,%d,%d,%d,%d"

// String returns the name of the program for Main.
func (l load) String() string { return fmt.Sprintf(loadFormat, l.device, l.queuePairs, l.bytes, l.op) }

func parseLoad(name string) (l load, ok bool) {
	n, _ := fmt.Sscanf(name, loadFormat, &l.device, &l.queuePairs, &l.bytes, &l.op)
	return l, n == 4
}

// backlog keeps 32 MiB outstanding on one, 16 or 64 queue pairs.
func backlog(runDir string, rng *rand.Rand) {
	load{queuePairs: []int{1, 16, 64}[rng.IntN(3)], bytes: 32 << 20, op: []verbs.Opcode{verbs.OpWrite, verbs.OpRead}[rng.IntN(2)]}.run(runDir, rng)
}

// run implements attack.
func (l load) run(runDir string, _ *rand.Rand) {
	each := max(l.bytes/loadMessage/l.queuePairs, 1)
	p := &pair{depth: each}
	defer p.close()
	if p.connect([2]string{device(runDir, l.device), device(runDir, l.device+1)}, l.queuePairs, loadMessage) != nil {
		return
	}
	post := func(i uint64) error {
		return p.from[i].PostSend(&verbs.SendWR{WRID: i, Opcode: l.op, Flags: verbs.SendSignaled,
			SGEs: []verbs.SGE{p.src.SGE(0, loadMessage)}, RemoteAddr: p.dst.Addr(), RKey: p.dst.RKey()})
	}
	for i := range l.queuePairs {
		for range each {
			if post(uint64(i)) != nil {
				return
			}
		}
	}
	var wcs [64]verbs.WC
	for begun := time.Now(); time.Since(begun) < time.Second; {
		n, err := p.cq.PollWait(context.Background(), wcs[:])
		for i := range max(n, 0) {
			if err == nil {
				err = wcs[i].Err()
			}
			if err == nil {
				err = post(wcs[i].WRID)
			}
		}
		if err != nil {
			return
		}
	}
}

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
