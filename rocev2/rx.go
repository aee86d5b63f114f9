package rocev2

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// rxReason is the verdict on a received frame: those of the stack, then those of the NIC, then from rxCore on those
// of the transport, a qp.Drop each.
type rxReason uint8

const (
	rxOK    = rxReason(stack.Accepted)
	rxShort = rxReason(stack.DropShort)
)

const (
	rxSegmented rxReason = iota + rxReason(stack.NumDrops) // accounted for segment by segment
	rxICRC
	rxTransport
	rxQPN
	rxQP0
	rxMAD
	rxPKey
	rxPeer
	rxSource
	rxUnconnected
	rxCNP
	rxNoRoom
	rxGone
	rxEndpoint

	rxCore
	numRxReasons = rxCore + 16
)

// rxReasons describes the verdicts of NIC and transport. The comments of the transport are its own.
var rxReasons = [numRxReasons]stack.Reason{
	rxICRC:        {Counter: "rx_dropped_icrc", Comment: "dropped: ICRC"},
	rxTransport:   {Counter: "rx_dropped_transport", Comment: "dropped: malformed transport packet"},
	rxQPN:         {Counter: "rx_dropped_qpn", Comment: "dropped: no such queue pair"},
	rxQP0:         {Counter: "rx_dropped_qp0", Comment: "dropped: subnet management, which RoCE does not have"},
	rxMAD:         {Counter: "rx_dropped_mad", Comment: "dropped: management datagram without a listener"},
	rxPKey:        {Counter: "rx_dropped_pkey", Comment: "dropped: P_Key"},
	rxPeer:        {Counter: "rx_dropped_peer", Comment: "dropped: not from the connection's peer"},
	rxSource:      {Counter: "rx_dropped_source", Comment: "dropped: not from the UDP source port of the peer on this host"},
	rxUnconnected: {Counter: "rx_dropped_unconnected", Comment: "dropped: queue pair is not connected"},
	rxCNP:         {Counter: "rx_dropped_cnp", Comment: "dropped: CNP for an unconnected queue pair"},
	rxNoRoom:      {Counter: "rx_dropped_no_room", Comment: "dropped: too many packets wait for memory"},
	rxEndpoint:    {Counter: "rx_dropped_endpoint", Comment: "dropped: endpoint operation of MRC that no connection expects"},
	rxGone:        {Counter: "rx_dropped_sender_gone", Comment: "dropped: the sender's memory has gone"},

	rxCore + rxReason(qp.DropState):      {Counter: "rx_dropped_qp_state"},
	rxCore + rxReason(qp.DropOpcode):     {Counter: "rx_dropped_opcode"},
	rxCore + rxReason(qp.DropDuplicate):  {Counter: "rx_dropped_duplicate"},
	rxCore + rxReason(qp.DropOutOfOrder): {Counter: "rx_dropped_out_of_order"},
	rxCore + rxReason(qp.DropNoRecv):     {Counter: "rx_dropped_no_recv"},
	rxCore + rxReason(qp.DropQKey):       {Counter: "rx_dropped_qkey"},
	rxCore + rxReason(qp.DropAccess):     {Counter: "rx_dropped_access"},
	rxCore + rxReason(qp.DropLength):     {Counter: "rx_dropped_length"},
	rxCore + rxReason(qp.DropStaleAck):   {Counter: "rx_dropped_stale_ack"},
	rxCore + rxReason(qp.DropProfile):    {Counter: "rx_dropped_profile"},
	rxCore + rxReason(qp.DropFields):     {Counter: "rx_dropped_fields"},
}

// describe returns the counter of r, empty if it has none, and its comment.
func (r rxReason) describe() stack.Reason {
	if r < rxReason(stack.NumDrops) {
		return stack.Reasons[r]
	}
	return rxReasons[r]
}

// String returns the comment of r, empty for accepted frames.
func (r rxReason) String() string {
	if r >= rxCore {
		return qp.Drop(r - rxCore).String()
	}
	return r.describe().Comment
}

// rxState is scratch space of the receive path.
type rxState struct {
	in  *stack.Datagram
	pkt bth.Packet
	// hdr holds the IP and UDP headers of a segment of a super-frame.
	hdr [inet.IPv4MaxLen + inet.UDPLen]byte
	grh [inet.IPv6Len]byte
	obs []byte // a frame for the observer
	// unsealed: the frame has no ICRCs.
	unsealed bool
	pending  int // packets that wait for memory
	// examined is the number of packets of the last super-frame that have been examined.
	examined int
	charges  charges
	// askSource is when checkSource may ask again.
	askSource mono.Time
	// forwarded and origin describe a packet from another NIC of the switch.
	forwarded stack.Datagram
	origin    origin
	gone      bool // its data were not there
	fetched   []byte
}

// minRoCE is the shortest UDP payload of RoCEv2: a BTH and an ICRC.
const minRoCE = bth.BTHLen + bth.ICRCLen

// Receive takes a frame from the link, from the Ethernet header on and without frame check sequence. With segSize > 0
// it is a super-frame: its datagrams have segSize bytes of UDP payload, the last one possibly less. The NIC does not
// keep frame. Receive returns the number of packets that it has examined.
func (n *NIC) Receive(now mono.Time, frame []byte, segSize int) (packets int) {
	n.now = now
	r := n.receiveFrame(now, frame, segSize)
	if r == rxSegmented {
		return n.rx.examined
	}
	n.ctr.countRx(frame, len(frame))
	n.verdict(now, frame, r)
	return 1
}

// ReceiveUnsealed is Receive for a frame without ICRCs, from another NIC of the switch (link.Frame.Unsealed). An
// observer gets right ones, which ReceiveUnsealed writes into frame.
func (n *NIC) ReceiveUnsealed(now mono.Time, frame []byte, segSize int) (packets int) {
	if n.obs != nil {
		n.rx.obs = link.Seal(frame, segSize, n.rx.obs)
	}
	n.rx.unsealed = n.obs == nil
	packets = n.Receive(now, frame, segSize)
	n.rx.unsealed = false
	return packets
}

// verdict counts the verdict on a frame and shows the frame to the observer.
func (n *NIC) verdict(now mono.Time, frame []byte, r rxReason) {
	if r != rxOK {
		n.ctr.drops[min(r, numRxReasons-1)]++
	}
	if n.obs != nil {
		n.obs.Frame(now, link.Rx, frame, r.String())
	}
}

func (n *NIC) receiveFrame(now mono.Time, frame []byte, segSize int) rxReason {
	d, r := n.net.Receive(now, frame)
	if d == nil {
		return rxReason(r)
	}
	n.rx.in = d
	if len(d.Body) < minRoCE {
		return rxShort
	}
	if segSize <= 0 || len(d.Body) <= segSize {
		q, r := n.receivePacket(now, d.L3, d.UDP, d.Body)
		if q != nil {
			n.sch.settle(q)
		}
		return r
	}
	if segSize < minRoCE {
		return rxShort
	}
	n.receiveSuper(now, frame, segSize)
	return rxSegmented
}

// receiveSuper segments a super-frame: it builds the headers of each datagram in scratch space and leaves the payload
// in place.
func (n *NIC) receiveSuper(now mono.Time, frame []byte, segSize int) {
	rx, d := &n.rx, n.rx.in
	l3len := len(d.L3)
	l3, udp := rx.hdr[:l3len], rx.hdr[l3len:l3len+inet.UDPLen]
	copy(l3, d.L3)
	copy(udp, d.UDP)
	id := uint16(0)
	if !d.V6 {
		id = binary.BigEndian.Uint16(l3[4:])
	}
	var last *QueuePair
	rx.charges.begin()
	i := 0
	for rest := d.Body; len(rest) > 0; i++ {
		seg := rest[:min(segSize, len(rest))]
		rest = rest[len(seg):]
		inet.SetLengths(l3, udp, id+uint16(i), len(seg))
		q, r := (*QueuePair)(nil), rxShort // the last one can be too short
		if len(seg) >= minRoCE {
			q, r = n.receivePacket(now, l3, udp, seg)
		}
		if n.cfg.Sockets && !d.V6 { // receivePacket may have found out the ID
			id = binary.BigEndian.Uint16(l3[4:]) - uint16(i)
			binary.BigEndian.PutUint16(d.L3[4:], id)
		}
		if last != nil && q != last {
			n.sch.settle(last)
		}
		last = q
		n.ctr.countRx(frame, d.L2+l3len+inet.UDPLen+len(seg))
		if n.obs != nil {
			rx.obs = link.Segment(rx.obs[:0], frame, segSize, i)
		}
		n.verdict(now, rx.obs, r)
		if q == nil && r != rxOK && rx.charges.add(now, d, i+1) {
			i++
			n.discard(now, frame, segSize, i, r)
			break
		}
	}
	rx.examined = i
	if last != nil {
		n.sch.settle(last)
	}
}

// discard drops the packets of a super-frame from number i on, for the reason of an earlier one.
func (n *NIC) discard(now mono.Time, frame []byte, segSize, i int, r rxReason) {
	d := n.rx.in
	for ; i*segSize < len(d.Body); i++ {
		size := min(segSize, len(d.Body)-i*segSize)
		n.ctr.countRx(frame, d.L2+len(d.L3)+inet.UDPLen+size)
		if n.obs != nil {
			n.rx.obs = link.Segment(n.rx.obs[:0], frame, segSize, i)
		}
		n.verdict(now, n.rx.obs, r)
	}
}
