package rocev2

import (
	"errors"
	"fmt"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
)

// Errors of SendMAD.
var (
	ErrUnreachable = errors.New("rocev2: the neighbour does not answer")
	ErrSendFull    = errors.New("rocev2: too many frames wait to be sent")
)

// GSI is the general services interface, what is behind queue pair 1 (IBTA vol.1
// 13.5.1): the connection manager. The NIC calls it from its own methods.
type GSI interface {
	// ReceiveMAD takes a management datagram. m is valid during the call. from is
	// the way back.
	ReceiveMAD(now mono.Time, from MADRoute, m []byte)
	// Advance and NextTimeout are part of those of the NIC.
	Advance(now mono.Time)
	NextTimeout() mono.Time
	// AppendCounters appends what it has counted.
	AppendCounters(s []Counter) []Counter
}

// MADRoute is the way of a management datagram, seen from this NIC.
type MADRoute struct {
	SGID, DGID   GID   // our address and the peer's
	TrafficClass uint8 // without ECN bits
	HopLimit     uint8 // 0: the default
	FlowLabel    uint32
}

// gsiState is the NIC's part of queue pair 1.
type gsiState struct {
	agent GSI // nil: nobody listens
	psn   bth.PSN
	buf   []byte
}

// SetGSI attaches g; without one, management datagrams are dropped.
func (n *NIC) SetGSI(g GSI) { n.net.gsi.agent = g }

// madOpcode is UD SEND ONLY: a management datagram is never longer than a packet.
const madOpcode = bth.TransportUD | bth.OpSendOnly

// gsiSourcePort is the UDP source port of queue pair 1. Linux's rxe chooses the
// source port of a datagram queue pair by a hash of its number (the kernel's
// hash_32), so that this one is always the same.
const gsiSourcePort = 0xc000 | (gsiHash >> 18)

// gsiHash is the golden ratio in 32 bits times the number of queue pair 1.
const gsiHash = 0x61c88647 * 1

// SendMAD sends the management datagram m from our queue pair 1 to the peer's, in
// the default partition. Like any datagram it waits for the peer's Ethernet address
// when that is unknown, and can be lost later on without notice.
func (n *NIC) SendMAD(now mono.Time, to MADRoute, m []byte) error {
	if len(m) != mad.Len {
		return mad.ErrLength
	}
	p, err := n.madPath(now, to)
	if err != nil {
		return fmt.Errorf("rocev2: management datagram to %v: %w", to.DGID.Addr(), err)
	}
	defer n.releasePath(&p)
	if p.nb != nil {
		n.reuse(now, p.nb)
		if p.nb.state == neighFailed {
			n.ctr.TxDroppedUnreachable++
			return ErrUnreachable
		}
		copy(p.hdr[:], p.nb.mac[:])
	} else {
		copy(p.hdr[:], n.cfg.MAC[:])
	}
	b := n.buildMAD(&p, m)
	if p.nb != nil && p.nb.state == neighIncomplete {
		n.hold(p.nb, &Frame{Bufs: [][]byte{b}, Len: len(b)})
		return nil
	}
	slot := n.net.ctl.alloc(len(b))
	if slot == nil {
		n.ctr.TxDroppedControl++
		return ErrSendFull
	}
	copy(slot, b)
	return nil
}

// madPath is the path of a route. The caller gives it back.
func (n *NIC) madPath(now mono.Time, to MADRoute) (path, error) {
	av := AddressVector{DGID: to.DGID, TrafficClass: to.TrafficClass, HopLimit: to.HopLimit}
	for g := range n.net.addrs.live {
		if g.GID == to.SGID {
			av.SGIDIndex = g.Index
			return n.newPath(now, av)
		}
	}
	return path{}, ErrGIDIndex
}

// buildMAD returns the frame of a management datagram, valid until the next call.
func (n *NIC) buildMAD(p *path, m []byte) []byte {
	g := &n.net.gsi
	pkt := bth.Packet{
		Opcode: madOpcode, AckReq: true, PKey: bth.DefaultPKey, DestQP: 1, PSN: g.psn,
		DETH: bth.DETH{QKey: mad.QKey, SrcQP: 1}, Payload: m,
	}
	g.psn = g.psn.Next()
	l4, hdrLen := p.l4(), int(p.hdrLen)
	g.buf = pkt.AppendTo(append(g.buf[:0], p.headers()...))
	l3, udp := g.buf[p.l2:l4], g.buf[l4:hdrLen]
	udp[0], udp[1] = gsiSourcePort>>8, gsiSourcePort&0xff
	setLengths(l3, udp, n.takeID(1), len(g.buf)-hdrLen)
	if p.src.is4() {
		sealIPv4(l3)
	}
	body := g.buf[hdrLen:]
	end := len(body) - bth.ICRCLen
	crc := bth.ICRCStart(l3, udp, body[:bth.BTHLen])
	bth.PutICRC(body[end:], bth.ICRCUpdate(crc, body[bth.BTHLen:end]))
	n.ctr.countPacket(pkt.Opcode)
	return g.buf
}

// receiveMAD hands a management datagram to the GSI. Queue pair 0, of subnet
// management, does not exist with RoCE (IBTA annex A16.2).
func (n *NIC) receiveMAD(now mono.Time, l3 []byte) rxReason {
	rx := &n.net.rx
	p := &rx.pkt
	switch {
	case p.DestQP == 0:
		return rxQP0
	case p.Opcode != madOpcode || p.DETH.QKey != mad.QKey || p.DETH.SrcQP != 1:
		return rxMAD
	case !pkeyMatch(p.PKey, bth.DefaultPKey):
		return rxPKey
	case n.net.gsi.agent == nil:
		return rxMAD
	}
	from := MADRoute{SGID: rx.ip.dst, DGID: rx.ip.src, TrafficClass: l3[1] &^ ecnMask}
	if rx.ip.v6 {
		from.TrafficClass = (l3[0]<<4 | l3[1]>>4) &^ ecnMask
	}
	n.net.gsi.agent.ReceiveMAD(now, from, p.Payload)
	return rxOK
}
