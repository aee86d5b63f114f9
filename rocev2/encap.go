package rocev2

import (
	"encoding/binary"

	"roced/bth"
	"roced/mono"
	"roced/qp"
)

// maxHdrLen is Ethernet, IPv6 and UDP.
const maxHdrLen = ethLen + ipv6Len + udpLen

// path is the way to a peer: the addresses of a connection or of an address
// handle, and the headers made from them once. The zero path leads nowhere.
type path struct {
	src, dst GID
	nb       *neighbour // next hop; nil for a peer on this NIC and for a group
	group    bool       // dst is a multicast group
	flow     uint32     // flow label of the address vector
	hdrLen   int        // Ethernet, IP and UDP; 0 for the zero path
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
	if !t.own(&p.dst) {
		hop, ok := t.nextHop(p.dst)
		if !ok {
			return path{}, ErrNoRoute
		}
		nb, err := n.resolve(now, hop, p.src)
		if err != nil {
			return path{}, err
		}
		p.nb = nb
	}
	p.makeHeaders(&n.cfg.MAC, av.TrafficClass, av.HopLimit)
	return p, nil
}

// makeHeaders fills the header template.
func (p *path) makeHeaders(mac *MAC, tclass, hop uint8) {
	if hop == 0 {
		hop = defaultTTL
	}
	var dst MAC
	if p.nb == nil {
		dst = *mac
	}
	ip := p.hdr[ethLen:]
	if p.src.is4() {
		p.hdrLen = ethLen + ipv4Len + udpLen
		putEth(p.hdr[:], &dst, mac, ethTypeIPv4)
		putIPv4(ip, tclass, hop, protoUDP, &p.src, &p.dst)
	} else {
		p.hdrLen = maxHdrLen
		putEth(p.hdr[:], &dst, mac, ethTypeIPv6)
		putIPv6(ip, tclass, hop, protoUDP, &p.src, &p.dst)
	}
	udp := p.hdr[p.hdrLen-udpLen:]
	binary.BigEndian.PutUint16(udp[2:], bth.UDPPort)
	p.setSourcePort(p.flow)
}

func (p *path) setSourcePort(flow uint32) {
	binary.BigEndian.PutUint16(p.hdr[p.hdrLen-udpLen:], flowSourcePort(flow))
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
		f.Port = binary.BigEndian.Uint16(p.hdr[p.hdrLen-udpLen:])
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
