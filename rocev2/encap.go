package rocev2

import (
	"encoding/binary"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// maxHdrLen is Ethernet with a tag, IPv6 and UDP.
const maxHdrLen = ethLen + vlanLen + ipv6Len + udpLen

// path is the way to a peer: the addresses of a connection or of an address
// handle, and the headers made from them once. The zero path leads nowhere.
type path struct {
	src, dst GID
	nb       *neighbour // next hop; nil for a peer on this NIC and for a group
	group    bool       // dst is a multicast group
	l2       uint8      // length of the Ethernet header
	hdrLen   uint16     // Ethernet, IP and UDP; 0 for the zero path
	flow     uint32     // flow label of the address vector
	// hdr are the headers of every packet; the Ethernet destination, lengths, IP
	// ID and checksums are zero.
	hdr [maxHdrLen]byte
}

// newPath returns the path that av describes, with its address resolution
// started. The caller gives it back with releasePath.
func (n *NIC) newPath(now mono.Time, av AddressVector) (path, error) {
	t := &n.net.addrs
	from := t.at(av.SGIDIndex)
	if from == nil {
		return path{}, ErrGIDIndex
	}
	p := path{src: from.GID, dst: av.DGID, flow: av.FlowLabel & 0xfffff}
	if p.src.is4() != p.dst.is4() {
		return path{}, ErrFamily
	}
	if !n.cfg.stationAddr(p.dst.Addr()) {
		return path{}, ErrBadGID
	}
	if !t.own(&p.dst, from.VLAN) {
		hop, ok := t.nextHop(p.dst, from.VLAN)
		if !ok {
			return path{}, ErrNoRoute
		}
		nb, err := n.resolve(now, hop, p.src)
		if err != nil {
			return path{}, err
		}
		p.nb = nb
	}
	p.makeHeaders(&n.cfg.MAC, newTag(from.VLAN, av.Priority()), &av)
	return p, nil
}

// makeHeaders fills the header template.
func (p *path) makeHeaders(mac *MAC, t tag, av *AddressVector) {
	hop := av.HopLimit
	if hop == 0 {
		hop = defaultTTL
	}
	var dst MAC
	if p.nb == nil {
		dst = *mac
	}
	p.l2 = uint8(t.len())
	if p.src.is4() {
		p.hdrLen = uint16(p.l2) + ipv4Len + udpLen
		putIPv4(putEth(p.hdr[:], &dst, mac, t, ethTypeIPv4), av.TrafficClass, hop, protoUDP, &p.src, &p.dst)
	} else {
		p.hdrLen = uint16(p.l2) + ipv6Len + udpLen
		putIPv6(putEth(p.hdr[:], &dst, mac, t, ethTypeIPv6), av.TrafficClass, hop, protoUDP, &p.src, &p.dst)
	}
	binary.BigEndian.PutUint16(p.hdr[p.l4()+2:], bth.UDPPort)
	p.setSourcePort(p.flow)
}

// headers are those of every packet, and l4 is where UDP's begins.
func (p *path) headers() []byte { return p.hdr[:p.hdrLen] }
func (p *path) l4() int         { return int(p.hdrLen) - udpLen }

func (p *path) setSourcePort(flow uint32) {
	binary.BigEndian.PutUint16(p.hdr[p.l4():], flowSourcePort(flow))
}

// setQPNs chooses the UDP source port of a connection from its queue pair
// numbers, unless the address vector has a flow label that chooses it.
func (n *NIC) setQPNs(p *path, local, remote bth.QPN) {
	if p.flow != 0 || p.hdrLen == 0 {
		return
	}
	label := qpnFlowLabel(local, remote)
	if n.cfg.Sockets {
		label = label * 0x9e3779b1 >> 26 // one of socketPorts
	}
	p.setSourcePort(label)
}

// flowOf is where packets go, if their port is that of p.
func (p *path) flowOf() qp.Flow {
	f := qp.Flow{Dst: p.dst}
	if p.hdrLen > 0 {
		f.Port = binary.BigEndian.Uint16(p.hdr[p.l4():])
	}
	return f
}

// releasePath ends the use of p. A packet that waits for the next frame of p is
// discarded.
func (n *NIC) releasePath(p *path) {
	n.net.tx.forget(p)
	if p.nb != nil {
		n.release(p.nb)
	}
	*p = path{}
}
