package rocev2

import (
	"errors"
	"fmt"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/rocev2/stack"
)

// ErrSendFull says that SendMAD has dropped a datagram.
var ErrSendFull = errors.New("rocev2: too many management datagrams are queued")

// GSI is the general services interface behind queue pair 1 (IBTA vol.1 13.5.1): the connection manager. The NIC calls it
// from its own methods.
type GSI interface {
	// ReceiveMAD takes a management datagram. m is valid during the call. from is the route of an answer.
	ReceiveMAD(now mono.Time, from MADRoute, m []byte)
	// Advance and NextTimeout are part of those of the NIC.
	Advance(now mono.Time)
	NextTimeout() mono.Time
	// AppendCounters appends the GSI's counters.
	AppendCounters(s []Counter) []Counter
}

// MADRoute is the route of a management datagram, seen from this NIC.
type MADRoute struct {
	SGID, DGID   inet.GID // our address and the peer's
	TrafficClass uint8    // without ECN bits
	HopLimit     uint8    // 0: the default
	FlowLabel    uint32
}

// gsiState is the NIC's part of queue pair 1.
type gsiState struct {
	agent GSI // nil: none attached
	psn   bth.PSN
	buf   []byte // of buildOne
}

// SetGSI attaches g. Without one, the NIC drops management datagrams.
func (n *NIC) SetGSI(g GSI) { n.gsi.agent = g }

// madOpcode is UD SEND ONLY: a management datagram always fits a packet.
const madOpcode = bth.TransportUD | bth.OpSendOnly

// gsiSourcePort is the UDP source port of queue pair 1. Linux's rxe derives the source port of a datagram queue pair from
// a hash of its number (the kernel's hash_32), so this one is constant.
const gsiSourcePort = 0xc000 | (gsiHash >> 18)

// gsiHash is the golden ratio in 32 bits times the number of queue pair 1.
const gsiHash = 0x61c88647 * 1

// SendMAD sends the management datagram m from our queue pair 1 to the peer's, in the default partition. Like any
// datagram it waits for the peer's Ethernet address if that is unknown, and may be lost later without notice.
func (n *NIC) SendMAD(now mono.Time, to MADRoute, m []byte) error {
	if len(m) != mad.Len {
		return mad.ErrLength
	}
	p, err := n.madPath(now, to)
	if err != nil {
		return fmt.Errorf("rocev2: management datagram to %v: %w", to.DGID.Addr(), err)
	}
	defer n.releasePath(&p)
	p.SetSourcePort(gsiSourcePort)
	pkt := bth.Packet{
		Opcode: madOpcode, AckReq: true, PKey: bth.DefaultPKey, DestQP: 1, PSN: n.gsi.psn,
		DETH: bth.DETH{QKey: mad.QKey, SrcQP: 1}, Payload: m,
	}
	n.gsi.psn = n.gsi.psn.Next()
	return n.sendOne(now, &p, &pkt, 0)
}

// sendOne sends a packet that no queue pair of a client has produced. It may wait for the peer's Ethernet address.
func (n *NIC) sendOne(now mono.Time, p *stack.Path, pkt *bth.Packet, entropy uint32) error {
	next := n.net.MAC()
	if nb := p.Next; nb != nil {
		n.net.Reuse(now, nb)
		if nb.State == stack.Failed {
			n.net.Counters.TxDroppedUnreachable++
			return ErrUnreachable
		}
		next = nb.MAC
	}
	b := n.buildOne(p, pkt, entropy)
	copy(b, next[:])
	if p.Next != nil && p.Next.State == stack.Incomplete {
		n.net.Hold(p.Next, &link.Frame{Bufs: [][]byte{b}, Len: len(b)})
		return nil
	}
	if !n.net.SendControl(b) {
		return ErrSendFull
	}
	return nil
}

// madPath returns the path of a route. The caller releases it.
func (n *NIC) madPath(now mono.Time, to MADRoute) (stack.Path, error) {
	index, ok := n.net.IndexOf(to.SGID)
	if !ok {
		return stack.Path{}, stack.ErrGIDIndex
	}
	return n.net.NewPath(now, AddressVector{DGID: to.DGID, SGIDIndex: index, TrafficClass: to.TrafficClass, HopLimit: to.HopLimit})
}

// buildOne returns the frame of sendOne, valid until the next call.
func (n *NIC) buildOne(p *stack.Path, pkt *bth.Packet, entropy uint32) []byte {
	g := &n.gsi
	g.buf = pkt.AppendTo(append(g.buf[:0], p.Headers()...))
	if entropy != 0 {
		p.SetEntropy(g.buf, entropy)
	}
	l4, body := p.L4(), g.buf[p.Len():]
	p.Seal(g.buf, n.net.TakeID(1), len(body), false)
	end := len(body) - bth.ICRCLen
	crc := bth.ICRCStart(g.buf[p.L2():l4], g.buf[l4:p.Len()], body[:bth.BTHLen])
	bth.PutICRC(body[end:], bth.ICRCUpdate(crc, body[bth.BTHLen:end]))
	n.ctr.countPacket(pkt.Opcode)
	return g.buf
}

// receiveMAD passes a management datagram to the GSI. RoCE has no queue pair 0 of subnet management (IBTA annex A16.2).
func (n *NIC) receiveMAD(now mono.Time) rxReason {
	d, p := n.rx.in, &n.rx.pkt
	switch {
	case p.DestQP == 0:
		return rxQP0
	case p.Opcode != madOpcode || p.DETH.QKey != mad.QKey || p.DETH.SrcQP != 1:
		return rxMAD
	case !pkeyMatch(p.PKey, bth.DefaultPKey):
		return rxPKey
	case n.gsi.agent == nil:
		return rxMAD
	}
	from := MADRoute{SGID: d.Dst, DGID: d.Src, TrafficClass: d.TrafficClass() &^ inet.ECNMask}
	n.gsi.agent.ReceiveMAD(now, from, p.Payload)
	return rxOK
}
