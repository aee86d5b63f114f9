package fabric

import (
	"math/rand/v2"
)

// ECNConfig is random early detection on the queue as it is (not on its average), which marks
// what can be marked, as DCQCN and DCTCP have it. The zero value marks nothing.
type ECNConfig struct {
	Min, Max int64   // bytes of a queue: below Min nothing is marked, from Max on everything
	P        float64 // probability at Max
	// AtDequeue looks at the queue that a packet leaves behind, rather than finds.
	AtDequeue bool
}

// marker marks.
type marker struct {
	cfg ECNConfig
	p   uint64 // P of 2^32
}

func (m *marker) init(c ECNConfig) { *m = marker{c, uint64(c.P * (1 << 32))} }

// mark marks p, which meets a queue of so many bytes, or does not.
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
