package fabric

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim/engine"
)

// BalanceConfig defines how a switch selects among the shortest paths to a destination.
type BalanceConfig struct {
	// Name is one of Balancers; empty: ecmp.
	Name string
	// Samples is the number of random ports that "drill" compares, besides the best of the previous packet; default
	// 2.
	Samples int
	// PerHost makes "drill" remember a port for each destination host, and keep it while no sample has a shorter queue, as
	// conweave-ns3 does (commit 236a801, SwitchNode::DoLbDrill). Otherwise it remembers one for all hosts behind the same ports.
	PerHost bool `yaml:"per_host"`
	// Gap is the idle time after which "letflow" may move a flow; default 100 us.
	Gap engine.Time
	// Paths is the number of paths: the shortest ones under "ksp", default 8; under "conweave" those that a flow's
	// first switch selects from, default its ports to the destination.
	Paths int
	// For "conweave"; the defaults are those of its authors for two tiers. Reply is the time limit for a reply, 12 us:
	// 4 us more than a round trip over two tiers of 1 us links. A path seen congested is not selected for Busy, 16 us.
	// Out-of-order packets wait for the TAIL for Extra longer than estimated, 16 us, or for Wait without an estimate,
	// 200 us. A flow begins a new epoch after an idle time, or a time without an answer to its TAIL, of Inactive, 300
	// us.
	Reply, Busy, Extra, Wait, Inactive engine.Time
	// Params are the parameters of a registered balancer.
	Params map[string]float64 `yaml:",inline"`
}

// paths returns c.Paths, or the default if it is zero.
func (c *BalanceConfig) paths(otherwise int) int {
	return cmp.Or(c.Paths, otherwise)
}

// Balancers returns the names that BalanceConfig accepts.
func Balancers() []string {
	return append([]string{"ecmp", "spray", "round-robin", "po2", "drill", "letflow", "conweave", "ksp", Explicit}, registered.Names()...)
}

// Explicit is the name of the balancer whose senders name paths: Packet.Hash is the number of a path, as SRv6's list of
// segments. Each switch with a choice takes its part of the number, and removes it.
const Explicit = "explicit"

// explicit follows the path that a packet names.
type explicit struct{}

func (explicit) reset() {}

func (explicit) choose(_ engine.Time, s *Switch, group uint16, p *Packet) uint16 {
	ports := s.groups[group]
	n := uint32(len(ports))
	i := p.Hash % n
	p.Hash /= n
	return ports[i]
}

// balancer selects a port.
type balancer interface {
	choose(now engine.Time, s *Switch, group uint16, p *Packet) uint16
	// reset drops all state about groups, because groups have changed.
	reset()
}

// Check validates c.
func (c BalanceConfig) Check() error {
	if c.Samples < 0 || min(c.Gap, c.Reply, c.Busy, c.Extra, c.Wait, c.Inactive) < 0 {
		return fmt.Errorf("load balancing: samples and times must not be negative")
	}
	if c.Paths < 0 || c.Paths > 256 {
		return fmt.Errorf("load balancing: %d paths: must be from 1 to 256", c.Paths)
	}
	if c.Name != "" && !slices.Contains(Balancers(), c.Name) {
		return fmt.Errorf("load balancing %w", suggest.OneOf(c.Name, Balancers()))
	}
	if registered.Has(c.Name) {
		_, err := registered.New(c.Name, c.Params)
		return err
	}
	for key := range c.Params {
		return fmt.Errorf("load balancing %q has no parameter %q", c.Name, key)
	}
	return nil
}

// newBalancer returns the balancer of c, which has been validated.
func newBalancer(s *Switch, c BalanceConfig) balancer {
	if registered.Has(c.Name) {
		b, _ := registered.New(c.Name, c.Params)
		return &foreign{Balancer: b, sw: s}
	}
	switch c.Name {
	case "spray":
		return spray{}
	case "round-robin":
		return new(roundRobin)
	case "po2":
		return &drill{samples: 2}
	case "drill":
		d := &drill{samples: c.Samples, remembers: true, perHost: c.PerHost}
		d.samples = cmp.Or(d.samples, 2)
		return d
	case Explicit:
		return explicit{}
	case "letflow":
		l := &letFlow{gap: c.Gap}
		l.gap = cmp.Or(l.gap, 100*engine.Microsecond)
		return l
	}
	return ecmp{mix(uint32(s.net.seed) ^ mix(uint32(s.id)))}
}

// mix is the finalizer of murmur3.
func mix(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// FlowHash is murmur3 of a 5-tuple. The destination port and the protocol are always RoCEv2's.
func FlowHash(src, dst, entropy uint32) uint32 {
	h := uint32(0)
	for _, k := range [...]uint32{src, dst, entropy} {
		k *= 0xcc9e2d51
		k = k<<15 | k>>17
		h ^= k * 0x1b873593
		h = (h<<13|h>>19)*5 + 0xe6546b64
	}
	return mix(h ^ 12)
}

// ecmp keeps each flow on one path. Switches choose independently of each other.
type ecmp struct{ salt uint32 }

func (e ecmp) reset() {}

func (e ecmp) choose(_ engine.Time, s *Switch, group uint16, p *Packet) uint16 {
	ports := s.groups[group]
	return ports[uint64(mix(p.Hash^e.salt))*uint64(len(ports))>>32]
}

// spray sends each packet to a random port.
type spray struct{}

func (spray) reset() {}

func (spray) choose(_ engine.Time, s *Switch, group uint16, _ *Packet) uint16 { return s.random(group) }

// random returns a random port of a group.
func (s *Switch) random(group uint16) uint16 {
	ports := s.groups[group]
	return ports[s.rng.Uint64()>>32*uint64(len(ports))>>32]
}

// roundRobin uses all ports in turn.
type roundRobin struct{ next []uint16 }

func (r *roundRobin) reset() { r.next = nil }

func (r *roundRobin) choose(_ engine.Time, s *Switch, group uint16, _ *Packet) uint16 {
	if len(r.next) < len(s.groups) {
		r.next = make([]uint16, len(s.groups))
	}
	ports := s.groups[group]
	i := r.next[group] % uint16(len(ports))
	r.next[group] = i + 1
	return ports[i]
}

// drill selects the shortest of a few random queues and of the previous best one (DRILL: Ghorbani et al., SIGCOMM
// 2017). With two samples and without memory it is the power of two choices.
type drill struct {
	samples   int
	remembers bool
	perHost   bool
	best      []uint16 // by group or host, plus one
}

func (d *drill) reset() { d.best = nil }

func (d *drill) choose(_ engine.Time, s *Switch, group uint16, p *Packet) uint16 {
	choice, least := uint16(0), int64(math.MaxInt64)
	look := func(port uint16) {
		if n := s.ports[port].queued; n < least {
			choice, least = port, n
		}
	}
	best := d.memory(s, group, p.Dst)
	if d.perHost && *best != 0 {
		look(*best - 1)
	}
	for range d.samples {
		look(s.random(group))
	}
	if !d.perHost && *best != 0 {
		look(*best - 1)
	}
	if d.remembers {
		*best = choice + 1
	}
	return choice
}

// memory returns the place of the remembered port.
func (d *drill) memory(s *Switch, group uint16, host uint32) *uint16 {
	n, i := len(s.groups), uint32(group)
	if d.perHost {
		n, i = len(s.routes), host
	}
	if len(d.best) < n {
		d.best = make([]uint16, n)
	}
	return &d.best[i]
}

// letFlow keeps a flow on its path until it has been idle (LetFlow: Vanini et al., NSDI 2017). As in switches, its
// table is indexed by a hash, so flows may share an entry.
type letFlow struct {
	gap    engine.Time
	places []flowlet
}

type flowlet struct {
	last engine.Time
	port uint16 // plus one
}

const flowletPlaces = 1 << 12

func (l *letFlow) reset() { l.places = nil }

func (l *letFlow) choose(now engine.Time, s *Switch, group uint16, p *Packet) uint16 {
	if l.places == nil {
		l.places = make([]flowlet, flowletPlaces)
	}
	f := &l.places[mix(p.Hash^uint32(group))%flowletPlaces]
	if f.port == 0 || now-f.last > l.gap || !s.has(group, f.port-1) {
		f.port = s.random(group) + 1
	}
	f.last = now
	return f.port - 1
}

// has reports whether a port is one of a group.
func (s *Switch) has(group, port uint16) bool {
	for _, x := range s.groups[group] {
		if x == port {
			return true
		}
	}
	return false
}
