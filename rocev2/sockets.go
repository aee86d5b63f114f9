package rocev2

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"roced.io/roced/bth"
)

// The link of a NIC may be UDP sockets (Config.Sockets): a kernel makes the IP and UDP headers of what
// is sent and keeps those of what arrives. The port makes headers again for received datagrams, out of
// what the kernel tells. The ICRC covers three things that it does not tell: identification and DF of
// an IPv4 header, and an address that a translator (NAT) has put in the place of another.
//
// Sending: a socket that sets DF and is not connected sends ID 0, and i in segment i of a
// super-frame. So IDs count from 0 in each frame.
//
// Receiving: what a peer of the same kind sends is expected. An ICRC that
// does not fit is that of another ID or another DF if the word of the IP header that holds
// these explains all of the difference (unwinder): 17 of the 32 bits are used to find them, and 15 are left
// to find errors, beside the UDP checksum if the peer sends one. A peer that has numbered its packets as a NIC on
// sockets for a while is held to that: DF, and an ID of a super-frame's segment. It need not be the ID of this one,
// because GRO joins what the peer has not sent together. 25 bits are left.
//
// Only such peers get super-frames, unless the port is told otherwise: a network card may number segments in another way,
// and other peers check what they get. All IDs of theirs are 0.

const (
	// socketPorts is how many UDP source ports connections choose from by themselves; each is a
	// socket. Paths and flow labels that programs choose can be any.
	socketPorts = 64
	// likePeer is how many packets with ID 0, and none of another kind, make a peer a NIC on sockets, and heldPeer how many have it
	// held to that; oddPackets is how many others make it somebody else again: it was started
	// anew with another port.
	likePeer   = 8
	heldPeer   = 64
	oddPackets = 3
	// maxSocketID is above the IDs of segments of super-frames (UDP_MAX_SEGMENTS of Linux).
	maxSocketID = 128
	// translations is how many packets in a row must tell of the same translator.
	translations = 3

	ipv4IDWord = 4  // offset of identification, flags and fragment offset
	ipv4Src    = 12 // of the addresses
	ipv4Dst    = 16
	// idMask are identification and DF in their word, first byte least significant.
	idMask = 0x0040ffff
)

// Translation says that packets arrive whose ICRC is that of another address: somebody on the way
// translates addresses, which RoCEv2 cannot pass. An ICRC that is right for another source is also
// right for some other destination, so there are two answers: one makes sense, the other one is as good as random.
type Translation struct {
	Src, Dst netip.Addr // of the packets that arrive
	From, To netip.Addr // they were sent from there, or to there
}

// sockets is the state of a NIC whose link is sockets.
type sockets struct {
	unwind *unwinder
	last   Translation // what the latest packet tells
	seen   int         // packets in a row that do
}

// StationOf is the Ethernet address that stands for a peer where there is none: in frames whose
// headers were made up.
func StationOf(a netip.Addr) MAC {
	b := a.As16()
	return MAC{2, 0, b[12], b[13], b[14], b[15]}
}

// takeID returns the IP ID for so many datagrams to be sent one after the other.
func (n *NIC) takeID(datagrams int) uint16 {
	if n.cfg.Sockets {
		return 0
	}
	id := n.net.ipID
	n.net.ipID += uint16(datagrams)
	return id
}

// stationAddr reports whether a can be the address of a peer, or of ours.
func (c *Config) stationAddr(a netip.Addr) bool {
	return stationAddr(a) || c.Sockets && a.IsLoopback()
}

// acceptICRC decides about a packet whose ICRC, different from the expected one by diff, the
// headers as we have made them do not explain. It puts ID and DF right.
func (n *NIC) acceptICRC(l3 []byte, length int, diff uint32) bool {
	s := &n.net.sockets
	if s.unwind == nil || l3[0]>>4 != 4 {
		return false
	}
	dist := len(l3) + udpLen + length - bth.ICRCLen
	w, ok := s.unwind.Word(diff, dist-ipv4IDWord)
	if !ok {
		return false
	}
	if w&^idMask != 0 {
		n.lookForTranslator(diff, dist)
		return false
	}
	word := l3[ipv4IDWord:]
	sent := binary.LittleEndian.Uint32(word) ^ w
	if nb := n.net.neigh.byAddr[station{addr: n.net.rx.ip.src}]; nb != nil && nb.alike == heldPeer && !socketID(sent) {
		if nb.odd++; nb.odd < oddPackets {
			return false
		}
		nb.alike, nb.odd = 0, 0
	}
	binary.LittleEndian.PutUint32(word, sent)
	sealIPv4(l3)
	return true
}

// socketID reports whether a NIC on sockets sends packets with that word of the header: DF, and an ID that is
// the place in a super-frame. The first byte is the least significant one.
func socketID(word uint32) bool {
	word = bits.ReverseBytes32(word)
	return word>>16 < maxSocketID && word&0xffff == ipv4DF
}

// recognise learns of an accepted packet whether its sender is a NIC on sockets: its frames begin with ID 0. Who counts comes
// through all IDs, but by 0 only once.
func (n *NIC) recognise(nb *neighbour, l3 []byte) {
	if nb == nil {
		nb = n.net.neigh.byAddr[station{addr: n.net.rx.ip.src}] // of a datagram
	}
	switch {
	case nb == nil || n.net.rx.ip.v6:
	case !socketID(binary.LittleEndian.Uint32(l3[ipv4IDWord:])):
		nb.alike = 0
	case binary.BigEndian.Uint16(l3[ipv4IDWord:]) == 0 && nb.alike < heldPeer:
		nb.alike++
	}
}

// apart reports whether a super-frame on this path must be cut apart before it leaves.
func (n *NIC) apart(p *path) bool {
	return n.cfg.Sockets && p.src.is4() && (p.nb == nil || p.nb.alike < likePeer)
}

// lookForTranslator finds out whether a packet had another address when it was sent. Any difference
// of an ICRC can be that of an address, so only the same answer again and again is one.
func (n *NIC) lookForTranslator(diff uint32, dist int) {
	s, h := &n.net.sockets, &n.net.rx.ip
	t := Translation{Src: h.src.Addr(), Dst: h.dst.Addr()}
	from, _ := s.unwind.Word(diff, dist-ipv4Src)
	to, _ := s.unwind.Word(diff, dist-ipv4Dst)
	t.From, t.To = changed(t.Src, from), changed(t.Dst, to)
	if t != s.last {
		s.last, s.seen = t, 0
	}
	if s.seen++; s.seen == translations && n.cfg.Translated != nil {
		n.cfg.Translated(t)
	}
}

// changed returns the IPv4 address that differs from a in the bits of w.
func changed(a netip.Addr, w uint32) netip.Addr {
	b := a.As4()
	binary.LittleEndian.PutUint32(b[:], binary.LittleEndian.Uint32(b[:])^w)
	return netip.AddrFrom4(b)
}
