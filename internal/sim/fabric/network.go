package fabric

import (
	"fmt"

	"roced.io/roced/internal/sim/engine"
)

// Endpoint is a host's NIC.
type Endpoint interface {
	Source
	Sink
}

// Owner is notified of dropped packets.
type Owner interface {
	Dropped(now engine.Time, p *Packet, why Reason)
}

// Config describes a network.
type Config struct {
	Graph *Graph
	// Switch returns the configuration of the i-th switch, which has ports ports.
	Switch func(i int, ports int) SwitchConfig
	Seed   uint64
	Owner  Owner
	// Engines are those of the parts, by number, and Parts has the part of each switch. Default: one part.
	Engines []*engine.Engine
	Parts   []int
}

// Network is links and switches between hosts.
type Network struct {
	seed     uint64
	parts    []*Part
	graph    *Graph
	links    []Link // 2i is Cables[i] from A to B, 2i+1 is from B to A
	switches []Switch
	uplink   []*Link // by host
	ways     ways
	homes    []int32 // by host: its switch, -1: none
	routed   int     // number of calls of Reroute
}

// New creates a network on an engine, unless c has several. Attach the hosts before it runs.
func New(e *engine.Engine, c Config) (*Network, error) {
	if err := c.Graph.check(); err != nil {
		return nil, err
	}
	g := c.Graph
	n := &Network{seed: c.Seed, graph: g,
		links: make([]Link, 2*len(g.Cables)), switches: make([]Switch, len(g.Switches)), uplink: make([]*Link, g.Hosts)}
	if c.Engines == nil {
		c.Engines, c.Parts = []*engine.Engine{e}, make([]int, len(g.Switches))
	}
	n.divide(&c)
	ports := make([]int, len(g.Switches))
	for _, cable := range g.Cables {
		for _, node := range [...]Node{cable.A, cable.B} {
			if i := int(node) - g.Hosts; i >= 0 {
				ports[i]++
			}
		}
	}
	for i := range n.switches {
		sc := c.Switch(i, ports[i])
		if err := sc.Balance.Check(); err != nil {
			return nil, err
		}
		n.switches[i].init(n.parts[c.Parts[i]], i, g.Switches[i], sc, ports[i])
	}
	n.homes = make([]int32, g.Hosts)
	n.wire()
	n.join()
	n.Reroute()
	return n, nil
}

// divide makes the parts.
func (n *Network) divide(c *Config) {
	for i, e := range c.Engines {
		n.parts = append(n.parts, &Part{net: n, eng: e, id: i, Owner: c.Owner, first: engine.Never,
			boxes: [2][][]letter{make([][]letter, len(c.Engines)), make([][]letter, len(c.Engines))}})
	}
	for _, a := range c.Parts {
		n.parts[a].soonest = append(n.parts[a].soonest, engine.Never)
	}
}

// wire creates the links and connects them to ports, in the order of the cables.
func (n *Network) wire() {
	g, names := n.graph, n.graph.Links()
	used := make([]int32, len(n.switches))
	for i, c := range g.Cables {
		ab, ba := &n.links[2*i], &n.links[2*i+1]
		ab.init(n, names[2*i], uint64(c.Rate), c.Delay, uint64(2*i))
		ba.init(n, names[2*i+1], uint64(c.Rate), c.Delay, uint64(2*i+1))
		ab.Reverse, ba.Reverse = ba, ab
		n.plug(c.A, c.B, ab, used)
		n.plug(c.B, c.A, ba, used)
	}
}

// plug connects out to the next port of node, and its reverse to the same port.
func (n *Network) plug(node, peer Node, out *Link, used []int32) {
	i := int(node) - n.graph.Hosts
	if i < 0 {
		n.uplink[node] = out
		n.homes[node] = int32(int(peer) - n.graph.Hosts)
		if home := n.homes[node]; home >= 0 {
			out.part, out.Reverse.part = n.switches[home].part, n.switches[home].part
		}
		out.atHost()
		out.Reverse.atHost()
		return
	}
	s := &n.switches[i]
	o := &s.ports[used[i]]
	o.out, o.peer, o.toHost = out, peer, int(peer) < n.graph.Hosts
	out.src = o
	out.sends, out.port = &s.agenda, used[i]
	out.Reverse.dst, out.Reverse.dstPort, out.Reverse.receives = s, used[i], &s.agenda
	out.Reverse.part = s.part
	if p := int(peer) - n.graph.Hosts; p >= 0 && n.switches[p].part != s.part {
		out.away = &outbox{part: s.part, to: n.switches[p].part.id}
	}
	used[i]++
}

// join makes the engines drive the switches.
func (n *Network) join() {
	if len(n.switches) > 0 {
		for _, a := range n.parts {
			a.eng.Join(a, n.apart())
		}
	}
}

// apart returns the minimum time until an event at one node affects another one.
func (n *Network) apart() engine.Time {
	least := engine.Time(1) << 62
	for i := range n.links {
		l := &n.links[i]
		least = min(least, l.delay+engine.Time(shortest*8*uint64(engine.Second)/l.rate))
	}
	return max(least, 1)
}

// shortest is the minimum number of bytes of a packet on a link.
const shortest = 1

// Attach makes e the NIC of a host and returns the link on which it sends.
func (n *Network) Attach(host int, e Endpoint) *Link {
	l := n.uplink[host]
	l.src = e
	l.Reverse.dst = e
	return l
}

// Uplink returns the link on which a host sends.
func (n *Network) Uplink(host int) *Link { return n.uplink[host] }

// Parts returns the parts.
func (n *Network) Parts() []*Part { return n.parts }

// PartOf returns the number of a host's part.
func (n *Network) PartOf(host int) int { return n.uplink[host].part.id }

// Drops returns the number of packets lost for a reason.
func (n *Network) Drops(why Reason) (sum uint64) {
	for _, a := range n.parts {
		sum += a.drops[why]
	}
	return sum
}

// Lost returns the number of packets of a class that were lost.
func (n *Network) Lost(class uint8) (sum uint64) {
	for _, a := range n.parts {
		sum += a.lost[class]
	}
	return sum
}

// Pauses returns the number of PFC frames that paused links for a class.
func (n *Network) Pauses(class uint8) (sum uint64) {
	for i := range n.links {
		sum += n.links[i].pauses[class]
	}
	return sum
}

// Links returns both directions of all cables.
func (n *Network) Links() []Link { return n.links }

// Switches returns all switches.
func (n *Network) Switches() []Switch { return n.switches }

// Graph returns the topology.
func (n *Network) Graph() *Graph { return n.graph }

// Routed returns how often routes have changed.
func (n *Network) Routed() int { return n.routed }

// Hosts is the number of hosts.
func (n *Network) Hosts() int { return n.graph.Hosts }

// Named returns the link with a name such as leaf0-spine1#2, or all links between two nodes: leaf0-spine1. There is at least one.
func (n *Network) Named(name string) (links []*Link, err error) {
	for k := range n.links {
		if l := &n.links[k]; l.Name == name || Ends(l.Name) == name {
			links = append(links, l)
		}
	}
	if len(links) == 0 {
		return nil, fmt.Errorf("there is no link %q", name)
	}
	return links, nil
}

// Path appends the links of the first shortest path between two hosts.
func (n *Network) Path(src, dst int, path []*Link) []*Link {
	for l := n.uplink[src]; ; {
		path = append(path, l)
		s, ok := l.dst.(*Switch)
		if !ok || s.routes[dst] == 0 {
			return path
		}
		l = s.ports[s.first(s.routes[dst])].out
	}
}

// Leads reports whether a path ends at a host.
func (n *Network) Leads(path []*Link, dst int) bool {
	return path[len(path)-1] == n.uplink[dst].Reverse
}

// Passes reports whether the packets of a flow pass through the switch with that name. It is false if a switch before it
// does not choose by the flow's hash or path.
func (n *Network) Passes(src, dst int, hash uint32, name string) bool {
	p := Packet{Hash: hash}
	for l := n.uplink[src]; ; {
		s, ok := l.dst.(*Switch)
		if !ok || s.routes[dst] == 0 {
			return false
		}
		if s.Name == name {
			return true
		}
		at := s.first(s.routes[dst])
		if way := s.routes[dst]; way&oneOf != 0 {
			switch s.lb.(type) {
			case ecmp, explicit:
			default:
				return false
			}
			if s.ways != nil {
				return false
			}
			at = s.lb.choose(0, s, way&^oneOf-1, &p)
		}
		l = s.ports[at].out
	}
}

// Fail takes both directions of a cable down or up again. Packets on a failed cable are lost. Routes change with
// the next Reroute.
func (l *Link) Fail(down bool) {
	l.down, l.Reverse.down = down, down
	for _, end := range [...]Source{l.src, l.Reverse.src} {
		if w, ok := end.(Watcher); ok {
			w.LinkChanged()
		}
	}
}

// Degrade sets the rate of one direction in bits per second, from its next packet on.
func (l *Link) Degrade(rate uint64) {
	l.setRate(max(rate, 1))
	l.part.net.join()
}

// Lose makes one direction lose packets with a probability.
func (l *Link) Lose(p float64) {
	l.faults.loss = probability(p)
	l.faulty = true
}

// Corrupt makes one direction corrupt packets with a probability: they use the link, and the receiver drops them
// for a wrong FCS.
func (l *Link) Corrupt(p float64) {
	l.faults.corruption = probability(p)
	l.faulty = true
}

// Jitter adds a random delay, up to most, to each packet of one direction. Packets are not reordered.
func (l *Link) Jitter(most engine.Time) {
	l.faults.jitter = max(most, 0)
	l.faulty = true
}

// Mark gives the switch queue before one direction its own ECN configuration.
func (l *Link) Mark(c ECNConfig) {
	if o, ok := l.src.(*port); ok {
		o.marker = new(marker)
		o.marker.init(c)
	}
}

func probability(p float64) uint64 { return uint64(p * (1 << 63)) }
