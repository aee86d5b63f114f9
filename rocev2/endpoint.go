package rocev2

import (
	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
)

// endpoints are the endpoint operations of MRC, which use queue pair bth.MRCEndpointQPN. The NIC answers the requests of
// addresses to which a queue pair of MRC is connected. A response goes to the queue pair that has sent the request.
type endpoints struct {
	peers map[route]*endpointPeer
	asked *mrc.Requests // nil: none so far
	lost  uint32        // a bit for each port of the NIC that is down
}

// route is the addresses of a connection.
type route struct{ own, peer inet.GID }

// endpointPeer is an address with connected queue pairs of MRC.
type endpointPeer struct {
	queuePairs list.List[*QueuePair]
	count      int    // of queuePairs, which share the EV probes
	ports      uint32 // its last port status that a queue pair has verified
}

// maxVerifiers limits the queue pairs of an address that are asked to verify its port status: those with entropy values can.
const maxVerifiers = 16

// SetPorts reports which ports of a NIC with Config.Ports are up, by a bit for each. Queue pairs of MRC leave the planes of
// the others. One of the queue pairs of each connection of addresses tells the peer.
func (n *NIC) SetPorts(now mono.Time, up uint32) {
	lost := ^up & (1<<n.cfg.Ports - 1)
	if lost == n.ends.lost {
		return
	}
	n.now, n.ends.lost = now, lost
	for q := range n.obj.qps.All {
		if !q.ends.Listed() {
			continue
		}
		if q.endpoint.queuePairs.First() == &q.ends {
			q.core.SetPorts(now, n.ports())
		} else {
			q.core.PeerPorts(now, n.ports())
		}
		n.sch.settle(q)
	}
}

// ports returns a bit for each port of the NIC that is up.
func (n *NIC) ports() uint32 { return (1<<max(n.cfg.Ports, 1) - 1) &^ n.ends.lost }

// learnPorts makes q, which begins to receive or to send, use only the planes with ports that are up on both sides. A queue
// pair that begins to send has forgotten them.
func (n *NIC) learnPorts(now mono.Time, q *QueuePair) {
	if s := q.State(); !q.ends.Listed() || s != qp.RTR && s != qp.RTS {
		return
	}
	n.applyPorts(now, q)
	if n.ends.lost != 0 {
		q.core.SetPorts(now, n.ports())
	}
}

// applyPorts makes q leave the planes of ports that its peer has lost.
func (n *NIC) applyPorts(now mono.Time, q *QueuePair) {
	q.ports = q.endpoint.ports
	q.core.PeerPorts(now, q.ports)
}

// verify lets a queue pair verify the port status of its peer.
func (n *NIC) verify(now mono.Time, from *endpointPeer, ports uint32) {
	q := from.queuePairs.First()
	for range maxVerifiers {
		if q == nil {
			return
		}
		if q.Item.core.VerifyPorts(now, from.ports, ports) {
			n.sch.settle(q.Item)
			return
		}
		q = q.Next()
	}
}

// route returns the addresses of a connected queue pair.
func (q *QueuePair) route() route { return route{q.path.Src, q.path.Dst} }

// number numbers a request of q, which is about to be sent.
func (n *NIC) number(q *QueuePair, p *bth.Packet) {
	if n.ends.asked == nil {
		n.ends.asked = mrc.NewRequests(uint16(n.obj.seeds.Uint64()))
	}
	n.ends.asked.Number(q.num, p)
}

// join records the peer of q, which has been connected.
func (e *endpoints) join(q *QueuePair) {
	if !q.core.Endpoints() || !q.path.Valid() || q.ends.Listed() {
		return
	}
	if e.peers == nil {
		e.peers = map[route]*endpointPeer{}
	}
	r := q.route()
	p := e.peers[r]
	if p == nil {
		p = &endpointPeer{ports: ^uint32(0)}
		e.peers[r] = p
	}
	q.ends.Item, q.endpoint, q.ports = q, p, ^uint32(0)
	p.queuePairs.PushBack(&q.ends)
	p.count++
	q.core.ShareProbes(&p.count)
}

// leave undoes join.
func (e *endpoints) leave(q *QueuePair) {
	if !q.ends.Listed() {
		return
	}
	q.ends.Remove()
	q.endpoint.count--
	q.core.ShareProbes(nil)
	if q.endpoint.queuePairs.First() == nil {
		delete(e.peers, q.route())
	}
	q.endpoint = nil
}

// receiveEndpoint takes a packet for bth.MRCEndpointQPN, or an endpoint operation for another queue pair.
func (n *NIC) receiveEndpoint(now mono.Time, meta qp.RxMeta) (*QueuePair, rxReason) {
	p, in := &n.rx.pkt, n.rx.in
	from := n.ends.peers[route{in.Dst, in.Src}]
	switch {
	case p.DestQP != bth.MRCEndpointQPN || from == nil:
	case !pkeyMatch(p.PKey, pkeyDefault):
		return nil, rxPKey
	case p.Opcode == bth.OpcodeMRCEndpointRequest && p.ERTH.Op <= bth.MRCEVProbe:
		n.answer(now, from, meta)
		return nil, rxOK
	case p.Opcode == bth.OpcodeMRCEndpointResponse:
		return n.answered(now, meta)
	}
	return nil, rxEndpoint
}

// answer answers an endpoint request on the path of the request. An answer that cannot leave is counted and lost: the peer
// repeats the request.
func (n *NIC) answer(now mono.Time, from *endpointPeer, meta qp.RxMeta) {
	p := &n.rx.pkt
	if p.ERTH.Op == bth.MRCPortStatus {
		n.verify(now, from, p.ERTH.PortMask)
	}
	r := mrc.Response(p)
	_ = n.sendOne(now, &from.queuePairs.First().Item.path, &r, meta.Path)
}

// answered passes a response to the queue pair that has sent the request.
func (n *NIC) answered(now mono.Time, meta qp.RxMeta) (*QueuePair, rxReason) {
	p := &n.rx.pkt
	q := n.lookupQP(n.ends.asked.Sender(p))
	if q == nil || n.rx.checkPeer(q) != rxOK {
		return nil, rxEndpoint
	}
	n.ends.asked.Take(p)
	reason := n.judge(now, q, p, q.machine().Receive(now, p, meta))
	if ports, ok := q.core.BelievedPorts(); ok && q.endpoint != nil {
		q.endpoint.ports = ports // each queue pair applies them when it sends
	}
	return q, reason
}
