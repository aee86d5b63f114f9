package bth

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// The invariant CRC of RoCEv2 (IBTA vol.1 7.8.1, annex A17.3.3) is a CRC-32. It covers 8 bytes of ones, in place of
// the local route header, and the packet from the IP header to the pad. Fields that may change in transit count as
// ones. The wire format is least significant byte first.

// Errors of CheckICRC.
var (
	ErrICRC = errors.New("bth: invariant CRC does not match")
	ErrL3   = errors.New("bth: not a whole IP packet with UDP")
)

// icrcTab holds the tables of the slicing-by-8 method: icrcTab[k][v] is the
// remainder of byte v followed by k zero bytes.
var icrcTab = makeICRCTab()

func makeICRCTab() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < 8; k++ {
		for v := range t[k] {
			c := t[k-1][v]
			t[k][v] = t[0][c&0xff] ^ c>>8
		}
	}
	return t
}

// icrcSeed is the CRC state after 8 bytes of ones.
var icrcSeed = icrcStep8(^uint32(0), ^uint64(0))

// icrcStep8 advances the state c over 8 bytes, w in little-endian order.
func icrcStep8(c uint32, w uint64) uint32 {
	w ^= uint64(c)
	return icrcTab[7][byte(w)] ^ icrcTab[6][byte(w>>8)] ^
		icrcTab[5][byte(w>>16)] ^ icrcTab[4][byte(w>>24)] ^
		icrcTab[3][byte(w>>32)] ^ icrcTab[2][byte(w>>40)] ^
		icrcTab[1][byte(w>>48)] ^ icrcTab[0][byte(w>>56)]
}

// icrcStep4 advances the state c over 4 bytes, w in little-endian order.
func icrcStep4(c, w uint32) uint32 {
	w ^= c
	return icrcTab[3][byte(w)] ^ icrcTab[2][byte(w>>8)] ^
		icrcTab[1][byte(w>>16)] ^ icrcTab[0][byte(w>>24)]
}

// ICRCStart begins an ICRC. l3 is the IPv4 header with its options or the IPv6 header with its extension headers. udp is the
// UDP header, transport the BTH with any extension headers. ICRCUpdate continues with the payload. The arguments neither
// escape nor are copied: the function sets masked fields in registers. It computes headers with tables, because hash/crc32
// moves its argument to the heap: it passes the argument through a function variable. ICRCStart panics if a header is too
// short.
func ICRCStart(l3, udp, transport []byte) uint32 {
	if len(l3) == ipv4Len {
		return icrcStart20(l3, udp, transport)
	}
	var c uint32
	if l3[0]>>4 == 4 {
		c = icrcIPv4(l3)
	} else {
		c = icrcIPv6(l3)
	}
	// UDP checksum, bytes 6 and 7.
	c = icrcStep8(c, binary.LittleEndian.Uint64(udp)|0xffff<<48)
	// BTH byte 4: FECN, BECN and reserved bits.
	c = icrcStep8(c, binary.LittleEndian.Uint64(transport)|0xff<<32)
	return ^icrcBytes(c, transport[8:])
}

// icrcStart20 is ICRCStart for an IPv4 header without options, with few steps: words cross the borders of headers.
func icrcStart20(l3, udp, transport []byte) uint32 {
	le := binary.LittleEndian
	_, _ = udp[UDPLen-1], transport[BTHLen-1]
	c := icrcStep8(icrcSeed, le.Uint64(l3)|0xff00)
	c = icrcStep8(c, le.Uint64(l3[8:])|0xffff00ff)
	c = icrcStep8(c, uint64(le.Uint32(l3[16:]))|uint64(le.Uint32(udp))<<32)
	c = icrcStep8(c, uint64(le.Uint32(udp[4:])|0xffff<<16)|uint64(le.Uint32(transport))<<32)
	c = icrcStep8(c, le.Uint64(transport[4:])|0xff)
	return ^icrcBytes(c, transport[BTHLen:])
}

// icrcBytes advances the state c over b.
func icrcBytes(c uint32, b []byte) uint32 {
	for ; len(b) >= 4; b = b[4:] {
		c = icrcStep4(c, binary.LittleEndian.Uint32(b))
	}
	for _, v := range b {
		c = icrcTab[0][byte(c)^v] ^ c>>8
	}
	return c
}

// icrcIPv4 covers an IPv4 header. TOS (byte 1), TTL (8) and header checksum (10, 11) count as ones.
func icrcIPv4(h []byte) uint32 {
	_ = h[ipv4Len-1]
	c := icrcStep8(icrcSeed, binary.LittleEndian.Uint64(h)|0xff00)
	c = icrcStep8(c, binary.LittleEndian.Uint64(h[8:])|0xffff00ff)
	return icrcBytes(c, h[16:])
}

// icrcIPv6 covers an IPv6 header with its extension headers. Traffic class, flow label (bytes 0 to 3 except the version) and hop limit (byte 7)
// count as ones.
func icrcIPv6(h []byte) uint32 {
	_ = h[ipv6Len-1]
	c := icrcStep8(icrcSeed, binary.LittleEndian.Uint64(h)|0xff000000ffffff0f)
	for h = h[8:]; len(h) >= 8; h = h[8:] {
		c = icrcStep8(c, binary.LittleEndian.Uint64(h))
	}
	return c
}

// ICRCUpdate continues an ICRC over a piece of the payload. p escapes to hash/crc32, so it should already be on the
// heap. Use ICRCPad for pad bytes.
func ICRCUpdate(crc uint32, p []byte) uint32 {
	if len(p) == 0 {
		return crc
	}
	return crcUpdate(crc, p)
}

// ICRCPad continues an ICRC over n zero pad bytes, n from 0 to 3.
func ICRCPad(crc uint32, n int) uint32 {
	if n == 0 {
		return crc
	}
	return ^icrcBytes(^crc, zeros[:n])
}

// PutICRC writes crc at the start of b in wire format.
func PutICRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// GetICRC reads the ICRC at the start of b.
func GetICRC(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// ICRC computes the ICRC of pkt, a contiguous packet from its IP header on. It returns the ICRC and its offset in
// pkt. It ignores bytes after the end of the IP packet, such as Ethernet padding. It does not support IPv6 extension
// headers.
func ICRC(pkt []byte) (crc uint32, off int, err error) {
	l3, end, err := splitL3(pkt)
	if err != nil {
		return 0, 0, err
	}
	off = end - ICRCLen
	transport := pkt[l3+UDPLen : off]
	crc = ICRCStart(pkt[:l3], pkt[l3:], transport[:BTHLen])
	return ICRCUpdate(crc, transport[BTHLen:]), off, nil
}

// CheckICRC returns nil if the last four bytes of the IP packet pkt are its ICRC. It returns ErrICRC if they are not,
// and ErrL3 if pkt is not a whole packet.
func CheckICRC(pkt []byte) error {
	crc, off, err := ICRC(pkt)
	if err != nil {
		return err
	}
	if GetICRC(pkt[off:]) != crc {
		return ErrICRC
	}
	return nil
}

// SealICRC computes the ICRC of the IP packet pkt and writes it to the last four bytes of pkt.
func SealICRC(pkt []byte) error {
	crc, off, err := ICRC(pkt)
	if err != nil {
		return err
	}
	PutICRC(pkt[off:], crc)
	return nil
}

// splitL3 returns the length of the IP header of pkt and the end of its UDP datagram. The datagram holds at least a
// BTH and an ICRC.
func splitL3(pkt []byte) (l3, end int, err error) {
	if len(pkt) < ipv4Len {
		return 0, 0, ErrL3
	}
	proto := byte(0)
	switch pkt[0] >> 4 {
	case 4:
		l3 = int(pkt[0]&0xf) * 4
		end = int(binary.BigEndian.Uint16(pkt[2:]))
		proto = pkt[9]
	case 6:
		l3 = ipv6Len
		end = ipv6Len + int(binary.BigEndian.Uint16(pkt[4:]))
		proto = pkt[6]
	}
	if proto != protoUDP || l3 < ipv4Len || end > len(pkt) || end < l3+UDPLen+BTHLen+ICRCLen {
		return 0, 0, ErrL3
	}
	return l3, end, nil
}

// ICRCDelta returns the change of an ICRC when word is XORed into the packet dist bytes before the ICRC. dist is from
// 4 to 65535.
func ICRCDelta(word uint32, dist int) uint32 {
	c := icrcStep4(0, word)
	for n := dist - 4; n > 0; n -= len(nothing) {
		c = ^ICRCUpdate(^c, nothing[:min(n, len(nothing))])
	}
	return c
}

var nothing [4096]byte
