package rocev2

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// rxReason says what became of a received frame. Reasons from rxCore on are the
// verdicts of the transport, a qp.Drop each.
type rxReason uint8

const (
	rxOK        rxReason = iota
	rxSegmented          // accounted for segment by segment
	rxShort
	rxMAC
	rxEtherType
	rxVLAN
	rxIPHeader
	rxIPChecksum
	rxFragment
	rxAddr
	rxProto
	rxPort
	rxARP
	rxND
	rxICMP
	rxConflict
	rxICRC
	rxTransport
	rxQPN
	rxQP0
	rxMAD
	rxPKey
	rxPeer
	rxUnconnected
	rxCNP
	rxNoRoom

	rxCore
	numRxReasons = rxCore + 16
)

// rxComments are shown to the observer.
var rxComments = [rxCore]string{
	rxShort:       "dropped: shorter than its headers say",
	rxMAC:         "dropped: destination MAC address is not ours",
	rxEtherType:   "dropped: unknown EtherType",
	rxVLAN:        "dropped: no address of ours is in this VLAN",
	rxIPHeader:    "dropped: malformed IP header",
	rxIPChecksum:  "dropped: IPv4 header checksum",
	rxFragment:    "dropped: IPv4 fragment",
	rxAddr:        "dropped: destination IP address is not ours",
	rxProto:       "dropped: IP protocol",
	rxPort:        "dropped: UDP port",
	rxARP:         "dropped: malformed ARP packet",
	rxND:          "dropped: malformed neighbour discovery message",
	rxICMP:        "dropped: ICMP message",
	rxConflict:    "dropped: somebody else uses our address",
	rxICRC:        "dropped: ICRC",
	rxTransport:   "dropped: malformed transport packet",
	rxQPN:         "dropped: no such queue pair",
	rxQP0:         "dropped: subnet management, which RoCE does not have",
	rxMAD:         "dropped: not a management datagram that somebody listens for",
	rxPKey:        "dropped: P_Key",
	rxPeer:        "dropped: not from the connection's peer",
	rxUnconnected: "dropped: queue pair is not connected",
	rxCNP:         "dropped: CNP for an unconnected queue pair",
	rxNoRoom:      "dropped: too many packets wait for memory",
}

// String returns the comment of r, empty for accepted frames.
func (r rxReason) String() string {
	if r >= rxCore {
		return qp.Drop(r - rxCore).String()
	}
	return rxComments[r]
}

// rxState is scratch space of the receive path.
type rxState struct {
	srcMAC MAC
	vlan   uint16 // 0: none
	l2     int    // length of the Ethernet header
	ip     ipHeader
	pkt    bth.Packet
	// hdr holds the IP and UDP headers of a segment of a super-frame.
	hdr [ipv4MaxLen + udpLen]byte
	grh [ipv6Len]byte
	// obs holds frames that are shown to the observer.
	obs []byte
	// kept counts the packets that wait for memory.
	kept int
}

// Receive takes a frame from the link, from the Ethernet header on and without
// frame check sequence. With segSize > 0 it is a super-frame whose datagrams have
// segSize bytes of UDP payload, the last one maybe less. frame is not kept.
func (n *NIC) Receive(now mono.Time, frame []byte, segSize int) {
	n.now = now
	r := n.receiveFrame(now, frame, segSize)
	if r == rxSegmented {
		return
	}
	n.ctr.countRx(frame, len(frame))
	n.verdict(now, frame, r)
}

// verdict counts what became of a frame and shows it to the observer.
func (n *NIC) verdict(now mono.Time, frame []byte, r rxReason) {
	if r != rxOK {
		n.ctr.drops[min(r, numRxReasons-1)]++
	}
	if n.obs != nil {
		n.obs.Frame(now, Rx, frame, r.String())
	}
}

func (n *NIC) receiveFrame(now mono.Time, frame []byte, segSize int) rxReason {
	if len(frame) < ethLen {
		return rxShort
	}
	if !n.acceptMAC(frame) {
		return rxMAC
	}
	rx := &n.net.rx
	rx.srcMAC = MAC(frame[6:12])
	h := &rx.ip
	typ, l2, t := etherType(frame)
	rx.l2, rx.vlan = l2, t.vlan() // a tag with VLAN 0 says nothing but a priority
	switch {
	case l2 == 0:
		return rxShort
	case rx.vlan != 0 && !n.net.addrs.inVLAN(rx.vlan):
		return rxVLAN
	case typ == ethTypeIPv4:
		if r := h.parseIPv4(frame[l2:]); r != rxOK {
			return r
		}
	case typ == ethTypeIPv6:
		if r := h.parseIPv6(frame[l2:]); r != rxOK {
			return r
		}
	case typ == ethTypeARP && !n.cfg.Shared: // else the kernel answers it
		return n.receiveARP(now, frame[l2:])
	default:
		return rxEtherType
	}
	switch {
	case h.proto == protoUDP:
		return n.receiveUDP(now, frame, segSize)
	case n.cfg.Shared:
		return rxProto // ICMP too is the kernel's
	case h.proto == protoICMP && !h.v6:
		return n.receiveICMP(h)
	case h.proto == protoICMPv6 && h.v6:
		return n.receiveICMPv6(now, h)
	case h.proto == protoIGMP && !h.v6:
		return n.receiveIGMP(now, h)
	case h.proto == protoHopByHop && h.v6:
		return n.receiveMLD(now, h)
	}
	return rxProto
}

// receiveUDP takes the datagram or the datagrams of a super-frame. UDP checksums
// are not verified: the ICRC covers more (IBTA annex A17.3.3).
func (n *NIC) receiveUDP(now mono.Time, frame []byte, segSize int) rxReason {
	h := &n.net.rx.ip
	if len(h.payload) < udpLen {
		return rxShort
	}
	udp := h.payload[:udpLen]
	if binary.BigEndian.Uint16(udp[2:]) != bth.UDPPort {
		return rxPort
	}
	if !n.net.addrs.own(&h.dst, n.net.rx.vlan) && n.net.mcast.groups[h.dst] == nil {
		return rxAddr
	}
	end := int(binary.BigEndian.Uint16(udp[4:]))
	if end < udpLen+minRoCE || end > len(h.payload) {
		return rxShort
	}
	body := h.payload[udpLen:end]
	if segSize <= 0 || len(body) <= segSize {
		q, r := n.receivePacket(now, h.l3, udp, body)
		if q != nil {
			n.settle(q)
		}
		return r
	}
	if segSize < minRoCE {
		return rxShort
	}
	n.receiveSuper(now, frame, body, segSize)
	return rxSegmented
}

// receiveSuper cuts a super-frame apart: the headers of each datagram are made in
// scratch space, the payload stays where it is.
func (n *NIC) receiveSuper(now mono.Time, frame, body []byte, segSize int) {
	rx := &n.net.rx
	l3len := len(rx.ip.l3)
	l3, udp := rx.hdr[:l3len], rx.hdr[l3len:l3len+udpLen]
	copy(rx.hdr[:], rx.ip.l3)
	copy(udp, rx.ip.payload)
	id := uint16(0)
	if !rx.ip.v6 {
		id = binary.BigEndian.Uint16(l3[4:])
	}
	var last *QueuePair
	for i := 0; i*segSize < len(body); i++ {
		seg := body[i*segSize : min((i+1)*segSize, len(body))]
		setLengths(l3, udp, id+uint16(i), len(seg))
		q, r := n.receiveSegment(now, l3, udp, seg)
		if n.cfg.Sockets && !rx.ip.v6 { // the ID has been found out
			id = binary.BigEndian.Uint16(l3[4:]) - uint16(i)
			binary.BigEndian.PutUint16(rx.ip.l3[4:], id)
		}
		if last != nil && q != last {
			n.settle(last)
		}
		last = q
		n.ctr.countRx(frame, rx.l2+l3len+udpLen+len(seg))
		n.verdictSegment(now, frame, segSize, i, r)
	}
	if last != nil {
		n.settle(last)
	}
}

// receiveSegment is receivePacket for the datagrams of a super-frame, of which
// the last can be too short.
func (n *NIC) receiveSegment(now mono.Time, l3, udp, seg []byte) (*QueuePair, rxReason) {
	if len(seg) < minRoCE {
		return nil, rxShort
	}
	return n.receivePacket(now, l3, udp, seg)
}

// verdictSegment is verdict for segment i of a super-frame.
func (n *NIC) verdictSegment(now mono.Time, frame []byte, segSize, i int, r rxReason) {
	if n.obs == nil {
		n.verdict(now, nil, r)
		return
	}
	n.net.rx.obs = Segment(n.net.rx.obs[:0], frame, segSize, i)
	n.verdict(now, n.net.rx.obs, r)
}
