package stack

import (
	"cmp"
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

// MaxHeaderLen is the length of a tagged Ethernet header, IPv6 and UDP.
const MaxHeaderLen = inet.EthernetLen + inet.VLANLen + inet.IPv6Len + inet.UDPLen

// maxPriority is the highest priority of IEEE 802.1Q.
const maxPriority = 7

// AddressVector describes the route to a peer (ibv_ah_attr with a GRH).
type AddressVector struct {
	DGID         inet.GID
	SGIDIndex    uint8
	TrafficClass uint8  // DSCP and ECN bits
	HopLimit     uint8  // 0: the default
	FlowLabel    uint32 // 20 bits; for RC and UC it chooses the UDP source port
	SourcePort   uint16 // UDP source port; 0: chosen by the flow label or the queue pairs
	SL           uint8  // service level: see Priority
}

// Priority ranks packets among those of the same client: the service level, up to 7. Without a service level it is
// the upper three bits of the DSCP (RFC 2474 4.2.2), the default of NICs that trust the DSCP.
func (v *AddressVector) Priority() uint8 {
	if v.SL > 0 {
		return min(v.SL, maxPriority)
	}
	return v.TrafficClass >> 5
}

// Path is the route of a connection or of an address handle, with prepared headers. The zero Path leads nowhere.
type Path struct {
	Src, Dst inet.GID
	Next     *Neighbour // next hop; nil for a peer on this NIC and for a group
	Group    bool       // Dst is a multicast group
	holder   Holder     // of Next
	l2       uint8      // length of the Ethernet header
	hdrLen   uint16     // Ethernet, IP and UDP; 0 for the zero Path
	// Member is the number of the destination among the members of the NIC's switch, as of Epoch. Both belong to the NIC.
	Member, Epoch uint32
	flow          uint32 // flow label of the address vector; chosenPort is added if that has a source port
	// hdr are the headers of every packet. Ethernet destination (but for a group), lengths, IP ID and checksums are
	// zero.
	hdr [MaxHeaderLen]byte
}

// NewPath is NewPathOf for Unlimited.
func (s *Stack) NewPath(now mono.Time, av AddressVector) (Path, error) {
	return s.NewPathOf(now, av, Unlimited)
}

// NewPathOf returns the path that av describes and starts its address resolution. The caller releases it with
// ReleasePath.
func (s *Stack) NewPathOf(now mono.Time, av AddressVector, h Holder) (Path, error) {
	p, from, err := s.newPath(&av)
	if err != nil {
		return Path{}, err
	}
	if !s.cfg.unicastAddr(p.Dst.Addr()) {
		return Path{}, ErrBadGID
	}
	if !s.addrs.own(&p.Dst, from.VLAN) {
		hop, ok := s.addrs.nextHop(p.Dst, from.VLAN)
		if !ok {
			return Path{}, ErrNoRoute
		}
		if p.Next, err = s.resolve(now, hop, p.Src, h); err != nil {
			return Path{}, err
		}
		p.holder = h
	}
	p.makeHeaders(&s.cfg, from.VLAN, &av)
	return p, nil
}

// NewGroupPath returns the path to a multicast group. Its Ethernet address needs no resolution.
func (s *Stack) NewGroupPath(av AddressVector) (Path, error) {
	p, from, err := s.newPath(&av)
	if err != nil {
		return Path{}, err
	}
	if s.withoutGroups() {
		return Path{}, ErrNoGroups
	}
	p.Group = true
	av.HopLimit = max(av.HopLimit, 1)
	p.makeHeaders(&s.cfg, from.VLAN, &av)
	mac := groupMAC(&p.Dst)
	copy(p.hdr[:], mac[:])
	return p, nil
}

// newPath returns a path without headers, and its source.
func (s *Stack) newPath(av *AddressVector) (Path, *GIDEntry, error) {
	from := s.addrs.at(av.SGIDIndex)
	if from == nil {
		return Path{}, nil, s.GIDError(ErrGIDIndex, uint32(av.SGIDIndex))
	}
	p := Path{Src: from.GID, Dst: av.DGID, flow: av.FlowLabel & 0xfffff}
	if p.Src.Is4() != p.Dst.Is4() {
		return Path{}, nil, s.GIDError(ErrFamily, uint32(av.SGIDIndex))
	}
	return p, from, nil
}

// makeHeaders fills the header template.
func (p *Path) makeHeaders(c *Config, vlan uint16, av *AddressVector) {
	t := inet.NewTag(vlan, av.Priority())
	hop := av.HopLimit
	if hop == 0 {
		hop = defaultTTL
	}
	var dst inet.MAC
	if p.Next == nil {
		dst = c.MAC
	}
	p.l2 = uint8(t.Len())
	if p.Src.Is4() {
		p.hdrLen = uint16(p.l2) + inet.IPv4Len + inet.UDPLen
		inet.PutIPv4(inet.PutEthernet(p.hdr[:], &dst, &c.MAC, t, inet.TypeIPv4), av.TrafficClass, hop, inet.ProtoUDP, &p.Src, &p.Dst)
	} else {
		p.hdrLen = uint16(p.l2) + inet.IPv6Len + inet.UDPLen
		inet.PutIPv6(inet.PutEthernet(p.hdr[:], &dst, &c.MAC, t, inet.TypeIPv6), av.TrafficClass, hop, inet.ProtoUDP, &p.Src, &p.Dst)
	}
	binary.BigEndian.PutUint16(p.hdr[p.L4()+2:], c.UDPPort)
	p.SetSourcePort(cmp.Or(av.SourcePort, flowSourcePort(p.flow)))
	if av.SourcePort != 0 {
		p.flow |= chosenPort
	}
}

// chosenPort marks the flow label of a path whose source port is chosen.
const chosenPort = 1 << 31

// Valid reports whether p leads anywhere.
func (p *Path) Valid() bool { return p.hdrLen != 0 }

// IPv4 reports whether p is a path of IPv4.
func (p *Path) IPv4() bool { return p.Src.Is4() }

// VLAN returns the VLAN of the tag, 0 without one.
func (p *Path) VLAN() uint16 {
	_, _, t := inet.EtherType(p.Headers())
	return t.VLAN()
}

// ECN returns the ECN bits of packets.
func (p *Path) ECN() uint8 {
	ip := p.hdr[p.l2:]
	if p.Src.Is4() {
		return ip[1] & inet.ECNMask
	}
	return ip[1] >> 4 & inet.ECNMask
}

// Local reports whether p leads to an address of this NIC.
func (p *Path) Local() bool { return p.Next == nil && !p.Group }

// Headers returns the headers of every packet.
func (p *Path) Headers() []byte { return p.hdr[:p.hdrLen] }

// Len returns the length of the headers, 0 for the zero Path.
func (p *Path) Len() int { return int(p.hdrLen) }

// L2 returns the length of the Ethernet header.
func (p *Path) L2() int { return int(p.l2) }

// L4 returns the offset of the UDP header.
func (p *Path) L4() int { return int(p.hdrLen) - inet.UDPLen }

// SourcePort returns the UDP source port of p, 0 for the zero Path.
func (p *Path) SourcePort() uint16 {
	if p.hdrLen == 0 {
		return 0
	}
	return binary.BigEndian.Uint16(p.hdr[p.L4():])
}

// SetSourcePort sets the UDP source port.
func (p *Path) SetSourcePort(port uint16) { binary.BigEndian.PutUint16(p.hdr[p.L4():], port) }

// Entropy returns the entropy value that a receiver sees in frames of p. entropy is that of SetEntropy, 0 without it.
func (p *Path) Entropy(entropy uint32) uint32 {
	switch {
	case entropy == 0:
		return bth.JoinEntropy(p.SourcePort(), inet.FlowLabel(p.hdr[p.l2:]))
	case p.Src.Is4():
		return entropy & 0xffff
	}
	return entropy
}

// SetEntropy sets the UDP source port of a frame, and with IPv6 its flow label. For IPv4, the other half of the entropy
// value is lost.
func (p *Path) SetEntropy(frame []byte, entropy uint32) {
	port, label := bth.SplitEntropy(entropy)
	binary.BigEndian.PutUint16(frame[p.L4():], port)
	if !p.Src.Is4() {
		inet.SetFlowLabel(frame[p.l2:], label)
	}
}

// SetSource sets the Ethernet source address, after the interface has got another one.
func (p *Path) SetSource(mac inet.MAC) { copy(p.hdr[6:12], mac[:]) }

// SetQPNs derives the UDP source port of a connection from its queue pair numbers, unless the address vector has a
// source port, or a flow label that chooses it.
func (s *Stack) SetQPNs(p *Path, local, remote bth.QPN) {
	if p.flow != 0 || p.hdrLen == 0 {
		return
	}
	label := qpnFlowLabel(local, remote)
	if s.cfg.Sockets {
		label = label * 0x9e3779b1 >> (32 - socketPortBits)
	}
	p.SetSourcePort(flowSourcePort(label))
}

// SetTrafficClass replaces the DSCP and ECN bits in the headers of a frame, which the ICRC does not cover, and the
// priority in its tag.
func (p *Path) SetTrafficClass(frame []byte, tclass uint8) {
	if p.l2 > inet.EthernetLen {
		frame[inet.EthernetLen] = frame[inet.EthernetLen]&0x1f | tclass&0xe0
	}
	ip := frame[p.l2:]
	if p.Src.Is4() {
		ip[1] = tclass
		return
	}
	ip[0], ip[1] = ip[0]&0xf0|tclass>>4, ip[1]&0x0f|tclass<<4
}

// Seal completes the headers of a frame with n bytes of UDP payload: lengths, IP ID and IPv4 checksum. A super-frame
// gets the sum of the pseudo-header as its UDP checksum, from which the link computes those of the segments. A
// single frame has UDP checksum zero, as with rxe (IBTA annex A17.4.3 allows that for IPv6 too).
func (p *Path) Seal(frame []byte, id uint16, n int, super bool) {
	l4 := p.L4()
	l3, udp := frame[p.l2:l4], frame[l4:p.hdrLen]
	inet.SetLengths(l3, udp, id, n)
	if p.Src.Is4() {
		inet.SealIPv4(l3)
	}
	if super {
		binary.BigEndian.PutUint16(udp[6:], inet.Fold(inet.PseudoSum(&p.Src, &p.Dst, inet.ProtoUDP, inet.UDPLen+n)))
	}
}

// ReleasePath ends the use of p and zeroes it.
func (s *Stack) ReleasePath(p *Path) {
	if p.Next != nil {
		s.release(p.Next, p.holder)
	}
	*p = Path{}
}

// flowSourcePort returns the UDP source port of a flow label of 20 bits. It gives switches entropy for ECMP (IBTA
// annex A17.3.2; Linux rdma_flow_label_to_udp_sport).
func flowSourcePort(label uint32) uint16 {
	label &= 0xfffff
	return uint16(0xc000 | (label&0x3fff ^ label>>14))
}

// qpnFlowLabel returns the flow label of a connection whose address vector has none (Linux rdma_calc_flow_label).
// It is the same in both directions.
func qpnFlowLabel(local, remote bth.QPN) uint32 {
	v := uint64(local) * uint64(remote)
	v ^= v >> 20
	v ^= v >> 40
	return uint32(v & 0xfffff)
}
