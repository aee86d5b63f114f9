package fabric

// hop is a link to a node and the node at its other end.
type hop struct {
	link *Link
	from Node
}

// Reroute computes for each switch and host the ports on shortest paths over working cables.
func (n *Network) Reroute() {
	g := n.graph
	n.ways.reset(n)
	n.routed++
	nodes := g.Hosts + len(g.Switches)
	in := make([][]hop, nodes)
	for i, c := range g.Cables {
		in[c.B] = append(in[c.B], hop{&n.links[2*i], c.A})
		in[c.A] = append(in[c.A], hop{&n.links[2*i+1], c.B})
	}
	known := make([]map[string]uint16, len(n.switches))
	for i := range n.switches {
		s := &n.switches[i]
		s.routes, s.groups = make([]uint16, g.Hosts), nil
		s.lb.reset()
		known[i] = map[string]uint16{}
	}
	dist := make([]int32, nodes)
	for h := range g.Hosts {
		n.distances(Node(h), in, dist)
		for i := range n.switches {
			n.switches[i].routes[h] = n.switches[i].toward(n, dist, known[i])
		}
	}
}

// distances fills dist with each node's number of links to host, -1 if there is no path. Packets do not pass
// through hosts.
func (n *Network) distances(host Node, in [][]hop, dist []int32) {
	for i := range dist {
		dist[i] = -1
	}
	dist[host] = 0
	for queue := []Node{host}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if int(at) < n.graph.Hosts && at != host {
			continue
		}
		for _, h := range in[at] {
			if !h.link.down && dist[h.from] < 0 {
				dist[h.from] = dist[at] + 1
				queue = append(queue, h.from)
			}
		}
	}
}

// first returns the first port of a route.
func (s *Switch) first(way uint16) uint16 {
	if way&oneOf != 0 {
		return s.groups[way&^oneOf-1][0]
	}
	return way - 1
}

// toward returns the route by ports that lead nearer to the node with distance zero, or 0 if there is none.
func (s *Switch) toward(n *Network, dist []int32, known map[string]uint16) uint16 {
	here := dist[n.graph.Hosts+s.id]
	if here < 0 {
		return 0
	}
	var ports []uint16
	var key []byte
	for i := range s.ports {
		o := &s.ports[i]
		if d := dist[o.peer]; !o.out.down && d >= 0 && d < here {
			ports = append(ports, uint16(i))
			key = append(key, byte(i), byte(i>>8))
		}
	}
	if len(ports) == 1 {
		return ports[0] + 1
	}
	if g, ok := known[string(key)]; ok {
		return g
	}
	s.groups = append(s.groups, ports)
	g := oneOf | uint16(len(s.groups))
	known[string(key)] = g
	return g
}
