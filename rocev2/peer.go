package rocev2

import (
	"roced.io/roced/internal/base/list"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// peer is the window of the queue pairs that are connected to one address.
type peer struct {
	*qp.Peer
	addr  GID
	users int // queue pairs
	flows map[*shareGroup]*flow
}

// flow is the window of a client towards a peer.
type flow struct {
	*qp.ClientWindow
	users   int                                  // queue pairs
	waiting [sched.Classes]list.List[*QueuePair] // for a turn, by priority
}

// flow returns the flow of a client.
func (p *peer) flow(g *shareGroup) *flow {
	x := p.flows[g]
	if x == nil {
		x = &flow{ClientWindow: qp.NewClientWindow(p.Peer)}
		p.flows[g] = x
	}
	return x
}

// park makes q wait for a turn of its client, if its packets need one.
func (q *QueuePair) park() {
	if q.flow == nil || !q.core.Waits() || q.node.parked.Listed() {
		return
	}
	q.flow.waiting[q.node.priority].PushBack(&q.node.parked)
	q.flow.Waiting++
}

// unpark ends the wait of q.
func (q *QueuePair) unpark() {
	if q.node.parked.Listed() {
		q.node.parked.Remove()
		q.flow.Waiting--
	}
}

// callWaiting lets queue pairs of the client of q begin their turns after an acknowledgement. Those with the highest
// priority go first, the others in the order of their waiting.
func (s *scheduler) callWaiting(q *QueuePair) {
	x := q.flow
	if x == nil || x.Waiting == 0 {
		return
	}
	turns := x.Turns()
	for i := len(x.waiting) - 1; i >= 0 && turns > 0; i-- {
		for w := x.waiting[i].First(); w != nil && turns > 0; w = x.waiting[i].First() {
			w.Item.unpark()
			w.Item.core.BeginTurn()
			s.activate(w.Item)
			turns--
		}
	}
}

// setPeer makes q share the window of its peer, which has an address other than the NIC's.
func (n *NIC) setPeer(now mono.Time, q *QueuePair) {
	if old := q.peer; old != nil {
		if q.path.Next != nil && q.path.Dst == old.addr {
			return
		}
		q.unpark()
		q.core.SetPeer(now, nil, nil)
		if q.flow.users--; q.flow.users == 0 {
			delete(old.flows, q.node.share)
		}
		q.peer, q.flow = nil, nil
		if old.users--; old.users == 0 {
			delete(n.peers, old.addr)
		}
	}
	if q.path.Next == nil || q.typ != qp.RC {
		return
	}
	p := n.peers[q.path.Dst]
	if p == nil {
		p = &peer{Peer: qp.NewPeer(n.cfg.PeerWindow, n.cfg.Near), addr: q.path.Dst, flows: map[*shareGroup]*flow{}}
		n.peers[q.path.Dst] = p
	}
	p.users++
	q.peer, q.flow = p, p.flow(q.node.share)
	q.flow.users++
	q.core.SetPeer(now, p.Peer, q.flow.ClientWindow)
}
