package nic

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
)

// numberRequest numbers an endpoint request of q.
func (n *NIC) numberRequest(q *QP, p *bth.Packet) {
	if n.asked == nil {
		n.asked = mrc.NewRequests(0)
	}
	n.asked.Number(q.num, p)
}

// endpoint takes an endpoint operation of MRC. Numbers of queue pairs begin at 2 here, so the opcode tells them apart.
func (n *NIC) endpoint(now engine.Time, d *fabric.Packet, p *parcel) {
	k, m := n.k, now.Mono()
	k.slab.unpack(p, &k.in, k.zero)
	peer, entropy := p.src, p.entropy
	n.end(d)
	if k.in.Opcode == bth.OpcodeMRCEndpointRequest {
		n.peerPorts(now, peer)
		n.respond(now, peer, entropy)
		return
	}
	q := n.lookup(uint32(n.asked.Sender(&k.in)))
	if q == nil || q.peerHost != peer {
		k.stray++
		return
	}
	n.asked.Take(&k.in)
	q.core.Receive(m, &k.in, qp.RxMeta{Path: entropy})
	n.settle(now, q)
}

// peerPorts applies the request in k.in, if it is a port status, to the queue pairs that are connected to peer.
func (n *NIC) peerPorts(now engine.Time, peer uint32) {
	if h := &n.k.in.ERTH; h.Op == bth.MRCPortStatus {
		for _, q := range n.qps {
			if q != nil && q.typ == qp.RC && q.peerHost == peer {
				q.core.PeerPorts(now.Mono(), h.PortMask)
				n.settle(now, q)
			}
		}
	}
}

// respond answers the request in k.in on its path.
func (n *NIC) respond(now engine.Time, peer, entropy uint32) {
	k := n.k
	t := qp.Transmit{Packet: mrc.Response(&k.in), Path: entropy}
	ref, p := k.slab.take()
	k.slab.pack(p, &t, true)
	p.src, p.bytes, p.class = n.host, k.cfg.Framing.bytes(&t.Packet), k.cfg.Classes.Ack
	d := k.fab.NewPacket()
	*d = fabric.Packet{Ref: ref, Bytes: p.bytes, Src: n.host, Dst: peer, Hash: k.hash(n.host, peer, entropy),
		QP: uint32(p.destQP), Class: p.class}
	n.place(d, p)
	n.giveBack(now, d)
}
