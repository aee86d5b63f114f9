package soak

import (
	"fmt"
	"strings"

	"roced.io/roced/internal/base/fault"
	"roced.io/roced/qp"
)

// counts counts events in one run or in all.
type counts struct {
	seeds                                   int
	posted                                  [10]int // by operation
	done, flushed, delivered, bytes, frames int
	faults                                  map[fault.Action]uint64
	cut                                     int // frames lost while the link was down
	drained                                 int // send queues drained and started again
	status                                  map[qp.Status]int
	retransmitted, rnr, timeouts, implied   uint64
	services                                map[qp.Type]int
}

func newCounts() counts {
	return counts{faults: make(map[fault.Action]uint64), status: make(map[qp.Status]int), services: make(map[qp.Type]int)}
}

// add adds the counts of a run.
func (c *counts) add(o *counts) {
	c.seeds += o.seeds
	for i, n := range o.posted {
		c.posted[i] += n
	}
	c.done += o.done
	c.flushed += o.flushed
	c.delivered += o.delivered
	c.bytes += o.bytes
	c.frames += o.frames
	c.cut += o.cut
	c.drained += o.drained
	c.retransmitted += o.retransmitted
	c.rnr += o.rnr
	c.timeouts += o.timeouts
	c.implied += o.implied
	for k, n := range o.faults {
		c.faults[k] += n
	}
	for k, n := range o.status {
		c.status[k] += n
	}
	for k, n := range o.services {
		c.services[k] += n
	}
}

var opNames = [...]string{"WRITE", "WRITE_IMM", "SEND", "SEND_IMM", "READ", "CMP_SWAP", "FETCH_ADD", "LOCAL_INV", "BIND_MW", "SEND_INV"}

var faultKinds = []fault.Action{fault.Drop, fault.Duplicate, fault.Delay, fault.Reorder, fault.Corrupt, fault.Truncate, fault.ECN}

// String returns the summary.
func (c *counts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds (RC %d, UC %d, UD %d): %d requests done, %d flushed or failed, %d messages received, %d MiB, %d datagrams\n",
		c.seeds, c.services[qp.RC], c.services[qp.UC], c.services[qp.UD], c.done, c.flushed, c.delivered, c.bytes>>20, c.frames)
	b.WriteString("  faults:")
	for _, k := range faultKinds {
		fmt.Fprintf(&b, " %s %d", k, c.faults[k])
	}
	fmt.Fprintf(&b, " link-down %d; queues drained %d\n  posted:", c.cut, c.drained)
	for i, n := range c.posted {
		fmt.Fprintf(&b, " %s %d", opNames[i], n)
	}
	fmt.Fprintf(&b, "\n  retransmitted %d, timeouts %d, implied NAKs %d, RNR NAKs %d; connections broken: RETRY_EXC %d, RNR_RETRY_EXC %d",
		c.retransmitted, c.timeouts, c.implied, c.rnr, c.status[qp.StatusRetryExcErr], c.status[qp.StatusRNRRetryExcErr])
	return b.String()
}

// missing returns the names of events that never occurred.
func (c *counts) missing() (names []string) {
	check := func(name string, n uint64) {
		if n == 0 {
			names = append(names, name)
		}
	}
	for _, k := range faultKinds {
		check(string(k), c.faults[k])
	}
	for i, n := range c.posted {
		check(opNames[i], uint64(n))
	}
	check("link down", uint64(c.cut))
	check("drained queue", uint64(c.drained))
	check("retransmission", c.retransmitted)
	check("timeout", c.timeouts)
	check("implied NAK", c.implied)
	check("RNR NAK", c.rnr)
	check("RETRY_EXC", uint64(c.status[qp.StatusRetryExcErr]))
	check("RNR_RETRY_EXC", uint64(c.status[qp.StatusRNRRetryExcErr]))
	return names
}
