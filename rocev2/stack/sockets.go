package stack

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// The link of a NIC may be UDP sockets (Config.Sockets). A kernel then adds the IP and UDP headers of sent packets
// and removes those of received ones. The port rebuilds headers of received datagrams from the data that the kernel
// reports. The ICRC covers three things that the kernel does not report: identification and DF of an IPv4 header,
// and an address that a translator (NAT) has replaced.
//
// Sending: an unconnected socket that sets DF sends ID 0, and ID i in segment i of a super-frame. So IDs count from
// 0 in each frame.
//
// Receiving: the stack expects the IDs of a peer of the same kind. A wrong ICRC may be due to another ID or DF: then
// the word of the IP header that holds them explains all of the difference (unwinder). That search uses 17 of the 32
// bits; 15 remain to detect errors, beside the UDP checksum if the peer sends one. The stack holds a peer that has
// numbered its packets like a NIC on sockets for a while to that: DF, and an ID of a super-frame's segment. It need
// not be the ID of this segment, because GRO joins packets that the peer has not sent together. 25 bits remain.
//
// Only such peers get super-frames, unless the port has another setting: a network card may number segments in
// another way, and other peers check IDs. For them all IDs are 0.

const (
	// Connections choose from 1<<socketPortBits UDP source ports by themselves; each port is a socket.
	// Programs can choose any port by paths and flow labels.
	socketPortBits = 6
	// LikePeer consecutive packets with ID 0 identify a peer as a NIC on sockets. After HeldPeer of them the stack
	// holds the peer to that. OddPackets others end it: the peer has restarted with another port.
	LikePeer   = 8
	HeldPeer   = 64
	oddPackets = 3
	// maxSocketID is above the IDs of segments of super-frames (UDP_MAX_SEGMENTS of Linux).
	maxSocketID = 128
	// translations is the number of consecutive packets that must show the same translator.
	translations = 3

	ipv4IDWord = 4  // offset of identification, flags and fragment offset
	ipv4Src    = 12 // of the addresses
	ipv4Dst    = 16
	// idMask selects identification and DF in their word, first byte least significant.
	idMask = 0x0040ffff
)

// Translation reports packets whose ICRC belongs to another address: a middlebox translates addresses, which RoCEv2
// cannot pass. An ICRC that fits another source also fits some other destination. So there are two candidates: one
// makes sense, the other is random.
type Translation struct {
	Src, Dst netip.Addr // of the packets that arrive
	From, To netip.Addr // original source, or original destination
}

// sockets is the state of a stack whose link is sockets.
type sockets struct {
	unwind *unwinder
	last   Translation // that of the latest packet
	seen   int         // number of consecutive packets with last
}

// unicastAddr reports whether a can be the address of a peer, or of ours.
func (c *Config) unicastAddr(a netip.Addr) bool {
	return unicastAddr(a) || c.Sockets && a.IsLoopback()
}

// AcceptICRC decides about a packet of the datagram being received whose ICRC differs from the expected one by diff.
// It corrects ID and DF in l3 if these explain the difference.
func (s *Stack) AcceptICRC(l3 []byte, length int, diff uint32) bool {
	if s.sockets.unwind == nil || l3[0]>>4 != 4 {
		return false
	}
	dist := len(l3) + inet.UDPLen + length - bth.ICRCLen
	w, ok := s.sockets.unwind.Word(diff, dist-ipv4IDWord)
	if !ok {
		return false
	}
	if w&^idMask != 0 {
		s.lookForTranslator(diff, dist)
		return false
	}
	word := l3[ipv4IDWord:]
	sent := binary.LittleEndian.Uint32(word) ^ w
	if nb := s.neigh.byAddr[Address{Addr: s.in.Src}]; nb != nil && nb.alike == HeldPeer && !socketID(sent) {
		if nb.odd++; nb.odd < oddPackets {
			return false
		}
		nb.alike, nb.odd = 0, 0
	}
	binary.LittleEndian.PutUint32(word, sent)
	inet.SealIPv4(l3)
	return true
}

// socketID reports whether a NIC on sockets sends packets with this word of the header: DF, and an ID that is the
// index in a super-frame. The first byte is the least significant one.
func socketID(word uint32) bool {
	word = bits.ReverseBytes32(word)
	return word>>16 < maxSocketID && word&0xffff == inet.IPv4DF
}

// Recognise learns from an accepted packet of the datagram being received whether its sender is a NIC on sockets:
// its frames begin with ID 0. A sender that increments its IP ID hits 0 once per cycle. nb is the sender if it is
// known.
func (s *Stack) Recognise(nb *Neighbour, l3 []byte) {
	if nb == nil {
		nb = s.neigh.byAddr[Address{Addr: s.in.Src}]
	}
	switch {
	case nb == nil || s.in.V6:
	case !socketID(binary.LittleEndian.Uint32(l3[ipv4IDWord:])):
		nb.alike = 0
	case binary.BigEndian.Uint16(l3[ipv4IDWord:]) == 0 && nb.alike < HeldPeer:
		nb.alike++
	}
}

// Alike returns the number of consecutive packets by which nb looks like a NIC on sockets, at most HeldPeer.
func (nb *Neighbour) Alike() int { return int(nb.alike) }

// Apart reports whether the datagrams of a super-frame on this path must leave one by one.
func (s *Stack) Apart(p *Path) bool {
	return s.cfg.Sockets && p.Src.Is4() && (p.Next == nil || p.Next.alike < LikePeer)
}

// lookForTranslator detects that a packet had another address when it was sent. Any ICRC difference can be that of
// an address, so only the same answer several times in a row counts.
func (s *Stack) lookForTranslator(diff uint32, dist int) {
	x := &s.sockets
	t := Translation{Src: s.in.Src.Addr(), Dst: s.in.Dst.Addr()}
	from, _ := x.unwind.Word(diff, dist-ipv4Src)
	to, _ := x.unwind.Word(diff, dist-ipv4Dst)
	t.From, t.To = xorAddr(t.Src, from), xorAddr(t.Dst, to)
	if t != x.last {
		x.last, x.seen = t, 0
	}
	if x.seen++; x.seen == translations && s.cfg.Translated != nil {
		s.cfg.Translated(t)
	}
}

// xorAddr returns the IPv4 address that differs from a in the bits of w.
func xorAddr(a netip.Addr, w uint32) netip.Addr {
	b := a.As4()
	binary.LittleEndian.PutUint32(b[:], binary.LittleEndian.Uint32(b[:])^w)
	return netip.AddrFrom4(b)
}
