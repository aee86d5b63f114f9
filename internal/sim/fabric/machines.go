package fabric

import (
	"slices"

	"roced.io/roced/internal/base/quantity"
)

// NICs returns g with a host for each cable of a host of g: a NIC. Owner has their machines, the hosts of g.
func NICs(g *Graph) *Graph {
	cables := g.hostCables()
	several := false
	out := &Graph{Switches: g.Switches}
	first := make([]int, g.Hosts)
	for m, n := range cables {
		several = several || n > 1
		first[m] = out.Hosts
		out.Hosts += n
		for range n {
			out.Owner = append(out.Owner, m)
		}
	}
	if !several {
		return g
	}
	at := func(n Node) Node {
		if i := int(n) - g.Hosts; i >= 0 {
			return out.Switch(i)
		}
		first[n]++
		return Node(first[n] - 1)
	}
	for _, c := range g.Cables {
		out.join(at(c.A), at(c.B), c.Rate, c.Delay)
	}
	return out
}

// Relays returns g with a switch in each host that has several cables. The switch forwards packets of other hosts. The host
// is joined to it at the rate of all its cables.
func Relays(g *Graph) *Graph {
	out := &Graph{Hosts: g.Hosts, Switches: g.Switches}
	relay := make([]Node, g.Hosts)
	rates := make([]quantity.Rate, g.Hosts)
	for m, n := range g.hostCables() {
		if relay[m] = Node(m); n > 1 {
			relay[m] = out.addSwitch("relay%d", m)
		}
	}
	end := func(n Node, c *Cable) Node {
		if int(n) >= g.Hosts {
			return n
		}
		rates[n] += c.Rate
		return relay[n]
	}
	for i := range g.Cables {
		c := &g.Cables[i]
		out.join(end(c.A, c), end(c.B, c), c.Rate, c.Delay)
	}
	for m, r := range relay {
		if int(r) != m {
			out.join(Node(m), r, rates[m], 0)
		}
	}
	return out
}

// hostCables returns the number of cables of each host.
func (g *Graph) hostCables() []int {
	cables := make([]int, g.Hosts)
	for _, c := range g.Cables {
		for _, n := range [...]Node{c.A, c.B} {
			if int(n) < g.Hosts {
				cables[n]++
			}
		}
	}
	return cables
}

// Machines returns the number of machines: hosts, unless they are NICs.
func (g *Graph) Machines() int {
	if n := len(g.Owner); n > 0 {
		return g.Owner[n-1] + 1
	}
	return g.Hosts
}

// Machine returns the number of a host's machine.
func (g *Graph) Machine(host int) int {
	if g.Owner == nil {
		return host
	}
	return g.Owner[host]
}

// Networks returns the number of each host's network: packets can travel between hosts of the same network only, because
// hosts do not forward.
func (g *Graph) Networks() []int {
	near := make([][]Node, g.Hosts+len(g.Switches))
	for _, c := range g.Cables {
		near[c.A], near[c.B] = append(near[c.A], c.B), append(near[c.B], c.A)
	}
	of := make([]int, len(near))
	next := 0
	for h := range g.Hosts {
		if of[h] > 0 {
			continue
		}
		next++
		of[h] = next
		for queue := []Node{Node(h)}; len(queue) > 0; queue = queue[1:] {
			for _, n := range near[queue[0]] {
				if of[n] == 0 {
					of[n] = next
					queue = append(queue, n)
				}
			}
		}
	}
	return of[:g.Hosts]
}

// Joined returns a function that reports whether two machines have NICs in the same network.
func (g *Graph) Joined() func(a, b int) bool {
	all := g.Networks()
	if slices.Max(all) == 1 {
		return func(int, int) bool { return true }
	}
	networks := make([]map[int]bool, g.Machines())
	for h, n := range all {
		m := g.Machine(h)
		if networks[m] == nil {
			networks[m] = map[int]bool{}
		}
		networks[m][n] = true
	}
	return func(a, b int) bool {
		for n := range networks[a] {
			if networks[b][n] {
				return true
			}
		}
		return false
	}
}
