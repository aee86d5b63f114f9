package dut

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// Ethernet types and IPv6 next headers of address resolution.
const (
	etherARP      = 0x0806
	etherIPv6     = 0x86dd
	etherVLAN     = 0x8100
	protoICMPv6   = 58
	solicitation  = 135 // RFC 4861 4.3
	advertisement = 136 // RFC 4861 4.4
)

// etherType returns the Ethernet type of a whole frame without a VLAN tag.
func etherType(f []byte) uint16 { return binary.BigEndian.Uint16(f[12:]) }

// macs is the length of the addresses of an Ethernet frame, tagLen that of the VLAN tag behind them.
const macs, tagLen = 12, 4

// untag removes the VLAN tag of a frame, if it has one.
func untag(b []byte) (frame, tag []byte) {
	if len(b) < macs+tagLen || binary.BigEndian.Uint16(b[macs:]) != etherVLAN {
		return b, nil
	}
	return slices.Concat(b[:macs], b[macs+tagLen:]), b[macs : macs+tagLen]
}

// retag inserts a VLAN tag into a frame. Frames that are too short stay as they are.
func retag(b, tag []byte) []byte {
	if len(b) < macs || tag == nil {
		return b
	}
	return slices.Concat(b[:macs], tag, b[macs:])
}

// inVLAN removes the tag of a frame in a VLAN, 0 for none. ok is false for frames of other VLANs.
func inVLAN(b []byte, vlan uint16) (frame []byte, ok bool) {
	const id = 0xfff
	frame, tag := untag(b)
	if tag == nil {
		return frame, vlan == 0
	}
	return frame, binary.BigEndian.Uint16(tag[2:])&id == vlan
}

// tagOf returns the tag of a VLAN, nil for none.
func tagOf(vlan uint16) []byte {
	if vlan == 0 {
		return nil
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, etherVLAN), vlan)
}

// answer answers a request for the address of the tester in a VLAN, as resolve does.
func answer(b []byte, vlan uint16, mac [6]byte, v4, v6 netip.Addr) []byte {
	f, ok := inVLAN(b, vlan)
	if !ok {
		return nil
	}
	reply := resolve(f, mac, v4, v6)
	if reply == nil {
		return nil
	}
	return retag(reply, tagOf(vlan))
}

// resolve answers a request for the address of the tester: ARP (RFC 826) or a neighbour solicitation (RFC 4861). It returns
// nil for other frames.
func resolve(f []byte, mac [6]byte, v4, v6 netip.Addr) []byte {
	if len(f) < 14 {
		return nil
	}
	switch etherType(f) {
	case etherARP:
		const request, length = 1, 28
		if len(f) < 14+length || binary.BigEndian.Uint16(f[20:]) != request || !bytes.Equal(f[38:42], v4.AsSlice()) {
			return nil
		}
		return arp(2, mac, [6]byte(f[6:12]), v4, netip.AddrFrom4([4]byte(f[28:32])), [6]byte(f[22:28]))
	case etherIPv6:
		const at = 14 + 40
		if len(f) < at+24 || f[20] != protoICMPv6 || f[at] != solicitation || !bytes.Equal(f[at+8:at+24], v6.AsSlice()) {
			return nil
		}
		return advertise(mac, [6]byte(f[6:12]), v6, [16]byte(f[22:38]))
	}
	return nil
}

// arp returns an ARP packet.
func arp(op uint16, mac, to [6]byte, ip, target netip.Addr, targetMAC [6]byte) []byte {
	b := append(append([]byte{}, to[:]...), mac[:]...)
	b = binary.BigEndian.AppendUint16(b, etherARP)
	b = append(b, 0, 1, 8, 0, 6, 4) // Ethernet, IPv4
	b = binary.BigEndian.AppendUint16(b, op)
	b = append(append(b, mac[:]...), ip.AsSlice()...)
	return append(append(b, targetMAC[:]...), target.AsSlice()...)
}

// advertise returns a neighbour advertisement.
func advertise(mac, to [6]byte, ip netip.Addr, dst [16]byte) []byte {
	const solicitedOverride, target = 0x60, 2 // option: target link-layer address
	return neighbour([]byte{advertisement, 0, 0, 0, solicitedOverride, 0, 0, 0}, target, ip, mac, to, ip, dst)
}

// solicit returns a neighbour solicitation for target, to its solicited-node multicast address (RFC 4291 2.7.1).
func solicit(mac [6]byte, ip, target netip.Addr) []byte {
	const source = 1 // option: source link-layer address
	t := target.As16()
	group := [16]byte{0xff, 2, 11: 1, 12: 0xff, 13: t[13], 14: t[14], 15: t[15]}
	return neighbour([]byte{solicitation, 0, 0, 0, 0, 0, 0, 0}, source, target, mac, [6]byte{0x33, 0x33, 0xff, t[13], t[14], t[15]}, ip, group)
}

// neighbour returns a message of neighbour discovery about the address target, with an option that has the tester's MAC.
func neighbour(message []byte, option byte, target netip.Addr, mac, to [6]byte, src netip.Addr, dst [16]byte) []byte {
	message = append(message, target.AsSlice()...)
	message = append(append(message, option, 1), mac[:]...)
	binary.BigEndian.PutUint16(message[2:], icmpSum(src.As16(), dst, message))

	b := append(append([]byte{}, to[:]...), mac[:]...)
	b = binary.BigEndian.AppendUint16(b, etherIPv6)
	b = append(b, 0x60, 0, 0, 0, 0, byte(len(message)), protoICMPv6, 255)
	b = append(append(b, src.AsSlice()...), dst[:]...)
	return append(b, message...)
}

// resolved returns the MAC address in an answer about the device's addresses: an ARP reply or a neighbour advertisement.
func resolved(f []byte, v4, v6 netip.Addr) (mac [6]byte, ok bool) {
	const at, option = 14 + 40, 14 + 40 + 24
	switch {
	case len(f) < 14:
	case etherType(f) == etherARP:
		if len(f) >= 42 && f[21] == 2 && bytes.Equal(f[28:32], v4.AsSlice()) {
			return [6]byte(f[22:28]), true
		}
	case etherType(f) == etherIPv6 && len(f) >= at+24 && f[20] == protoICMPv6 && f[at] == advertisement:
		if !bytes.Equal(f[at+8:at+24], v6.AsSlice()) {
			return mac, false
		}
		if len(f) >= option+8 && f[option] == 2 {
			return [6]byte(f[option+2:]), true
		}
		return [6]byte(f[6:12]), true
	}
	return mac, false
}

// icmpSum returns the checksum of an ICMPv6 message with its pseudo header (RFC 8200 8.1).
func icmpSum(src, dst [16]byte, message []byte) uint16 {
	b := append(append(append([]byte{}, src[:]...), dst[:]...), 0, 0, 0, byte(len(message)), 0, 0, 0, protoICMPv6)
	b = append(b, message...)
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
