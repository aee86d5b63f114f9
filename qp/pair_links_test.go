package qp

import (
	"math/rand/v2"
	"slices"
	"time"

	"roced.io/roced/plugin/mono"
)

// link is a path through the network. Data packets queue on it; acknowledgements are too small to queue.
type link struct {
	delay     time.Duration // in addition to pairLatency
	perPacket time.Duration
	markAt    time.Duration // queue length from which packets are marked; 0: never
	loss      float64       // share of packets
	busy      mono.Time
	taken     int // packets with data
}

// links are the links of both directions, by receiver. The port of a packet selects its link.
type links struct {
	ways   [2][]link
	rng    *rand.Rand
	sent   func(f *flight) // called for each packet that leaves, may be nil
	arrive func(f *flight) // called for each packet that arrives, may be nil
}

func (r *links) init(c pairConfig) {
	r.ways = [2][]link{slices.Clone(c.links), slices.Clone(c.links)}
	r.rng = rand.New(rand.NewPCG(c.seed, 1))
}

// take sends f on its link, and reports whether the link loses it.
func (r *links) take(f *flight) (lost bool) {
	if r.sent != nil {
		r.sent(f)
	}
	ways := r.ways[f.to]
	if len(ways) == 0 {
		return false
	}
	k := &ways[uint32(f.meta.Path)*2654435761>>16%uint32(len(ways))]
	if len(f.p.Payload) > 0 {
		k.taken++
		begins := max(k.busy, f.at)
		f.meta.CE = k.markAt > 0 && begins.Sub(f.at) > k.markAt
		k.busy = begins.Add(k.perPacket)
		f.at = k.busy
	}
	f.at = f.at.Add(k.delay)
	return r.rng.Float64() < k.loss
}

func (r *links) arrives(f *flight) {
	if r.arrive != nil {
		r.arrive(f)
	}
}
