package workload

import (
	"fmt"
	"math/rand/v2"

	"roced.io/roced/internal/sim/engine"
)

// Poisson generates messages between random hosts at random instants. Each host sends load times its rate on
// average.
type Poisson struct {
	Hosts int
	Rate  uint64  // bits per second of a host
	Load  float64 // payload as a part of Rate
	Sizes *CDF
	Until engine.Time // of the last arrival
	Seed  uint64
	// CrossRack, if not zero, is the number of hosts per rack. Messages then go to other racks only.
	CrossRack int
	// Halves makes the first half of the hosts send to the second half. Only the first half has a load.
	Halves bool
}

// Check validates p.
func (p *Poisson) Check() error {
	switch {
	case p.Hosts < 2:
		return fmt.Errorf("%d hosts: at least two are required", p.Hosts)
	case p.Load <= 0 || p.Load > 2:
		return fmt.Errorf("load %g: must be above 0 and at most 2", p.Load)
	case p.CrossRack >= p.Hosts:
		return fmt.Errorf("all %d hosts are in one rack", p.Hosts)
	}
	return nil
}

// Source returns a function that yields the messages.
func (p *Poisson) Source() func() (Planned, bool) {
	rng := rand.New(rand.NewPCG(p.Seed, 0x706f6973))
	senders, receivers := p.Hosts, p.Hosts
	if p.Halves {
		senders, receivers = p.Hosts/2, p.Hosts-p.Hosts/2
	}
	mean := p.Sizes.Mean() * 8 / (float64(p.Rate) * p.Load * float64(senders)) * float64(engine.Second)
	at := engine.Time(0)
	return func() (Planned, bool) {
		at = after(at, rng.ExpFloat64()*mean)
		src := rng.IntN(senders)
		if p.Halves {
			return Planned{At: at, Src: src, Dst: senders + rng.IntN(receivers), Bytes: p.Sizes.Draw(rng)}, at <= p.Until
		}
		dst := rng.IntN(p.Hosts)
		for dst == src || p.CrossRack > 0 && dst/p.CrossRack == src/p.CrossRack {
			dst = rng.IntN(p.Hosts)
		}
		return Planned{At: at, Src: src, Dst: dst, Bytes: p.Sizes.Draw(rng)}, at <= p.Until
	}
}

// after returns the instant that follows at by a number of picoseconds: Never if the clock cannot represent it, as for a tiny load.
func after(at engine.Time, gap float64) engine.Time {
	if gap >= float64(engine.Never-at) {
		return engine.Never
	}
	return at + engine.Time(gap)
}

// Permutation returns one message from each host to another one, so that each host receives one.
func Permutation(hosts int, bytes uint32, seed uint64) []Planned {
	rng := rand.New(rand.NewPCG(seed, 0x7065726d))
	order := rng.Perm(hosts) // a ring through all hosts: no host sends to itself
	out := make([]Planned, hosts)
	for i, src := range order {
		out[i] = Planned{Src: src, Dst: order[(i+1)%hosts], Bytes: bytes}
	}
	return out
}

// Halves returns one message from each host of the first half to one of the second, so that each of these receives
// one.
func Halves(hosts int, bytes uint32, seed uint64) []Planned {
	rng := rand.New(rand.NewPCG(seed, 0x68616c66))
	var out []Planned
	for src, dst := range rng.Perm(hosts / 2) {
		out = append(out, Planned{Src: src, Dst: hosts/2 + dst, Bytes: bytes})
	}
	return out
}

// RandomIncast returns one message to a host from each of several random others.
func RandomIncast(hosts, to, senders int, bytes uint32, at engine.Time, seed uint64) []Planned {
	rng := rand.New(rand.NewPCG(seed, 0x696e6361))
	var out []Planned
	for _, src := range rng.Perm(hosts) {
		if src != to && len(out) < senders {
			out = append(out, Planned{At: at, Src: src, Dst: to, Bytes: bytes})
		}
	}
	return out
}

// Queries returns incasts at random instants: several random senders answer a random host at once. rate is the mean
// receive rate of a host in bits per second.
func Queries(hosts, senders int, bytes uint32, rate float64, until engine.Time, seed uint64) (out []Planned) {
	rng := rand.New(rand.NewPCG(seed, 0x71756572))
	mean := float64(bytes) * 8 * float64(senders) / (rate * float64(hosts)) * float64(engine.Second)
	for at := engine.Time(0); ; {
		if at = after(at, rng.ExpFloat64()*mean); at > until {
			return out
		}
		out = append(out, RandomIncast(hosts, rng.IntN(hosts), senders, bytes, at, rng.Uint64())...)
	}
}

// Incast returns one message to a host from each of the senders, which are the next hosts by number.
func Incast(hosts, to, senders int, bytes uint32, at engine.Time) []Planned {
	var out []Planned
	for i := range senders {
		out = append(out, Planned{At: at, Src: (to + 1 + i) % hosts, Dst: to, Bytes: bytes})
	}
	return out
}
