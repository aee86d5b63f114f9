package profile

import (
	"maps"
	"math"
	"time"

	"roced.io/roced/ccalgo"
)

// Link is what is known of a NIC's link. Parameters of plug-ins that mean the same and are
// not given take their values from it; what is zero is not known, and they keep those of
// their papers (40 Gb/s and 16 us in most).
type Link struct {
	Rate float64       // bits per second
	RTT  time.Duration // round trip when nothing queues
	MTU  int           // path MTU of its queue pairs in bytes
	// Fastest is the rate of the peers' links if one is faster: what both ends of a
	// connection must agree on follows it.
	Fastest float64
	// RTO is the timeout of recoveries that have one of their own only if they are told, for NICs
	// that are never late, as hardware is; zero: that of the queue pair.
	RTO time.Duration
}

// tailRTT is the round trip that MELO's bandwidth-delay product is of, which includes queues:
// "the 99.9 % RTT for a commodity RDMA datacenter" (4.2.2).
const tailRTT = 200 * time.Microsecond

// mostBDP is the longest that plug-ins can be told.
const mostBDP = 1 << 16

// bdp is the bandwidth-delay product that transports bound by it mean, in packets, at both
// ends; zero if it is not known.
func (l Link) bdp(transport string) float64 {
	if l.Rate <= 0 || l.RTT <= 0 || l.MTU <= 0 {
		return 0
	}
	rtt := l.RTT
	if transport == "melo" {
		rtt = max(rtt, tailRTT)
	}
	return min(math.Ceil(max(l.Rate, l.Fastest)*rtt.Seconds()/8/float64(l.MTU)), mostBDP)
}

// defaults are the parameters that l knows of a plug-in with that name.
func (l Link) defaults(name string) map[string]float64 {
	known := map[string]float64{}
	if l.Rate > 0 {
		known["line_rate_bps"] = l.Rate
	}
	if l.RTT > 0 {
		known["base_rtt_us"] = float64(l.RTT) / 1e3
		known["min_rtt_us"] = float64(l.RTT) / 1e3
	}
	if l.RTO > 0 {
		known["rto_us"] = float64(l.RTO) / 1e3
	}
	if bdp := l.bdp(name); bdp > 0 {
		known["bdp_packets"] = bdp
		// A pool of 1 Kb is made for 977 packets (MELO 4.2.2), and so for fewer.
		known["pool_bits"] = max(1024, 8*math.Ceil(bdp/977*128))
	}
	return known
}

// bounded completes the parameters of a receiver structure or a loss recovery.
func (l Link) bounded(p Part) Part {
	switch p.Name {
	case "irn":
		return l.complete(p, "bdp_packets")
	case "melo":
		return l.complete(p, "bdp_packets", "pool_bits")
	}
	return p
}

// recovery completes the parameters of a loss recovery.
func (l Link) recovery(p Part) Part {
	if oneOf(p.Name, "eunomia", "selective") {
		return l.complete(p, "rto_us")
	}
	return l.bounded(p)
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
	known, given := l.defaults(p.Name), maps.Clone(p.Params)
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
