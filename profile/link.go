package profile

import (
	"maps"
	"time"

	"roced/ccalgo"
)

// Link is what is known of a NIC's link. Parameters of plug-ins that mean the same and are
// not given take their values from it; what is zero is not known, and they keep those of
// their papers (40 Gb/s and 16 us in most).
type Link struct {
	Rate float64       // bits per second
	RTT  time.Duration // round trip when nothing queues
}

// defaults are the parameters that l knows.
func (l Link) defaults() map[string]float64 {
	known := map[string]float64{}
	if l.Rate > 0 {
		known["line_rate_bps"] = l.Rate
	}
	if l.RTT > 0 {
		known["base_rtt_us"] = float64(l.RTT) / 1e3
		known["min_rtt_us"] = float64(l.RTT) / 1e3
	}
	return known
}

// paths and control complete the parameters of such a part.
func (l Link) paths(p Part) Part {
	if p.Name != "mp-rdma" {
		return p
	}
	return l.complete(p, "base_rtt_us")
}

func (l Link) control(p Part) Part {
	var names []string
	for _, known := range ccalgo.Parameters(p.Name) {
		names = append(names, known.Name)
	}
	return l.complete(p, names...)
}

// complete gives p the parameters that l knows, of those with these names, unless it has
// them.
func (l Link) complete(p Part, names ...string) Part {
	known, given := l.defaults(), maps.Clone(p.Params)
	for _, name := range names {
		v, ok := known[name]
		if _, has := given[name]; !ok || has {
			continue
		}
		if given == nil {
			given = map[string]float64{}
		}
		given[name] = v
	}
	return Part{Name: p.Name, Params: given}
}
