package loss

import (
	"fmt"
	"os"
	"slices"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// sample is one measurement.
type sample struct {
	Gbps          float64 // payload
	retransmitted float64 // retransmissions as a share of all packets
}

// medians measures a profile on a network.
func medians(run *measure.Run, n *network, s *subject) (result, error) {
	medians, conditions := result{}, slices.DeleteFunc(slices.Clone(n.conditions), func(c condition) bool { return !c.suits(s) })
	return medians, run.Lab(netlab.LabOptions{Extra: n.yaml(s) + window}, func(l *netlab.Lab) error {
		if _, err := take(run, l, conditions[0].rules, 1); err != nil { // address resolution completes before the measurement
			return err
		}
		samples, err := measure.Alternate(run.Rounds, len(conditions), func(i int) (sample, error) {
			v, err := take(run, l, conditions[i].rulesFor(s), run.Seconds)
			if err != nil {
				err = fmt.Errorf("%s: %w", conditions[i].name, err)
			}
			return v, err
		})
		if err != nil {
			return err
		}
		for i, c := range conditions {
			m := measure.Middle(samples[i], func(s sample) float64 { return s.Gbps })
			medians[c.name] = m
			fmt.Fprintf(os.Stderr, "  %-28s %-42s %-8s %6.2f Gb/s, %4.1f %% retransmitted\n", n.name, s.name, c.name, m.Gbps, 100*m.retransmitted)
		}
		return nil
	})
}

// take measures WRITEs of 64 KiB under fault rules.
func take(run *measure.Run, l *netlab.Lab, rules []string, seconds int) (s sample, err error) {
	if err := l.SetFaults(run.Ctx, 0, rules...); err != nil {
		return s, err
	}
	before, err := run.Counters(l, 0)
	if err != nil {
		return s, err
	}
	r, err := run.Roceperf(l, seconds, "write-bw", "-s", "64k", "-u", "14")
	if err != nil {
		return s, err
	}
	after, err := run.Counters(l, 0)
	grown := func(name string) float64 { return float64(after[name] - before[name]) }
	return sample{r.Gbps, grown("retransmitted_packets") / max(grown("sent_pkts"), 1)}, err
}
