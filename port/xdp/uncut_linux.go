package xdp

import (
	"encoding/binary"

	"roced.io/roced/bth"
)

// In generic mode the program runs after a virtual link has handed over what a sender on
// the same machine wants cut apart: super-frames, as they are. AF_XDP does not tell of what
// size the segments are, but the packets in them do.

const (
	ipv4Len, ipv6Len, udpLen = 20, 40, 8
	minPacket                = bth.BTHLen + bth.ICRCLen
	// maxCandidates bounds the ICRCs that are computed for one frame.
	maxCandidates = 4
	// samePacket masks what the first 8 bytes of all BTHs of a super-frame have in
	// common: the kind of transport, the partition key and the destination queue pair.
	samePacket = 0xe000_ffff_00ff_ffff
)

// segmentSize returns the size in bytes of the first segment's UDP payload if frame is a
// super-frame, else 0. It is where another BTH for the same queue pair begins, before
// which stands the ICRC of the first packet.
func segmentSize(frame []byte) int {
	l3, udp, body, ok := uncut(frame)
	if !ok || len(body) < 2*minPacket {
		return 0
	}
	want := binary.BigEndian.Uint64(body) & samePacket
	candidates := 0
	for s := minPacket; s+minPacket <= len(body) && candidates < maxCandidates; s += 4 { // packets are padded to that
		if binary.BigEndian.Uint64(body[s:])&samePacket != want {
			continue
		}
		if candidates++; icrcFits(l3, udp, body[:s]) {
			return s
		}
	}
	return 0
}

// uncut returns headers and payload of a UDP datagram whose checksum is left to whoever
// cuts it apart: it is the sum over addresses, protocol and length only (virtio 1.2,
// 5.1.6.2). ok is false for other frames.
func uncut(frame []byte) (l3, udp, body []byte, ok bool) {
	if len(frame) < ethLen+ipv4Len+udpLen {
		return nil, nil, nil, false
	}
	l3, addrs := frame[ethLen:ethLen+ipv4Len], frame[ethLen+12:ethLen+ipv4Len]
	switch first, v4 := frame[ethLen], binary.BigEndian.Uint16(frame[12:]) == etherIPv4; {
	case v4 && first != ipv4NoOptions, !v4 && (first>>4 != 6 || len(frame) < ethLen+ipv6Len+udpLen):
		return nil, nil, nil, false
	case !v4: // the program has steered nothing else than IPv6
		l3, addrs = frame[ethLen:ethLen+ipv6Len], frame[ethLen+8:ethLen+ipv6Len]
	}
	rest := frame[ethLen+len(l3):]
	udp = rest[:udpLen]
	n := int(binary.BigEndian.Uint16(udp[4:]))
	if n < udpLen || n > len(rest) {
		return nil, nil, nil, false
	}
	sum := uint32(17 + n) // protocol and length
	for i := 0; i < len(addrs); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(addrs[i:]))
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	return l3, udp, rest[udpLen:n], sum == uint32(binary.BigEndian.Uint16(udp[6:]))
}

const (
	etherIPv4     = 0x0800 // Ethernet type
	ipv4NoOptions = 0x45   // first byte of a header
)

// icrcFits reports whether packet, which l3 and udp are the headers of but for their
// lengths, ends in its ICRC.
func icrcFits(l3, udp, packet []byte) bool {
	var h [ipv6Len]byte
	ip := h[:copy(h[:], l3)]
	if len(ip) == ipv4Len {
		binary.BigEndian.PutUint16(ip[2:], uint16(ipv4Len+udpLen+len(packet)))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(udpLen+len(packet)))
	}
	u := [udpLen]byte(udp)
	binary.BigEndian.PutUint16(u[4:], uint16(udpLen+len(packet)))
	end := len(packet) - bth.ICRCLen
	crc := bth.ICRCStart(ip, u[:], packet[:bth.BTHLen])
	return bth.ICRCUpdate(crc, packet[bth.BTHLen:end]) == bth.GetICRC(packet[end:])
}
