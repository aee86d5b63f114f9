package workload

import (
	"fmt"
	"math/rand/v2"

	"roced/sim/engine"
)

// Poisson are messages between random hosts at random instants: each host sends as many bytes as
// load times its rate, in the mean.
type Poisson struct {
	Hosts int
	Rate  uint64  // bits per second of a host
	Load  float64 // of payload, as part of Rate
	Sizes *CDF
	Until engine.Time // of the last arrival
	Seed  uint64
	// CrossRack, if not zero, is how many hosts a rack has: messages go to other racks only.
	CrossRack int
}

// Check reports what is wrong.
func (p *Poisson) Check() error {
	switch {
	case p.Hosts < 2:
		return fmt.Errorf("there are %d hosts, not two", p.Hosts)
	case p.Load <= 0 || p.Load > 2:
		return fmt.Errorf("a load of %g is not above 0 and at most 2", p.Load)
	case p.CrossRack >= p.Hosts:
		return fmt.Errorf("all %d hosts are in one rack", p.Hosts)
	}
	return nil
}

// Source returns the messages.
func (p *Poisson) Source() func() (Planned, bool) {
	rng := rand.New(rand.NewPCG(p.Seed, 0x706f6973))
	mean := p.Sizes.Mean() * 8 / (float64(p.Rate) * p.Load * float64(p.Hosts)) * float64(engine.Second)
	at := engine.Time(0)
	return func() (Planned, bool) {
		at += engine.Time(rng.ExpFloat64() * mean)
		src := rng.IntN(p.Hosts)
		dst := rng.IntN(p.Hosts)
		for dst == src || p.CrossRack > 0 && dst/p.CrossRack == src/p.CrossRack {
			dst = rng.IntN(p.Hosts)
		}
		return Planned{at, src, dst, p.Sizes.Draw(rng)}, at <= p.Until
	}
}

// Permutation is one message from each host to another one, of which each is sent to once.
func Permutation(hosts int, bytes uint32, seed uint64) []Planned {
	rng := rand.New(rand.NewPCG(seed, 0x7065726d))
	order := rng.Perm(hosts) // a ring through all hosts: nobody sends to itself
	out := make([]Planned, hosts)
	for i, src := range order {
		out[i] = Planned{0, src, order[(i+1)%hosts], bytes}
	}
	return out
}

// Incast is one message to a host from each of the senders, which are those behind it.
func Incast(hosts, to, senders int, bytes uint32, at engine.Time) []Planned {
	var out []Planned
	for i := range senders {
		out = append(out, Planned{at, (to + 1 + i) % hosts, to, bytes})
	}
	return out
}
