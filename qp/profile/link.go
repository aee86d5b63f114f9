package profile

import (
	"maps"
	"math"
	"time"

	"roced.io/roced/ccalgo"
)

// Link describes a NIC's link. It provides defaults for the parameters of plug-ins with the same meaning. A zero field is
// unknown, and those parameters keep the values of their papers (40 Gb/s and 16 us in most).
type Link struct {
	Rate float64       // bits per second
	RTT  time.Duration // round trip without queueing
	MTU  int           // path MTU of its queue pairs in bytes
	// Fastest is the rate of the fastest link of a peer, if it is higher than Rate. Parameters on which both ends of a
	// connection must agree follow it.
	Fastest float64
	// RTO is the timeout of recoveries whose own timeout is optional. It is for NICs that are never late, such as
	// hardware. Zero selects the timeout of the queue pair.
	RTO time.Duration
}

// tailRTT is the round trip of MELO's bandwidth-delay product. It includes queueing: "the 99.9 % RTT for a commodity RDMA
// datacenter" (4.2.2).
const tailRTT = 200 * time.Microsecond

// mostBDP is the maximum of the plug-ins' parameters.
const mostBDP = 1 << 16

// bdp returns the bandwidth-delay product in packets by which a transport limits both ends, zero if it is unknown.
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

// defaults returns the values of l for parameters of the plug-in with that name.
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
		// A pool of 1 Kb suffices for 977 packets (MELO 4.2.2) or fewer.
		known["pool_bits"] = max(1024, 8*math.Ceil(bdp/977*128))
	}
	return known
}

// limits are the parameters of receiver structures and loss recoveries that depend on the link.
var limits = map[string][]string{"irn": {"bdp_packets"}, "melo": {"bdp_packets", "pool_bits"}}

// complete completes the parameters of all parts.
func (l Link) complete(s Spec) Spec {
	s.Reorder = l.fill(s.Reorder, limits[s.Reorder.Name]...)
	switch s.Recovery.Name {
	case "eunomia", "selective":
		s.Recovery = l.fill(s.Recovery, "rto_us")
	default:
		s.Recovery = l.fill(s.Recovery, limits[s.Recovery.Name]...)
	}
	if s.Paths.Name == "mp-rdma" {
		s.Paths = l.fill(s.Paths, "base_rtt_us")
	}
	for _, known := range ccalgo.Parameters(s.Congestion.Name) {
		s.Congestion = l.fill(s.Congestion, known.Name)
	}
	return s
}

// fill adds the parameters with these names that l knows and p does not have. It does not change p.
func (l Link) fill(p Part, names ...string) Part {
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
