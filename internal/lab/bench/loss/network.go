package loss

import (
	"fmt"

	"roced.io/roced/internal/lab/bench/measure"
)

// network is the link between the NICs, and its conditions.
type network struct {
	name, about string
	yaml        func(*subject) string
	conditions  []condition
}

// condition is a set of faults on a network.
type condition struct {
	name   string
	base   string // the condition to compare with; empty: this is a base itself
	rules  []string
	spread []string // replaces the rules for profiles that choose paths themselves
	evs    bool     // only for profiles that exclude paths
}

// Conditions with goals.
const (
	noLoss    = "no loss"
	percent   = "1 %"
	fourPaths = "4 paths"
	badPath   = "1 of 16 paths loses 20 %"
)

// rate is the rate of the line: the NIC paces as if its port had this speed. It is a third of the capacity of two slow
// cores, so that they have time to handle losses.
const rate = "    congestion: {algorithm: static, rate_bps: 1e9}\n"

// flight limits the data in flight, most of which is in queues between processes. With an equally large window of
// unacknowledged packets, each loss would cost a round trip: the sender counts lost packets as unacknowledged.
const flight = "    congestion: {algorithm: static, window_bytes: 262144}\n"

var networks = []network{
	{
		name: "A line of 1 Gb/s",
		about: `The NIC sends 1 Gb/s (rate limiter; so does mp-rdma, whose own window would grow where nothing marks ECN), and all
packets are late by 2.2 ms: about 67 packets are in the network. The transport decides, not the processors. With "4
paths", packets are late by 2.20, 2.26, 2.32 or 2.38 ms: at random as if switches sprayed them, or by the UDP source
port for mp-rdma, which chooses paths itself. That is compared with "1 path" of 2.29 ms.`,
		yaml: func(s *subject) string { return s.yaml + s.line },
		conditions: append(losses(1./16384, 1./4096, 1./1024, 1./256, 0.01, 0.05)("tx delay 2200us"),
			condition{name: "1 path", rules: []string{"tx delay 2290us"}},
			condition{name: fourPaths, base: "1 path",
				rules:  []string{"tx delay 2200us", "tx delay 60us p=0.5 seed=3", "tx delay 120us p=0.5 seed=4"},
				spread: []string{"tx delay 2200us path=0/4", "tx delay 2260us path=1/4", "tx delay 2320us path=2/4", "tx delay 2380us path=3/4"},
			},
			condition{name: badPath, base: noLoss, rules: []string{"tx delay 2200us", "tx drop p=0.2 path=5/16 seed=7"}, evs: true}),
	},
	{
		name: "As fast as the processors go",
		about: `Nothing limits but the processors, which are also what losses cost: packets sent again, and an acknowledgement for
each packet behind a gap, where many in order share one. The packets of a whole window are in the network, most of
them in queues between processes. With "4 paths", packets are late by 0, 20, 40 or 60 us; that is compared with "1
path", where all are late by 30 us, for delaying them costs processor time as well.`,
		yaml: func(s *subject) string { return s.yaml + s.busy },
		conditions: append(losses(1./1024, 1./256, 0.01)(measure.IdleRule),
			condition{name: "1 path", rules: []string{"tx delay 30us"}},
			condition{name: fourPaths, base: "1 path",
				rules:  []string{"tx delay 20us p=0.5 seed=3", "tx delay 40us p=0.5 seed=4"},
				spread: []string{"tx delay 20us path=1/4", "tx delay 40us path=2/4", "tx delay 60us path=3/4"},
			},
			condition{name: badPath, base: noLoss, rules: []string{"tx drop p=0.2 path=5/16 seed=7"}, evs: true}),
	},
}

// losses returns a condition for each loss share, in both directions, on a network with other rules.
func losses(share ...float64) func(rules ...string) []condition {
	return func(rules ...string) []condition {
		all := []condition{{name: noLoss, rules: rules}}
		for _, p := range share {
			name := fmt.Sprintf("1/%.0f", 1/p)
			if p >= 0.01 {
				name = fmt.Sprintf("%.0f %%", 100*p)
			}
			all = append(all, condition{name: name, base: noLoss, rules: append([]string{measure.LossRule(p)}, rules...)})
		}
		return all
	}
}

// rulesFor returns the fault rules of c.
func (c *condition) rulesFor(s *subject) []string {
	if s.spread && c.spread != nil {
		return c.spread
	}
	return c.rules
}

// suits reports whether the condition is measured for s.
func (c *condition) suits(s *subject) bool { return s.evs || !c.evs }
