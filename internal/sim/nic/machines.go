package nic

import (
	"cmp"
	"errors"
	"fmt"

	"roced.io/roced/internal/sim/fabric"
)

// machines chooses the NICs of connections if machines have several, or if some NICs cannot reach each other.
type machines struct {
	net      *fabric.Network
	nics     [][]int // by machine
	networks []int   // by NIC (fabric.Graph.Networks)
	known    map[[2]int]*choice
	changes  int // of routes, when known was computed
}

// ends are two NICs that can be connected.
type ends struct{ a, b int }

// choice has the pairs of NICs that connect two machines by the fewest links. If their rates differ, it has the fastest pairs.
type choice struct {
	best []ends
	made uint32 // number of connections
}

// ErrApart explains why a connection has no path.
var ErrApart = errors.New("there is no path, because hosts do not forward packets; topology.relay makes those with several links forward")

// newMachines returns nil if there is no choice.
func newMachines(net *fabric.Network, planes int) *machines {
	g := net.Graph()
	if planes > 1 {
		return nil
	}
	m := &machines{net: net, nics: make([][]int, g.Machines()), networks: g.Networks()}
	several := g.Owner != nil
	for h, n := range m.networks {
		m.nics[g.Machine(h)] = append(m.nics[g.Machine(h)], h)
		several = several || n != m.networks[0]
	}
	if !several {
		return nil
	}
	return m
}

// between returns the choice for connections of two machines.
func (m *machines) between(a, b int) (*choice, error) {
	if n := m.net.Routed(); m.known == nil || m.changes != n {
		m.known, m.changes = map[[2]int]*choice{}, n
	}
	c := m.known[[2]int{a, b}]
	if c == nil {
		c = &choice{best: m.find(a, b)}
		m.known[[2]int{a, b}] = c
	}
	if len(c.best) == 0 {
		return nil, ErrApart
	}
	return c, nil
}

// find returns the best ends, or all of a common network if failed links separate them.
func (m *machines) find(a, b int) (best []ends) {
	least, widest := 0, uint64(0)
	var separated []ends
	var path []*fabric.Link
	for _, x := range m.nics[a] {
		for _, y := range m.nics[b] {
			if m.networks[x] != m.networks[y] {
				continue
			}
			separated = append(separated, ends{x, y})
			path = m.net.Path(x, y, path[:0])
			if !m.net.Leads(path, y) {
				continue
			}
			rate := path[0].Rate()
			for _, l := range path {
				rate = min(rate, l.Rate())
			}
			if best != nil {
				switch order := cmp.Or(cmp.Compare(len(path), least), cmp.Compare(widest, rate)); {
				case order > 0:
					continue
				case order < 0:
					best = best[:0]
				}
			}
			best, least, widest = append(best, ends{x, y}), len(path), rate
		}
	}
	if best == nil {
		return separated
	}
	return best
}

// ends returns the NICs of the next connection between two machines: those that the hash of its number selects.
func (k *Cluster) ends(a, b int) (x, y int, err error) {
	switch {
	case a < 0 || b < 0 || a >= k.Hosts() || b >= k.Hosts():
		return 0, 0, fmt.Errorf("%w: %d or %d of %d", ErrHost, a, b, k.Hosts())
	case k.machines == nil:
		return a, b, nil
	}
	c, err := k.machines.between(a, b)
	if err != nil {
		return 0, 0, err
	}
	e := c.best[uint64(fabric.FlowHash(uint32(a), uint32(b), c.made))*uint64(len(c.best))>>32]
	c.made++
	return e.a, e.b, nil
}

// Path appends the links of a shortest path between two hosts.
func (k *Cluster) Path(src, dst int, path []*fabric.Link) []*fabric.Link {
	if k.machines != nil {
		c, err := k.machines.between(src, dst)
		if err != nil {
			return append(path, k.nics[k.machines.nics[src][0]].link) // Connect reports it
		}
		src, dst = c.best[0].a, c.best[0].b
	}
	return k.net.Path(src, dst, path)
}
