package fabric

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
)

// Wires describes the links of a regular topology.
type Wires struct {
	HostRate quantity.Rate `yaml:"host_rate"`
	CoreRate quantity.Rate `yaml:"core_rate"` // between switches, default HostRate
	Delay    engine.Time
}

func (w Wires) core() quantity.Rate { return cmp.Or(w.CoreRate, w.HostRate) }

// Pair joins two hosts by a switch or directly.
func Pair(w Wires, switched bool) *Graph {
	g := &Graph{Hosts: 2}
	if !switched {
		g.join(0, 1, w.HostRate, w.Delay)
		return g
	}
	return Star(w, 2)
}

// Planes returns n copies of g that are not connected. Host i of plane p has the number p times the hosts of g, plus i.
func Planes(g *Graph, n int) *Graph {
	out := &Graph{Hosts: n * g.Hosts}
	at := func(plane int, node Node) Node {
		if i := int(node) - g.Hosts; i >= 0 {
			return out.Switch(plane*len(g.Switches) + i)
		}
		return Node(plane*g.Hosts) + node
	}
	for p := range n {
		for _, name := range g.Switches {
			out.addSwitch("%s.%d", name, p)
		}
		for _, c := range g.Cables {
			out.join(at(p, c.A), at(p, c.B), c.Rate, c.Delay)
		}
	}
	return out
}

// Star joins hosts by one switch.
func Star(w Wires, hosts int) *Graph {
	g := &Graph{Hosts: hosts}
	s := g.addSwitch("s0")
	for h := range hosts {
		g.join(Node(h), s, w.HostRate, w.Delay)
	}
	return g
}

// Dumbbell has hosts on two switches; one cable joins the switches.
func Dumbbell(w Wires, left, right int) *Graph {
	g := &Graph{Hosts: left + right}
	a, b := g.addSwitch("left"), g.addSwitch("right")
	for h := range left + right {
		side := a
		if h >= left {
			side = b
		}
		g.join(Node(h), side, w.HostRate, w.Delay)
	}
	g.join(a, b, w.core(), w.Delay)
	return g
}

// ParallelPaths has hosts on two switches, with one intermediate switch per path.
func ParallelPaths(w Wires, hosts, paths int) *Graph {
	g := &Graph{Hosts: 2 * hosts}
	a, b := g.addSwitch("left"), g.addSwitch("right")
	for h := range hosts {
		g.join(Node(h), a, w.HostRate, w.Delay)
		g.join(Node(hosts+h), b, w.HostRate, w.Delay)
	}
	for i := range paths {
		p := g.addSwitch("path%d", i)
		g.join(a, p, w.core(), w.Delay)
		g.join(p, b, w.core(), w.Delay)
	}
	return g
}

// LeafSpine is a Clos of two tiers: each leaf has hosts, and several cables to each spine.
func LeafSpine(w Wires, leaves, spines, hostsPerLeaf, cables int) *Graph {
	g := &Graph{Hosts: leaves * hostsPerLeaf}
	for i := range leaves {
		leaf := g.addSwitch("leaf%d", i)
		for h := range hostsPerLeaf {
			g.join(Node(i*hostsPerLeaf+h), leaf, w.HostRate, w.Delay)
		}
	}
	for i := range spines {
		spine := g.addSwitch("spine%d", i)
		for leaf := range leaves {
			for range cables {
				g.join(g.Switch(leaf), spine, w.core(), w.Delay)
			}
		}
	}
	return g
}

// Rails has machines with several NICs, each on a switch with the corresponding NICs of the other machines: NIC r
// of machine m is host r*machines+m. Spines join the rails. Without spines the rails are separate.
func Rails(w Wires, rails, machines, spines int) *Graph {
	g := LeafSpine(w, rails, spines, machines, 1)
	for r := range rails {
		g.Switches[r] = fmt.Sprintf("rail%d", r)
	}
	return g
}

// FatTree is the k-ary fat-tree of three tiers with k^3/4 hosts (Al-Fares et al., SIGCOMM 2008).
func FatTree(w Wires, k int) (*Graph, error) {
	if k < 2 || k%2 != 0 {
		return nil, fmt.Errorf("fat-tree: k is %d, must be even and at least 2", k)
	}
	half := k / 2
	g := &Graph{Hosts: k * half * half}
	core := make([]Node, half*half)
	for i := range core {
		core[i] = g.addSwitch("core%d", i)
	}
	for pod := range k {
		var up []Node
		for i := range half {
			a := g.addSwitch("aggr%d.%d", pod, i)
			up = append(up, a)
			for j := range half {
				g.join(a, core[i*half+j], w.core(), w.Delay)
			}
		}
		for i := range half {
			e := g.addSwitch("edge%d.%d", pod, i)
			for _, a := range up {
				g.join(e, a, w.core(), w.Delay)
			}
			for h := range half {
				g.join(Node((pod*half+i)*half+h), e, w.HostRate, w.Delay)
			}
		}
	}
	return g, nil
}

// Jellyfish is a random regular graph of switches, each joined to degree others (Singla et al., NSDI 2012). The
// hosts are spread evenly.
func Jellyfish(w Wires, switches, degree, hosts int, seed uint64) (*Graph, error) {
	if degree < 2 || degree >= switches || switches*degree%2 != 0 {
		return nil, fmt.Errorf("jellyfish: %d switches cannot have %d cables each", switches, degree)
	}
	g := &Graph{Hosts: hosts}
	for i := range switches {
		g.addSwitch("s%d", i)
	}
	for h := range hosts {
		g.join(Node(h), g.Switch(h%switches), w.HostRate, w.Delay)
	}
	for _, e := range regular(switches, degree, rand.New(rand.NewPCG(seed, 0))) {
		g.join(g.Switch(e[0]), g.Switch(e[1]), w.core(), w.Delay)
	}
	return g, nil
}

// regular returns the edges of a random regular graph by the method of Jellyfish's authors (3): join random pairs
// while possible, then replace edges to use the remaining ports.
func regular(n, degree int, rng *rand.Rand) (edges [][2]int) {
	free := make([]int, n)
	joined := make([]bool, n*n)
	for i := range free {
		free[i] = degree
	}
	set := func(a, b int, on bool) { joined[a*n+b], joined[b*n+a] = on, on }
	for {
		var pairs [][2]int
		for a := range n {
			for b := range a {
				if free[a] > 0 && free[b] > 0 && !joined[a*n+b] {
					pairs = append(pairs, [2]int{a, b})
				}
			}
		}
		if len(pairs) == 0 {
			break
		}
		e := pairs[rng.IntN(len(pairs))]
		set(e[0], e[1], true)
		free[e[0]]--
		free[e[1]]--
		edges = append(edges, e)
	}
	for a := range n {
		for tries := 0; free[a] >= 2 && tries < 1000; tries++ {
			i := rng.IntN(len(edges))
			x, y := edges[i][0], edges[i][1]
			if x == a || y == a || joined[a*n+x] || joined[a*n+y] {
				continue
			}
			set(x, y, false)
			set(a, x, true)
			set(a, y, true)
			edges[i] = [2]int{a, x}
			edges = append(edges, [2]int{a, y})
			free[a] -= 2
		}
	}
	return edges
}
