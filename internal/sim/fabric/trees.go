package fabric

// PauseTrees returns the number of paused links and their dependencies. A switch pauses a link because its packets wait
// for ports that may be paused, too. Such a link is a branch of the paused ports' links. Roots depend on no other
// paused link; depth is the longest chain. A cycle is a deadlock and has no root.
func (n *Network) PauseTrees() (paused, roots, depth int) {
	t := trees{}
	for i := range n.links {
		l := &n.links[i]
		if l.paused == 0 {
			continue
		}
		paused++
		d := t.of(l)
		depth = max(depth, d)
		if d == 1 {
			roots++
		}
	}
	return paused, roots, depth
}

// trees holds the depths of paused links; a root has 1. Zero: being computed.
type trees map[*Link]int

func (t trees) of(l *Link) int {
	if d, ok := t[l]; ok {
		return d
	}
	t[l] = 0
	d, branch := 0, false
	if s, ok := l.dst.(*Switch); ok {
		for i := range s.ports {
			if next := s.ports[i].out; next.paused != 0 && next != l.Reverse {
				d, branch = max(d, t.of(next)), true
			}
		}
	}
	if d++; branch {
		d = max(d, 2) // also in a cycle
	}
	t[l] = d
	return d
}
