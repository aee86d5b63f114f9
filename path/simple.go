package path

import (
	"math/rand/v2"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

// firstPort is the lowest UDP source port of RoCEv2, and ports is their number. The two highest bits are set; the other bits
// are entropy for ECMP (IBTA annex A17.3.2).
const (
	firstPort = 0xc000
	ports     = 1 << 14
)

// Single uses one path, the port of the connection.
type Single struct{ unclocked }

func newSingle(*param.Reader) Selector { return &Single{} }

// Reset implements Selector.
func (*Single) Reset(Start) {}

// Next implements Selector.
func (*Single) Next(mono.Time, Window) (uint32, bool) { return 0, true }

// Footprint implements Selector: a connection has the port in any case.
func (*Single) Footprint() int { return 0 }

// Spray distributes packets over n paths without feedback: packet spraying by the NIC, as switches do it (Eunomia 2.1).
// Batches of more than one packet let a NIC build super-frames.
type Spray struct {
	unclocked
	paths  uint16
	random bool   // otherwise in turn
	batch  uint16 // consecutive packets on one path
	rng    rand.PCG
	next   uint16
	sent   uint16 // packets of the batch
}

// maxBatch is the number of the smallest packets in a super-frame.
const maxBatch = 128

// newSpray uses 4 paths in turn by default, the number of paths of the loss benchmark, and batches of one packet.
func newSpray(r *param.Reader) Selector {
	return &Spray{
		paths: uint16(r.Int("paths", 4, 1, ports)), random: r.Bool("random", false), batch: uint16(r.Int("batch", 1, 1, maxBatch)),
	}
}

// Reset implements Selector. The first path is random, so that connections do not use the paths in lockstep.
func (s *Spray) Reset(st Start) {
	s.rng.Seed(st.Seed, uint64(st.PSN.Uint32()))
	s.next, s.sent = below(&s.rng, s.paths), 0
}

// Next implements Selector.
func (s *Spray) Next(mono.Time, Window) (uint32, bool) { return firstPort + uint32(s.next), true }

// OnSent implements Selector.
func (s *Spray) OnSent(mono.Time, Window) {
	if s.sent++; s.sent < s.batch {
		return
	}
	s.sent = 0
	if s.random {
		s.next = below(&s.rng, s.paths)
		return
	}
	s.next = (s.next + 1) % s.paths
}

// Footprint implements Selector: the next path.
func (*Spray) Footprint() int { return 2 }

// below returns a random number less than n. The bias of the remainder of 64 random bits is negligible.
func below(rng *rand.PCG, n uint16) uint16 { return uint16(rng.Uint64() % uint64(n)) }
