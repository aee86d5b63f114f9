package fabric

import (
	"cmp"
	"math/rand/v2"

	"roced.io/roced/internal/base/quantity"
)

// ECNConfig is random early detection on the current queue (not its average), which marks ECN-capable packets as
// DCQCN and DCTCP require. The zero value marks nothing.
type ECNConfig struct {
	Min, Max    quantity.Bytes // of a queue: no packet is marked below Min, all from Max on
	Probability float64        // at Max
	// At is enqueue, the default, or dequeue: it uses the queue behind a departing packet instead of the one ahead of an
	// arriving packet.
	At      string
	Classes uint8 `yaml:"-"` // bit mask of the classes whose packets are marked; zero: all
}

type marker struct {
	cfg     ECNConfig
	p       uint64 // Probability of 2^32
	dequeue bool
}

func (m *marker) init(c ECNConfig) {
	c.Classes = cmp.Or(c.Classes, 1<<Classes-1)
	*m = marker{c, uint64(c.Probability * (1 << 32)), c.At == "dequeue"}
}

// mark marks p at random, depending on the length of its queue in bytes, and reports whether it did.
func (m *marker) mark(p *Packet, bytes int64, rng *rand.PCG) bool {
	c, queued := &m.cfg, quantity.Bytes(bytes)
	if p.ECN != ECT || c.Max == 0 || queued <= c.Min || c.Classes>>p.Class&1 == 0 {
		return false
	}
	if queued < c.Max && rng.Uint64()>>32*uint64(c.Max-c.Min) >= m.p*uint64(queued-c.Min) {
		return false
	}
	p.ECN = CE
	return true
}
