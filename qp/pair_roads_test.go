package qp

import (
	"math/rand/v2"
	"slices"
	"time"

	"roced.io/roced/plugin/mono"
)

// road is a way through the network. Packets with data queue on it, one behind the other;
// acknowledgements are too small to.
type road struct {
	delay     time.Duration // beside pairLatency
	perPacket time.Duration
	markAt    time.Duration // queue from which packets are marked; 0: never
	loss      float64       // share of packets
	busy      mono.Time
	taken     int // packets with data
}

// roads are those of both directions, by receiver. The port of a packet says which it takes.
type roads struct {
	ways   [2][]road
	rng    *rand.Rand
	sent   func(f *flight) // shown each packet that leaves, may be nil
	arrive func(f *flight) // and each that comes
}

func (r *roads) init(c pairConfig) {
	r.ways = [2][]road{slices.Clone(c.roads), slices.Clone(c.roads)}
	r.rng = rand.New(rand.NewPCG(c.seed, 1))
}

// take sends f by its road, and reports whether it is lost there.
func (r *roads) take(f *flight) (lost bool) {
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

func (r *roads) arrives(f *flight) {
	if r.arrive != nil {
		r.arrive(f)
	}
}
