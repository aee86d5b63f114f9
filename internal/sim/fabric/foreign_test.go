package fabric

import (
	"strings"
	"testing"

	"roced.io/roced/plugin/balance"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

// shortestQueue selects the shortest queue from skip on.
type shortestQueue struct{ skip, resets int }

func (b *shortestQueue) Reset() { b.resets++ }

func (b *shortestQueue) Choose(_ mono.Time, p *balance.Packet, ports []uint16, s balance.Switch) int {
	best := b.skip
	for i := range ports[b.skip:] {
		if s.Queued(int(ports[b.skip+i])) < s.Queued(int(ports[best])) {
			best = b.skip + i
		}
	}
	if p.Dst != 1 || p.Bytes != size || p.Hash != 5 {
		return 0
	}
	return best + len(ports) // modulo their number
}

// TestRegister: a registered balancer selects the ports, by its parameters.
func TestRegister(t *testing.T) {
	Register("shortest", func(r *param.Reader) balance.Balancer { return &shortestQueue{skip: r.Int("skip", 1, 0, 3)} })
	f := newField(t, LeafSpine(w100, 2, 4, 1, 1), SwitchConfig{Balance: BalanceConfig{Name: "shortest", Params: map[string]float64{"skip": 3}}})
	f.guns[0].load(4000, Packet{Dst: 1, Bytes: size, Hash: 5})
	f.run(t)
	if n := spines(f); n[0] != 0 || n[3] != 4000 {
		t.Errorf("packets by spine, in ascending order: %v", n)
	}
	if b := f.net.switches[0].lb.(*foreign).Balancer.(*shortestQueue); b.resets == 0 {
		t.Error("the balancer does not learn of new routes")
	}
	for want, c := range map[string]BalanceConfig{
		"balance: shortest: skip is 4":               {Name: "shortest", Params: map[string]float64{"skip": 4}},
		`balance: shortest has no parameter "x"`:     {Name: "shortest", Params: map[string]float64{"x": 4}},
		`"ecmp" has no parameter "x"`:                {Name: "ecmp", Params: map[string]float64{"x": 4}},
		"must be one of ecmp, spray, round-robin, p": {Name: "longest"},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
	for name, parameter := range map[string]string{"ecmp": "x", "shortest": "x", "fine": "paths"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s with the parameter %s is possible", name, parameter)
				}
			}()
			Register(name, func(r *param.Reader) balance.Balancer { r.Int(parameter, 0, 0, 1); return &shortestQueue{} })
		}()
	}
}
