package fabric

import (
	"fmt"
	"strings"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
)

// Node is a host, from 0 on, or a switch, from Graph.Hosts on.
type Node int

// Cable joins two nodes in both directions.
type Cable struct {
	A, B  Node
	Rate  quantity.Rate // in each direction
	Delay engine.Time   // in each direction
}

// Graph is a topology.
type Graph struct {
	Hosts    int
	Switches []string // names
	Cables   []Cable
	Owner    []int // by host: its machine, ascending, if hosts are NICs of machines that have several; nil: each is a machine
}

// Switch returns the node of the i-th switch.
func (g *Graph) Switch(i int) Node { return Node(g.Hosts + i) }

// Name returns the name of a node: h0, h1 ... for hosts, by their machines.
func (g *Graph) Name(n Node) string {
	if int(n) < g.Hosts {
		return fmt.Sprintf("h%d", g.Machine(int(n)))
	}
	return g.Switches[int(n)-g.Hosts]
}

func (g *Graph) addSwitch(format string, args ...any) Node {
	g.Switches = append(g.Switches, fmt.Sprintf(format, args...))
	return g.Switch(len(g.Switches) - 1)
}

func (g *Graph) join(a, b Node, rate quantity.Rate, delay engine.Time) {
	g.Cables = append(g.Cables, Cable{a, b, rate, delay})
}

// MaxRate is the highest rate of a cable: 100 Tb/s.
const MaxRate = 100e12

// check validates g.
func (g *Graph) check() error {
	nodes := Node(g.Hosts + len(g.Switches))
	for i, c := range g.Cables {
		switch {
		case c.A < 0 || c.B < 0 || c.A >= nodes || c.B >= nodes || c.A == c.B:
			return fmt.Errorf("cable %d joins nodes %d and %d of %d", i, c.A, c.B, nodes)
		case c.Rate == 0 || c.Rate > MaxRate || c.Delay < 0:
			return fmt.Errorf("cable %s-%s: rate or delay out of range", g.Name(c.A), g.Name(c.B))
		}
	}
	for h, n := range g.hostCables() {
		if n != 1 {
			return fmt.Errorf("host h%d has %d cables instead of one", h, n)
		}
	}
	return nil
}

// Links returns the names of all links, in both directions, such as leaf0-spine1. Cables between the same nodes have a number
// from 1, as in leaf0-spine1#2.
func (g *Graph) Links() (names []string) {
	cables, seen := map[[2]Node]int{}, map[[2]Node]int{}
	ends := func(c *Cable) [2]Node {
		a, b := min(c.A, c.B), max(c.A, c.B)
		if int(a) < g.Hosts {
			a = Node(g.Machine(int(a)))
		}
		if int(b) < g.Hosts {
			b = Node(g.Machine(int(b)))
		}
		return [2]Node{a, b}
	}
	for i := range g.Cables {
		cables[ends(&g.Cables[i])]++
	}
	for i := range g.Cables {
		c, number := &g.Cables[i], ""
		if at := ends(c); cables[at] > 1 {
			seen[at]++
			number = fmt.Sprintf("%c%d", numberSign, seen[at])
		}
		names = append(names, g.Name(c.A)+"-"+g.Name(c.B)+number, g.Name(c.B)+"-"+g.Name(c.A)+number)
	}
	return names
}

// numberSign precedes the number of a cable.
const numberSign = '#'

// Ends returns the name of a link without the number of its cable: that of all cables between its ends.
func Ends(link string) string {
	if i := strings.LastIndexByte(link, numberSign); i >= 0 {
		return link[:i]
	}
	return link
}
