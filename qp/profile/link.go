package profile

import (
	"maps"
	"math"
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
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
	// RTO is the timeout of the recoveries eunomia and selective, whose own timeout is optional. It is for NICs that are
	// never late, such as hardware. Zero selects the timeout of the queue pair, and batches of packets for super-frames.
	RTO time.Duration
}

// superFrame is the number of consecutive packets on one path for NICs that send super-frames: 16 of 4 KiB.
const superFrame = 16

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
	if l.RTO > 0 && oneOf(name, "eunomia", "selective") {
		known["rto_us"] = float64(l.RTO) / 1e3
	}
	if l.RTO == 0 && name == "mrc" {
		known["batch"] = superFrame
	}
	if bdp := l.bdp(name); bdp > 0 {
		known["bdp_packets"] = bdp
		// A pool of 1 Kb suffices for 977 packets (MELO 4.2.2) or fewer.
		known["pool_bits"] = max(1024, 8*math.Ceil(bdp/977*128))
	}
	return known
}

// complete completes the parameters of all parts.
func (l Link) complete(s Spec) Spec {
	s.Reorder = l.fill(s.Reorder, reorder.Parameters(s.Reorder.Name))
	s.Recovery = l.fill(s.Recovery, retrans.Parameters(s.Recovery.Name))
	s.Paths = l.fill(s.Paths, path.Parameters(s.Paths.Name))
	s.Congestion = l.fill(s.Congestion, ccalgo.Parameters(s.Congestion.Name))
	return s
}

// fill adds the parameters that l knows and p does not have. It does not change p.
func (l Link) fill(p Part, parameters []param.Parameter) Part {
	known, given := l.defaults(p.Name), maps.Clone(p.Params)
	for _, x := range parameters {
		v, ok := known[x.Name]
		if _, has := given[x.Name]; !ok || has {
			continue
		}
		if given == nil {
			given = map[string]float64{}
		}
		given[x.Name] = v
	}
	return Part{Name: p.Name, Params: given}
}
