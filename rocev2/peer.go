package rocev2

import "roced.io/roced/qp"

// peer is the window of the queue pairs that are connected to one address.
type peer struct {
	*qp.Peer
	addr  GID
	users int // queue pairs
}

// setPeer makes q share the window of its peer, which has an address other than the NIC's.
func (n *NIC) setPeer(q *QueuePair) {
	if old := q.peer; old != nil {
		if q.path.Next != nil && q.path.Dst == old.addr {
			return
		}
		q.core.SetPeer(nil)
		q.peer = nil
		if old.users--; old.users == 0 {
			delete(n.peers, old.addr)
		}
	}
	if q.path.Next == nil || q.typ != qp.RC {
		return
	}
	p := n.peers[q.path.Dst]
	if p == nil {
		p = &peer{Peer: qp.NewPeer(n.cfg.PeerWindow, n.cfg.Near), addr: q.path.Dst}
		n.peers[q.path.Dst] = p
	}
	p.users++
	q.peer = p
	q.core.SetPeer(p.Peer)
}
