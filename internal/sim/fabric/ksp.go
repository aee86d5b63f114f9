package fabric

import (
	"slices"
)

// ways holds the k shortest loop-free paths between switches; of equally long paths, the first ones found. Each flow
// uses one of them, selected by its hash, as in Jellyfish (Singla et al., NSDI 2012, 5.1; Eunomia's baseline FKSP).
// Paths are computed on first use.
type ways struct {
	k     int
	net   *Network
	known map[[2]int32][]trail
}

// trail is a path: its switches, and the egress port of each but the last.
type trail struct {
	nodes []int32
	ports []uint16
}

func (w *ways) reset(n *Network) { w.net, w.known = n, map[[2]int32][]trail{} }

// choose returns the port by which p leaves s on its path. ok is false if the path does not pass s or ends there.
func (w *ways) choose(s *Switch, p *Packet) (port uint16, ok bool) {
	from, to := w.net.homes[p.Src], w.net.homes[p.Dst]
	if from == to || from < 0 || to < 0 {
		return 0, false
	}
	key := [2]int32{from, to}
	all, known := w.known[key]
	if !known {
		all = w.find(from, to)
		w.known[key] = all
	}
	if len(all) == 0 {
		return 0, false
	}
	t := &all[uint64(mix(p.Hash^uint32(w.net.seed)))*uint64(len(all))>>32]
	at := int(p.Hops) - 1
	if at < 0 || at >= len(t.ports) || t.nodes[at] != int32(s.id) {
		return 0, false
	}
	return t.ports[at], true
}

// find is Yen's algorithm (Management Science 1971): the next path is the shortest of the paths that branch off an
// earlier one.
func (w *ways) find(from, to int32) (found []trail) {
	first := w.shortest(from, to, nil, nil)
	if first == nil {
		return nil
	}
	found = append(found, w.trail(first))
	var more [][]int32
	for len(found) < w.k {
		last := found[len(found)-1].nodes
		for i := range len(last) - 1 {
			root := last[:i+1]
			avoid := map[[2]int32]bool{}
			for _, t := range found {
				if len(t.nodes) > i+1 && slices.Equal(t.nodes[:i+1], root) {
					avoid[[2]int32{t.nodes[i], t.nodes[i+1]}] = true
				}
			}
			spur := w.shortest(last[i], to, root[:i], avoid)
			if spur == nil {
				continue
			}
			path := append(slices.Clone(root[:i]), spur...)
			if !slices.ContainsFunc(more, func(x []int32) bool { return slices.Equal(x, path) }) {
				more = append(more, path)
			}
		}
		if len(more) == 0 {
			break
		}
		best := 0
		for i := range more {
			if len(more[i]) < len(more[best]) {
				best = i
			}
		}
		found = append(found, w.trail(more[best]))
		more = slices.Delete(more, best, best+1)
	}
	return found
}

// shortest returns the switches of a shortest path that avoids some switches and steps; nil if there is none.
func (w *ways) shortest(from, to int32, without []int32, avoid map[[2]int32]bool) []int32 {
	before := make([]int32, len(w.net.switches))
	for i := range before {
		before[i] = -1
	}
	for _, x := range without {
		before[x] = x
	}
	before[from] = from
	for queue := []int32{from}; len(queue) > 0 && before[to] < 0; queue = queue[1:] {
		at := queue[0]
		for i := range w.net.switches[at].ports {
			o := &w.net.switches[at].ports[i]
			next := int32(int(o.peer) - w.net.graph.Hosts)
			if !o.toHost && !o.out.down && before[next] < 0 && !avoid[[2]int32{at, next}] {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	if before[to] < 0 {
		return nil
	}
	path := []int32{to}
	for at := to; at != from; path = append(path, at) {
		at = before[at]
	}
	slices.Reverse(path)
	return path
}

func (w *ways) trail(nodes []int32) trail {
	t := trail{nodes: nodes}
	for i, at := range nodes[:len(nodes)-1] {
		for k := range w.net.switches[at].ports {
			if o := &w.net.switches[at].ports[k]; !o.toHost && int(o.peer)-w.net.graph.Hosts == int(nodes[i+1]) && !o.out.down {
				t.ports = append(t.ports, uint16(k))
				break
			}
		}
	}
	return t
}
