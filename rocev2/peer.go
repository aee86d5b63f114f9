package rocev2

import (
	"cmp"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
)

// peer is the window of the queue pairs that are connected to one address.
type peer struct {
	*qp.Peer
	addr  inet.GID
	flows map[*shareGroup]*flow
}

// flow is the window of a client towards a peer.
type flow struct {
	*qp.Client
	to      *peer
	users   int                                  // queue pairs
	waiting [sched.Classes]list.List[*QueuePair] // for a turn, by priority
}

// flow returns the flow of a client.
func (p *peer) flow(g *shareGroup) *flow {
	x := p.flows[g]
	if x == nil {
		x = &flow{Client: qp.NewClient(p.Peer), to: p}
		p.flows[g] = x
	}
	return x
}

// park makes q wait for a turn of its client, if its packets need one.
func (q *QueuePair) park() {
	if q.flow == nil || !q.core.Waits() || q.node.parked {
		return
	}
	q.flow.waiting[q.node.priority].PushBack(&q.node.queue)
	q.flow.Waiting++
	q.node.parked = true
}

// unpark ends the wait of q.
func (q *QueuePair) unpark() {
	if q.node.parked {
		q.node.queue.Remove()
		q.flow.Waiting--
		q.node.parked = false
	}
}

// callWaiting lets queue pairs of x begin their turns if there is room. Those with the highest priority go first, the
// others in the order of their waiting. It follows the last packet of each queue pair, so it follows each acknowledgement.
func (s *scheduler) callWaiting(now mono.Time, x *flow) {
	if x == nil || x.Waiting == 0 {
		return
	}
	turns := x.Turns(now)
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
	if x := q.flow; x != nil {
		if q.path.Next != nil && q.path.Dst == x.to.addr {
			return
		}
		q.unpark()
		q.core.SetPeer(now, nil)
		q.flow = nil
		n.sch.callWaiting(now, x)
		n.leaveFlow(x, q.node.share)
	}
	if q.path.Next == nil || q.typ != qp.RC {
		return
	}
	p := n.peers[q.path.Dst]
	if p == nil {
		most, local := n.cfg.PeerWindow, n.cfg.Local
		if n.memberOf(&q.path) != 0 && n.across(&q.path) == nil {
			most, local = min(cmp.Or(most, link.RemoteWindow), link.RemoteWindow), true
		}
		p = &peer{Peer: qp.NewPeer(most, local, &n.contention), addr: q.path.Dst, flows: map[*shareGroup]*flow{}}
		n.peers[q.path.Dst] = p
	}
	q.flow = p.flow(q.node.share)
	q.flow.users++
	q.core.SetPeer(now, q.flow.Client)
}

// leaveFlow removes the flow of g with its last queue pair, and the peer with its last flow.
func (n *NIC) leaveFlow(x *flow, g *shareGroup) {
	if x.users--; x.users > 0 {
		return
	}
	delete(x.to.flows, g)
	if len(x.to.flows) == 0 {
		delete(n.peers, x.to.addr)
	}
}
