package xdp

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// In generic mode the program also receives unsegmented super-frames, which a sender on the same machine has passed to a
// virtual link. AF_XDP does not report the segment size. The port derives it from the packets in the super-frame.

const (
	ipv4Len, ipv6Len, udpLen = 20, 40, 8
	minPacket                = bth.BTHLen + bth.ICRCLen
	// maxCandidates is the maximum number of ICRCs to compute for one frame.
	maxCandidates = 4
	// samePacket is a mask of the fields in the first 8 bytes of a BTH that are equal in all packets of a super-frame:
	// transport, partition key and destination queue pair.
	samePacket = 0xe000_ffff_00ff_ffff
)

// segmentSize returns the size of the first segment's UDP payload in bytes if frame is a super-frame, else 0. The second
// segment starts with a BTH for the same queue pair that follows the valid ICRC of the first packet.
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
		if candidates++; icrcValid(l3, udp, body[:s]) {
			return s
		}
	}
	return 0
}

// uncut returns headers and payload of a UDP datagram with a partial checksum, which covers only addresses, protocol and
// length (virtio 1.2, 5.1.6.2). The segmentation completes it. ok is false for other frames.
func uncut(frame []byte) (l3, udp, body []byte, ok bool) {
	if len(frame) < ethLen+ipv4Len+udpLen {
		return nil, nil, nil, false
	}
	l3, addrs := frame[ethLen:ethLen+ipv4Len], frame[ethLen+12:ethLen+ipv4Len]
	switch first, v4 := frame[ethLen], binary.BigEndian.Uint16(frame[12:]) == etherIPv4; {
	case v4 && first != ipv4NoOptions, !v4 && (first>>4 != 6 || len(frame) < ethLen+ipv6Len+udpLen):
		return nil, nil, nil, false
	case !v4: // the program steers only IPv4 and IPv6
		l3, addrs = frame[ethLen:ethLen+ipv6Len], frame[ethLen+8:ethLen+ipv6Len]
	}
	rest := frame[ethLen+len(l3):]
	udp = rest[:udpLen]
	n := int(binary.BigEndian.Uint16(udp[4:]))
	if n < udpLen || n > len(rest) {
		return nil, nil, nil, false
	}
	const protoUDP = 17
	return l3, udp, rest[udpLen:n], ^inet.Checksum(uint64(protoUDP+n), addrs) == binary.BigEndian.Uint16(udp[6:])
}

const (
	etherIPv4     = 0x0800 // Ethernet type
	ipv4NoOptions = 0x45   // first byte of a header
)

// icrcValid reports whether packet ends with its valid ICRC. l3 and udp are its headers except for the lengths.
func icrcValid(l3, udp, packet []byte) bool {
	var h [ipv6Len]byte
	ip := h[:copy(h[:], l3)]
	u := [udpLen]byte(udp)
	inet.SetLengths(ip, u[:], binary.BigEndian.Uint16(ip[4:]), len(packet))
	end := len(packet) - bth.ICRCLen
	crc := bth.ICRCStart(ip, u[:], packet[:bth.BTHLen])
	return bth.ICRCUpdate(crc, packet[bth.BTHLen:end]) == bth.GetICRC(packet[end:])
}
