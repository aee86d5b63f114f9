package engine

import "fmt"

// check reports violations of invariants after all activity has ended.
func (l *lab) check() error {
	for side, n := range l.nodes {
		peer := l.nodes[1-side]
		empty := 0
		for id, s := range n.sent {
			switch {
			case !n.crashed && !s.told:
				return fmt.Errorf("side %d: nothing was said of message %d, of %d bytes", side, id, len(s.b.Data))
			case len(s.b.Data) == 0:
				empty++
			case peer.got[id] > 1:
				return fmt.Errorf("side %d: message %d came %d times", side, id, peer.got[id])
			case s.told && s.err == nil && peer.got[id] != 1:
				return fmt.Errorf("side %d: message %d did not come", side, id)
			}
		}
		if peer.empty > empty {
			return fmt.Errorf("side %d: %d messages of no bytes, %d came", side, empty, peer.empty)
		}
		for _, b := range n.landings {
			if !b.done {
				continue
			}
			for i, v := range b.b.Data {
				if v != 0xee {
					return fmt.Errorf("side %d: byte %d of %d was written after delivery", side, i, len(b.b.Data))
				}
			}
		}
	}
	return nil
}

// leaks reports the remaining state of closed connections.
func (n *node) leaks() error {
	e := n.e
	done := 0
	for _, b := range n.landings {
		if b.done {
			done++
		}
	}
	switch {
	case e.open != 0 || len(e.conns) != 0 || e.deadlines.Len() != 0 || e.news.Len() != 0:
		return fmt.Errorf("side %d: %d connections, %d queue pairs, %d timers, %d news", n.side, e.open, len(e.conns), e.deadlines.Len(), e.news.Len())
	case e.held != 0 || len(n.recvs) != len(e.cfg.Pool):
		return fmt.Errorf("side %d: %d buffers held, %d of %d posted", n.side, e.held, len(n.recvs), len(e.cfg.Pool))
	case len(n.exposed) != 0 || done+n.unused != len(n.landings):
		return fmt.Errorf("side %d: %d keys; of %d landing buffers %d were delivered, %d unused", n.side, len(n.exposed), len(n.landings), done, n.unused)
	}
	return nil
}
