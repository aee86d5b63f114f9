package fabric

// PauseTrees says how many links are paused now and how they hang together. A link is paused by the switch that it
// leads to, whose packets wait in ports that may be paused themselves: then it is a branch of these. Roots are
// paused for no other link; depth is how many links are paused one behind the other at most. Links that wait for
// each other in a circle, a deadlock, have no root.
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

// trees has the depths of paused links, the root's being one; zero while it is being found.
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
		d = max(d, 2) // of a circle, too
	}
	t[l] = d
	return d
}
