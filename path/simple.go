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

func newSingle(p Params) (Selector, error) {
	return &Single{}, param.NewReader("path: single", p).Err()
}

// Reset implements Selector.
func (*Single) Reset(Start) {}

// Next implements Selector.
func (*Single) Next(mono.Time, Window) (uint16, bool) { return 0, true }

// Footprint implements Selector: a connection has the port in any case.
func (*Single) Footprint() int { return 0 }

// Spray distributes packets over n paths without feedback: packet spraying by the NIC, as switches do it (Eunomia 2.1).
type Spray struct {
	unclocked
	paths  uint16
	random bool // otherwise in turn
	rng    rand.PCG
	next   uint16
}

// newSpray uses 4 paths in turn by default, the number of paths of the loss benchmark.
func newSpray(p Params) (Selector, error) {
	r := param.NewReader("path: spray", p)
	return &Spray{paths: uint16(r.Int("paths", 4, 1, ports)), random: r.Bool("random", false)}, r.Err()
}

// Reset implements Selector. The first path is random, so that connections do not use the paths in lockstep.
func (s *Spray) Reset(st Start) {
	s.rng.Seed(st.Seed, uint64(st.PSN.Uint32()))
	s.next = below(&s.rng, s.paths)
}

// Next implements Selector.
func (s *Spray) Next(mono.Time, Window) (uint16, bool) { return firstPort + s.next, true }

// OnSent implements Selector.
func (s *Spray) OnSent(mono.Time, Window) {
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
