package fabric

import (
	"fmt"
	"slices"

	"roced.io/roced/internal/base/registry"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/plugin/balance"
	"roced.io/roced/plugin/param"
)

// registered are the balancers of other programs.
var registered = registry.New[balance.Balancer]("balance", "load balancing")

// balanceKeys are the parameters of built-in balancers in scenarios.
var balanceKeys = []string{"samples", "gap", "paths", "reply", "busy", "extra", "wait", "inactive"}

// Register adds a balancer of the calling program under a name that is free. It panics if the name is taken, or if a
// parameter has the name of one of a built-in balancer.
func Register(name string, make func(r *param.Reader) balance.Balancer) {
	if slices.Contains(Balancers(), name) {
		panic(fmt.Sprintf("balance: the name %q is taken", name))
	}
	registered.Add(name, registry.Own, make)
	for _, p := range registered.Parameters(name) {
		if slices.Contains(balanceKeys, p.Name) {
			panic(fmt.Sprintf("balance: %s: the parameter name %s is that of a built-in balancer", name, p.Name))
		}
	}
}

// foreign is a registered balancer in a switch.
type foreign struct {
	balance.Balancer
	sw *Switch
	p  balance.Packet
}

func (f *foreign) reset() { f.Reset() }

func (f *foreign) choose(now engine.Time, s *Switch, group uint16, p *Packet) uint16 {
	f.p = balance.Packet{Src: int(p.Src), Dst: int(p.Dst), QP: p.QP, Hash: p.Hash, Bytes: int(p.Bytes), Class: p.Class}
	ports := s.groups[group]
	return ports[uint(f.Choose(now.Mono(), &f.p, ports, f))%uint(len(ports))]
}

// Queued implements balance.Switch.
func (f *foreign) Queued(port int) int64 { return f.sw.ports[port].queued }

// Random implements balance.Switch.
func (f *foreign) Random() uint64 { return f.sw.rng.Uint64() }

// Parameters returns the parameters of a registered balancer.
func Parameters(name string) []param.Parameter { return registered.Parameters(name) }
