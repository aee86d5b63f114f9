package fabric

import (
	"math/rand/v2"
)

// ECNConfig is random early detection on the current queue (not its average), which marks ECN-capable packets as
// DCQCN and DCTCP require. The zero value marks nothing.
type ECNConfig struct {
	Min, Max int64   // bytes of a queue: no packet is marked below Min, all from Max on
	P        float64 // probability at Max
	// AtDequeue uses the queue behind a departing packet instead of the one ahead of an arriving packet.
	AtDequeue bool
}

type marker struct {
	cfg ECNConfig
	p   uint64 // P of 2^32
}

func (m *marker) init(c ECNConfig) { *m = marker{c, uint64(c.P * (1 << 32))} }

// mark marks p at random, depending on the length of its queue in bytes, and reports whether it did.
func (m *marker) mark(p *Packet, queued int64, rng *rand.PCG) bool {
	c := &m.cfg
	if p.ECN != ECT || c.Max == 0 || queued <= c.Min {
		return false
	}
	if queued < c.Max && rng.Uint64()>>32*uint64(c.Max-c.Min) >= m.p*uint64(queued-c.Min) {
		return false
	}
	p.ECN = CE
	return true
}
