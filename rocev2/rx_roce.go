package rocev2

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
)

// receivePacket takes one RoCEv2 datagram with the headers l3 and udp. It returns the queue pair that received it, to be
// settled.
func (n *NIC) receivePacket(now mono.Time, l3, udp, body []byte) (*QueuePair, rxReason) {
	rx := &n.rx
	q, r := n.lookUp(body)
	if r != rxOK {
		return nil, r
	}
	end := len(body) - bth.ICRCLen
	if !rx.unsealed {
		crc := bth.ICRCStart(l3, udp, body[:bth.BTHLen])
		diff := bth.ICRCUpdate(crc, body[bth.BTHLen:end]) ^ bth.GetICRC(body[end:])
		if diff != 0 && !n.net.AcceptICRC(l3, len(body), diff) {
			return n.receiveTrimmed(now, l3, udp, body)
		}
	}
	p := &rx.pkt
	if p.Decode(body) != nil {
		return nil, rxTransport
	}
	return n.accept(now, l3, q, qp.RxMeta{Path: bth.JoinEntropy(binary.BigEndian.Uint16(udp), inet.FlowLabel(l3))})
}

// lookUp finds the queue pair of a packet before the ICRC, which costs more. It returns nil for packets to the NIC itself and
// to groups. With sockets the peer is checked after the ICRC, whose difference reveals a NAT.
func (n *NIC) lookUp(body []byte) (*QueuePair, rxReason) {
	qpn, op := bth.QPN(binary.BigEndian.Uint32(body[4:]))&bth.MaxQPN, bth.Opcode(body[0])
	q := n.lookupQP(qpn)
	switch {
	case q != nil && q.typ != qp.UD && !op.IsEndpoint():
		if n.cfg.Sockets {
			return q, rxOK
		}
		return q, n.rx.checkPeer(q)
	case qpn <= 1 || qpn == bth.MRCEndpointQPN || op.IsEndpoint() || n.rx.in.Dst.Multicast():
		return nil, rxOK
	case q == nil:
		return nil, rxQPN
	}
	return q, rxOK
}

// accept passes the decoded packet to its queue pair q, or to the receiver that it finds if q is nil. It returns the queue pair,
// to be settled.
func (n *NIC) accept(now mono.Time, l3 []byte, q *QueuePair, meta qp.RxMeta) (*QueuePair, rxReason) {
	rx := &n.rx
	p := &rx.pkt
	n.ctr.RcvdPkts++
	if meta.CE = rx.in.ECN == inet.CE; meta.CE {
		n.ctr.NPECNMarked++
	}
	checked := q != nil && !n.cfg.Sockets // by lookUp
	switch {
	case q != nil:
	case rx.in.Dst.Multicast():
		return nil, n.receiveGroup(now, l3, meta)
	case p.DestQP <= 1:
		return nil, n.receiveMAD(now)
	case p.Opcode.IsEndpoint() || p.DestQP == bth.MRCEndpointQPN && n.lookupQP(p.DestQP) == nil:
		return n.receiveEndpoint(now, meta)
	default:
		if q = n.lookupQP(p.DestQP); q == nil {
			return nil, rxQPN
		}
	}
	if !pkeyMatch(p.PKey, q.pkey) {
		return nil, rxPKey
	}
	if q.typ == qp.UD {
		meta.GRH = rx.makeGRH(l3)
	} else {
		if !checked {
			if r := rx.checkPeer(q); r != rxOK {
				return nil, r
			}
		}
		if q.source.port != 0 && q.source.port != sourceOf(meta.Path) {
			if r := n.checkSource(now, q); r != rxOK {
				return nil, r
			}
		}
	}
	if n.cfg.Sockets && rx.in != &rx.forwarded {
		n.net.Recognise(q.path.Next, l3)
	}
	if p.Opcode.IsCNP() {
		return n.receiveCNP(now, q)
	}
	d := qp.Later
	if q.pending == nil && !q.defers.full() { // it must not overtake pending packets
		d = q.machine().Receive(now, p, meta)
	}
	switch {
	case n.rx.gone:
		return q, rxGone
	case d == qp.Later:
		return q, n.hold(q, p, &meta)
	}
	if d == qp.Accepted && q.source.learns {
		n.learnSource(q, sourceOf(meta.Path))
	}
	return q, n.judge(now, q, p, d)
}

// checkPeer verifies that a packet for the connected q comes from its peer (IBTA vol.1 9.6.1.5; rxe check_addr).
func (rx *rxState) checkPeer(q *QueuePair) rxReason {
	switch {
	case !q.path.Valid():
		return rxUnconnected
	case rx.in.Src != q.path.Dst || rx.in.Dst != q.path.Src:
		return rxPeer
	}
	return rxOK
}

// receiveCNP passes a congestion notification to its connection.
func (n *NIC) receiveCNP(now mono.Time, q *QueuePair) (*QueuePair, rxReason) {
	if q.typ == qp.UD {
		n.ctr.RPCNPIgnored++
		return nil, rxCNP
	}
	n.ctr.RPCNPHandled++
	q.machine().OnCNP(now)
	return q, rxOK
}

// judge follows the verdict of q on a packet.
func (n *NIC) judge(now mono.Time, q *QueuePair, p *bth.Packet, d qp.Drop) rxReason {
	if d == qp.DropAccess {
		n.refused(now, q)
	}
	if d != qp.Accepted {
		return rxCore + rxReason(d)
	}
	if p.Opcode.IsResponse() && q.path.Next != nil {
		q.path.Next.Confirm(now)
	}
	return rxOK
}

// pkeyMatch compares partition keys: the numbers in the low 15 bits are equal and one side is a full member (IBTA
// vol.1 10.9.3).
func pkeyMatch(a, b uint16) bool {
	return a&0x7fff != 0 && (a^b)&0x7fff == 0 && (a|b)&0x8000 != 0
}

// makeGRH returns the 40 bytes before the payload of a datagram: an IPv6 header, or 20 zero bytes and an IPv4 header
// without its options (IBTA annex A17.4.5.2).
func (rx *rxState) makeGRH(l3 []byte) []byte {
	h := rx.grh[:]
	if !rx.in.V6 {
		h = rx.grh[inet.IPv6Len-inet.IPv4Len:]
		clear(rx.grh[:inet.IPv6Len-inet.IPv4Len])
	}
	copy(h, l3)
	if !rx.in.V6 {
		inet.SealIPv4(h)
	}
	return rx.grh[:]
}

// receiveTrimmed takes a packet whose ICRC is wrong: it may be one of MRC that a switch has trimmed. Others are dropped.
func (n *NIC) receiveTrimmed(now mono.Time, l3, udp, body []byte) (*QueuePair, rxReason) {
	rx := &n.rx
	p := &rx.pkt
	if p.Decode(body) != bth.ErrTrimmed {
		return nil, rxICRC
	}
	q := n.lookupQP(p.DestQP)
	switch {
	case q == nil:
		return nil, rxQPN
	case q.typ != qp.RC:
		return nil, rxICRC
	case !pkeyMatch(p.PKey, q.pkey):
		return nil, rxPKey
	}
	if r := rx.checkPeer(q); r != rxOK {
		return nil, r
	}
	meta := qp.RxMeta{CE: rx.in.ECN == inet.CE, Path: bth.JoinEntropy(binary.BigEndian.Uint16(udp), inet.FlowLabel(l3)), Trim: mrc.Trimmed}
	if inet.DSCP(l3) == bth.MRCDSCPTrimmedLastHop {
		meta.Trim = mrc.TrimmedLastHop
	}
	return q, n.judge(now, q, p, q.machine().Receive(now, p, meta))
}
