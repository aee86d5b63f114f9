package siege

import (
	"context"
	"fmt"
	"math/rand/v2"
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
