package flow

import (
	"encoding/binary"
	"time"

	"roced.io/roced/bth"
)

// A capture can hold a packet several times: the network has duplicated it, tcpdump -i any has seen it on several interfaces, or
// a switch mirrors both ports of its way. Such copies are no retransmissions. All copies have the same content, and:
//
//   - the IP ID of the original, if the sender numbers its packets. A retransmission has a new one.
//   - or another vantage than the original within lateCopy. The packet was seen at another place.
//   - or a distance from the original of at most quickCopy, which is less than any retransmission timeout. A negative
//     acknowledgement between the two makes the second one a retransmission.
const (
	lateCopy  = 10 * time.Millisecond
	quickCopy = 50 * time.Microsecond
)

// passed is a packet that passed.
type passed struct {
	sum     uint32 // of the content
	at      uint32 // in microseconds
	number  uint32 // in the order of all packets
	vantage uint32 // of the original
}

// copies finds copies among the packets of a stream.
type copies struct {
	recent  [32]passed // by PSN
	n       uint64     // copies found
	refused uint32     // number of the last negative acknowledgement
	from    bth.PSN    // of the packet that it refuses; retransmission starts there
	lastID  uint16
	lastPSN bth.PSN
	fixed   bool // the sender gives all packets the same IP ID
}

// refuse notes a negative acknowledgement of the packet psn, the number-th of all packets.
func (c *copies) refuse(psn bth.PSN, number uint64) { c.from, c.refused = psn, uint32(number) }

// has reports whether p is a copy, and remembers it. doubled means that the capture holds other packets of the connection twice.
func (c *copies) has(p *arrival, number uint64, doubled bool) bool {
	psn := p.pkt.PSN
	if p.ip.ID == c.lastID && psn != c.lastPSN {
		c.fixed = true
	}
	c.lastID, c.lastPSN = p.ip.ID, psn
	now := passed{p.content(), uint32(p.now / 1000), uint32(number), p.vantage}
	old := &c.recent[psn.Uint32()%uint32(len(c.recent))]
	distance := time.Duration(int32(now.at-old.at)) * time.Microsecond
	same := old.number != 0 && old.sum == now.sum
	switch {
	case !same:
	case p.ip.ID != 0 && !c.fixed:
		now.vantage = old.vantage
		c.n++
	case old.number < c.refused && !psn.Before(c.from):
		same = false
	case distance.Abs() <= lateCopy && now.vantage != old.vantage, distance.Abs() <= quickCopy && (doubled || p.pkt.Opcode.IsRequest()):
		now.vantage = old.vantage
		c.n++
	default:
		same = false
	}
	*old = now
	return same
}

// content returns a hash of the parts of a packet that stay the same on its way.
func (p *arrival) content() uint32 {
	const most = 40
	h := uint64(p.ip.ID)<<48 | uint64(p.ip.SPort)<<32 | uint64(p.ip.UDPLen)<<16 | uint64(p.icrc)
	for i := 0; i+4 <= min(len(p.transport), most); i += 4 {
		w := binary.BigEndian.Uint32(p.transport[i:])
		if i == 4 {
			w &= uint32(bth.MaxQPN) // switches may mark FECN
		}
		h = (h ^ uint64(w)) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	return uint32(h)
}

// doubled reports whether the capture holds the packets of a connection twice.
func (s *stream) doubled() bool {
	n, all := s.copies.n, s.packets
	if s.peer != nil {
		n, all = n+s.peer.copies.n, all+s.peer.packets
	}
	return 3*n >= all
}
