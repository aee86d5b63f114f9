package check

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"roced.io/roced/bth"
)

// way is the direction of packets between two hosts.
type way struct{ from, to netip.Addr }

// notifications checks that a host sends congestion notification packets (CNPs) only for marked packets (IBTA A17.9.3), and
// measures how soon.
func (c *capture) notifications() Check {
	k := Check{Name: "CNPs for marks"}
	marked := map[way]*packet{} // the last marked packet, by its direction
	var times []time.Duration
	var frames [][]int
	marks, cnps := 0, 0
	for i := range c.packets {
		p := &c.packets[i]
		if p.copied {
			continue
		}
		if !p.opcode.IsCNP() {
			if p.marked {
				marks++
				marked[p.stream.way] = p
			}
			continue
		}
		cnps++
		m := marked[way{p.stream.to, p.stream.from}]
		if m == nil {
			k.Findings = append(k.Findings, Finding{[]int{p.frame}, fmt.Sprintf("a CNP for queue pair %#x without a marked packet before", uint32(p.stream.qpn))})
			continue
		}
		times, frames = append(times, time.Duration(p.at-m.at)), append(frames, []int{m.frame, p.frame})
	}
	violations := k.Findings
	m := measure(k.Name, times, frames, "")
	k.Latency, k.Findings = m.Latency, append(m.Findings, violations...)
	k.Text = fmt.Sprintf("%d CNPs for %d marked packets", cnps, marks)
	switch {
	case len(violations) > 0:
		k.Verdict = Violated
	case m.Verdict == Undecidable:
		k.Verdict, k.Text = m.Verdict, m.Text
	case marks+cnps == 0:
		k.Verdict, k.Text = NoCase, ""
	default:
		k.Verdict = OK // a receiver need not send CNPs
	}
	return k
}

// scopes are those by which a sender may pace CNPs, from the widest to the narrowest.
var scopes = []string{"host", "peer", "queue pair"}

// pace collects the intervals of CNPs of one scope.
type pace struct {
	last      map[any]*packet
	intervals []time.Duration
	least     time.Duration
	frames    []int // of the least interval
}

func (c *pace) add(key any, p *packet) {
	if before := c.last[key]; before != nil {
		d := time.Duration(p.at - before.at)
		c.intervals = append(c.intervals, d)
		if c.frames == nil || d < c.least {
			c.least, c.frames = d, []int{before.frame, p.frame}
		}
	}
	c.last[key] = p
}

// regular reports whether the intervals are alike: a quarter of them may be pauses.
func (c *pace) regular() bool {
	sorted := slices.Sorted(slices.Values(c.intervals))
	return len(sorted) > 1 && 2*c.least >= sorted[(len(sorted)-1)*3/4]
}

// scope finds by which scope senders pace CNPs: the widest one whose intervals are regular. Pacing of a narrow scope permits
// short intervals in the wider ones.
func (c *capture) scope() Check {
	k := Check{Name: "pacing of CNPs", Verdict: NoCase}
	paces := map[string]*pace{}
	for _, name := range scopes {
		paces[name] = &pace{last: map[any]*packet{}}
	}
	for i := range c.packets {
		if p := &c.packets[i]; p.opcode.IsCNP() && !p.copied {
			w := p.stream.way
			paces["host"].add(w.from, p)
			paces["peer"].add(w, p)
			paces["queue pair"].add(struct {
				way
				qpn bth.QPN
			}{w, p.stream.qpn}, p)
		}
	}
	switch host := paces["host"]; {
	case host.least < 0:
		return backwards(k.Name, host.frames)
	case host.frames == nil:
		return k
	}
	for _, name := range scopes {
		if x := paces[name]; x.frames != nil {
			k.Findings = append(k.Findings, Finding{x.frames, fmt.Sprintf("least interval of a %s: %v", name, x.least)})
		}
	}
	k.Verdict, k.Text = Undecidable, "no scope has regular intervals"
	if len(paces["queue pair"].last) == len(paces["host"].last) {
		k.Text = "one queue pair for each sender: the scopes do not differ"
		return k
	}
	for _, name := range scopes {
		if paces[name].regular() {
			k.Verdict, k.Text = OK, "by "+name
			break
		}
	}
	return k
}
