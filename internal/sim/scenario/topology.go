package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/ns3"
	"roced.io/roced/path"
)

// maxHosts limits the numbers in a file, to catch mistakes.
const maxHosts = 1 << 16

func (f *File) topology(c *sim.Config, load func(string) ([]byte, error)) (err error) {
	t := &f.Topology
	w := t.Wires
	if t.HostRate == 0 && t.Kind != "graph" && t.Kind != "ns3" {
		return f.At("topology.host_rate", "missing; set the rate of hosts' links, such as 100Gbps")
	}
	if err := f.network(); err != nil {
		return err
	}
	switch t.Kind {
	case "pair":
		c.Graph = fabric.Pair(w, false)
	case "star":
		if err = f.need(number{"hosts", t.Hosts}); err == nil {
			c.Graph = fabric.Star(w, t.Hosts)
		}
	case "dumbbell":
		if err = f.need(number{"left", t.Left}, number{"right", t.Right}); err == nil {
			c.Graph = fabric.Dumbbell(w, t.Left, t.Right)
		}
	case "parallel":
		if err = f.need(number{"hosts", t.Hosts}, number{"paths", t.Paths}); err == nil {
			c.Graph = fabric.ParallelPaths(w, t.Hosts, t.Paths)
		}
	case "leaf-spine":
		if err = f.need(number{"leaves", t.Leaves}, number{"spines", t.Spines}, number{"hosts_per_leaf", t.HostsPerLeaf}); err == nil {
			c.Graph = fabric.LeafSpine(w, t.Leaves, t.Spines, t.HostsPerLeaf, max(t.Cables, 1))
		}
	case "fat-tree":
		if err = f.need(number{"k", t.K}); err != nil {
			return err
		}
		if c.Graph, err = fabric.FatTree(w, t.K); err != nil {
			return f.At("topology.k", "%v", err)
		}
	case "jellyfish":
		if err = f.need(number{"switches", t.Switches}, number{"degree", t.Degree}, number{"hosts", t.Hosts}); err != nil {
			return err
		}
		if c.Graph, err = fabric.Jellyfish(w, t.Switches, t.Degree, t.Hosts, t.Seed); err != nil {
			return f.At("topology.degree", "%v", err)
		}
	case "rails":
		err = f.need(number{"machines", t.Machines})
		c.Graph = fabric.Rails(w, max(t.Rails, 2), min(max(t.Machines, 1), maxHosts), min(t.Spines, maxHosts))
	case "graph":
		c.Graph, err = f.graph()
	case "ns3":
		err = f.ns3(c, load)
	default:
		return f.At("topology.kind", "%v", suggest.OneOf(t.Kind,
			[]string{"pair", "star", "dumbbell", "parallel", "leaf-spine", "fat-tree", "jellyfish", "rails", "graph", "ns3"}))
	}
	if err == nil {
		err = f.several(c)
	}
	if err == nil {
		err = f.planes(c)
	}
	return err
}

// several gives hosts with several links a NIC for each, or a switch that also forwards packets of other hosts.
func (f *File) several(c *sim.Config) error {
	t := &f.Topology
	if t.Relay {
		c.Graph = fabric.Relays(c.Graph)
	}
	c.Graph = fabric.NICs(c.Graph)
	if c.Graph.Owner != nil && t.Planes > 1 {
		return f.At("topology.planes", "hosts with several links have a NIC for each link; remove planes, or describe one plane with one link for each host")
	}
	if t.Kind == "ns3" {
		t.HostRate = cmp.Or(t.HostRate, hostRate(c.Graph))
	}
	return nil
}

// number is a value of the topology that must be given.
type number struct {
	key string
	v   int
}

func (f *File) need(ns ...number) error {
	for _, n := range ns {
		if n.v < 1 || n.v > maxHosts {
			return f.At("topology."+n.key, "%s requires a value from 1 to %d", f.Topology.Kind, maxHosts)
		}
	}
	return nil
}

// planes copies the network for each port of the NICs. The entropy values of MRC select the port.
func (f *File) planes(c *sim.Config) error {
	n := f.Topology.Planes
	switch {
	case n == 0 || n == 1:
		return nil
	case n < 0 || n > path.MaxPlanes:
		return f.At("topology.planes", "%d: must be from 1 to %d", n, path.MaxPlanes)
	case f.Transport.Profile != "mrc":
		return f.At("topology.planes", "only transport mrc selects planes")
	}
	c.Graph, c.Planes = fabric.Planes(c.Graph, n), n
	return nil
}

// graph returns a topology of single cables. Switches are numbered in the order of the cables.
func (f *File) graph() (*fabric.Graph, error) {
	hosts := 0
	for _, l := range f.Topology.Links {
		for _, name := range [...]string{l.A, l.B} {
			if h, ok := hostNumber(name); ok {
				hosts = max(hosts, h+1)
			}
		}
	}
	g := &fabric.Graph{Hosts: hosts}
	nodes := map[string]fabric.Node{}
	node := func(name string) fabric.Node {
		if h, ok := hostNumber(name); ok {
			return fabric.Node(h)
		}
		if _, ok := nodes[name]; !ok {
			nodes[name] = g.Switch(len(g.Switches))
			g.Switches = append(g.Switches, name)
		}
		return nodes[name]
	}
	for i, l := range f.Topology.Links {
		if l.A == "" || l.B == "" || l.Rate == 0 {
			return nil, f.At(fmt.Sprintf("topology.links.%d", i), "a link requires a, b and rate")
		}
		if l.A == l.B {
			return nil, f.At(fmt.Sprintf("topology.links.%d", i), "the link joins %s to itself", l.A)
		}
		if l.Rate > fabric.MaxRate {
			return nil, f.At(fmt.Sprintf("topology.links.%d.rate", i), "exceeds 100 Tb/s")
		}
		g.Cables = append(g.Cables, fabric.Cable{A: node(l.A), B: node(l.B), Rate: l.Rate, Delay: l.Delay})
	}
	if err := f.graphSize(float64(hosts), float64(len(g.Switches)), float64(len(g.Cables))); err != nil {
		return nil, err
	}
	if hosts < 2 {
		return nil, f.At("topology.links", "%d hosts are too few; hosts are named h0, h1 ...", hosts)
	}
	linked := make([]bool, hosts+len(g.Switches))
	for _, l := range g.Cables {
		linked[l.A], linked[l.B] = true, true
	}
	if h := slices.Index(linked, false); h >= 0 {
		return nil, f.At("topology.links", "h%d has no link; hosts are numbered from h0 to h%d", h, hosts-1)
	}
	return g, nil
}

// ns3 reads a topology file. Its error rates become losses of links. The rate of the hosts' links is known if all are equal.
func (f *File) ns3(c *sim.Config, load func(string) ([]byte, error)) error {
	t := &f.Topology
	text, err := load(t.File)
	if err != nil {
		return f.At("topology.file", "%v", err)
	}
	read, err := ns3.ReadTopology(string(text))
	if err != nil {
		return f.At("topology.file", "%s: %v", t.File, err)
	}
	if err := f.graphSize(float64(read.Graph.Hosts), float64(len(read.Graph.Switches)), float64(len(read.Graph.Cables))); err != nil {
		return err
	}
	c.Graph, c.HostIDs = read.Graph, read.Hosts
	if slices.Max(read.Loss) > 0 {
		c.Events = append(c.Events, sim.Event{Do: func(n *fabric.Network) {
			for i := range n.Links() { // two for each cable, in each plane; those of relays are behind the file's
				if at := i / 2 % (len(n.Links()) / 2 / max(c.Planes, 1)); at < len(read.Loss) {
					n.Links()[i].Lose(read.Loss[at])
				}
			}
		}})
	}
	return nil
}

// hostRate returns the rate of all links of a host, 0 if hosts or their links differ.
func hostRate(g *fabric.Graph) quantity.Rate {
	rates, sums := map[quantity.Rate]bool{}, make([]quantity.Rate, g.Machines())
	for i := range g.Cables {
		l := &g.Cables[i]
		for _, n := range [...]fabric.Node{l.A, l.B} {
			if int(n) < g.Hosts {
				rates[l.Rate] = true
				sums[g.Machine(int(n))] += l.Rate
			}
		}
	}
	if len(rates) > 1 || slices.Max(sums) != slices.Min(sums) {
		return 0
	}
	return sums[0]
}

// hostNumber parses h0, h1 ...
func hostNumber(name string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "h"))
	return n, err == nil && strings.HasPrefix(name, "h") && n >= 0 && n < maxHosts
}
