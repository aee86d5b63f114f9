package rocev2

import (
	"encoding/binary"
	"time"

	"roced.io/roced/plugin/mono"
)

// Routers and switches learn from reports which links want a group: IGMP version 2 (RFC 2236)
// and MLD version 1 (RFC 2710), which speakers of later versions understand. On an interface
// that is shared with a kernel none is sent: the kernel reports the groups of a NIC on sockets.
const (
	protoIGMP      = 2
	igmpQuery      = 0x11
	igmpReport     = 0x16
	igmpLeave      = 0x17
	igmpLen        = 8
	igmpIPv4Len    = ipv4Len + 4 // with the router alert option (RFC 2113)
	mldQuery       = 130
	mldReport      = 131
	mldDone        = 132
	mldLen         = 24
	hopByHopLen    = 8 // with the router alert option (RFC 2711)
	protoHopByHop  = 0
	igmpMaxDefault = 100 // tenths of a second: of a query of version 1

	// robustness is how often a new membership is reported, and reportAgain how far apart
	// (RFC 2236 8.1, 8.10; RFC 2710 7.1, 7.10).
	robustness  = 2
	reportAgain = mono.Time(10 * time.Second)
)

var (
	allHosts    = GID{10: 0xff, 11: 0xff, 12: 224, 15: 1}
	allRouters4 = GID{10: 0xff, 11: 0xff, 12: 224, 15: 2}
	allRouters6 = GID{0: 0xff, 1: 0x02, 15: 2}
)

// advanceGroups sends the reports that are due.
func (n *NIC) advanceGroups(now mono.Time) {
	m := &n.net.mcast
	if now < m.next {
		return
	}
	m.next = mono.Never
	for _, g := range m.list {
		if g.reports > 0 && g.due <= now {
			n.sendReport(&g.gid, false)
			g.reports--
			g.due = now + reportAgain
		}
		if g.reports > 0 {
			m.next = m.next.Min(g.due)
		}
	}
}

// queried plans the answers to a query for a group, or for all of a family if gid is zero.
// Stations answer at random within the time that the query says; here the place in it comes
// from the MAC address, which differs as well.
func (n *NIC) queried(now mono.Time, gid *GID, v6 bool, within time.Duration) {
	m := &n.net.mcast
	due := now + mono.Time(within)*mono.Time(n.cfg.MAC[5])/256
	for _, g := range m.list {
		if *gid != (GID{}) && g.gid != *gid || g.gid.is4() == v6 || linkOnly(&g.gid) {
			continue
		}
		if g.reports == 0 || due < g.due {
			g.reports, g.due = max(g.reports, 1), due
		}
		m.next = m.next.Min(g.due)
	}
}

// linkOnly reports whether a group is never reported: 224.0.0.1 (RFC 2236 section 6), and
// ff02::1 and what does not leave the station (RFC 2710 section 5).
func linkOnly(g *GID) bool {
	return *g == allHosts || *g == allNodes || g[0] == 0xff && g[1]&0xf < 2
}

// receiveIGMP takes a query; reports of others mean nothing to us.
func (n *NIC) receiveIGMP(now mono.Time, h *ipHeader) rxReason {
	m := h.payload
	if len(m) < igmpLen || checksum(0, m) != 0 {
		return rxShort
	}
	if m[0] != igmpQuery {
		return rxOK
	}
	gid, tenths := GID{}, int(m[1])
	if [4]byte(m[4:8]) != [4]byte{} {
		gid = gidOf4(m[4:8])
	}
	if tenths == 0 {
		tenths = igmpMaxDefault
	}
	n.queried(now, &gid, false, time.Duration(tenths)*time.Second/10)
	return rxOK
}

// receiveMLD takes a query behind a hop-by-hop header, the start of h.payload.
func (n *NIC) receiveMLD(now mono.Time, h *ipHeader) rxReason {
	if len(h.payload) < hopByHopLen || h.payload[0] != protoICMPv6 || h.payload[1] != 0 || h.ttl != 1 {
		return rxProto
	}
	m := h.payload[hopByHopLen:]
	if len(m) < mldLen || m[0] < mldQuery || m[0] > mldDone {
		return rxProto
	}
	if checksum(pseudoSum(&h.src, &h.dst, protoICMPv6, len(m)), m) != 0 {
		return rxICMP
	}
	if gid := GID(m[8:24]); m[0] == mldQuery {
		n.queried(now, &gid, true, time.Duration(binary.BigEndian.Uint16(m[4:]))*time.Millisecond)
	}
	return rxOK
}

// sendReport tells the link, and all VLANs there in which the NIC is, that it is in a group, or no more.
func (n *NIC) sendReport(gid *GID, leave bool) {
	if linkOnly(gid) {
		return
	}
	n.sendReportIn(gid, 0, leave)
	for _, v := range n.cfg.VLANs {
		n.sendReportIn(gid, v.ID, leave)
	}
}

func (n *NIC) sendReportIn(gid *GID, vlan uint16, leave bool) {
	if !gid.is4() {
		n.sendMLD(gid, newTag(vlan, 0), leave)
	} else if src := n.net.addrs.first4(vlan); src != nil {
		n.sendIGMP(gid, &src.GID, newTag(vlan, 0), leave)
	}
}

func (n *NIC) sendIGMP(gid, src *GID, t tag, leave bool) {
	b := n.net.ctl.alloc(t.len() + igmpIPv4Len + igmpLen)
	if b == nil {
		n.ctr.TxDroppedControl++
		return
	}
	dst, typ := *gid, byte(igmpReport)
	if leave {
		dst, typ = allRouters4, igmpLeave
	}
	mac := groupMAC(&dst)
	ip := putEth(b, &mac, &n.cfg.MAC, t, ethTypeIPv4)
	ip, m := ip[:igmpIPv4Len], ip[igmpIPv4Len:]
	putIPv4(ip, 0xc0, 1, protoIGMP, src, &dst)
	ip[0] = 0x40 | igmpIPv4Len/4
	binary.BigEndian.PutUint16(ip[2:], uint16(igmpIPv4Len+igmpLen))
	copy(ip[ipv4Len:], []byte{0x94, 4, 0, 0})
	sealIPv4(ip)
	clear(m)
	m[0] = typ
	copy(m[4:], gid[12:])
	putChecksum(m[2:], 0, m)
}

func (n *NIC) sendMLD(gid *GID, t tag, leave bool) {
	b := n.net.ctl.alloc(t.len() + ipv6Len + hopByHopLen + mldLen)
	if b == nil {
		n.ctr.TxDroppedControl++
		return
	}
	dst, typ := *gid, byte(mldReport)
	if leave {
		dst, typ = allRouters6, mldDone
	}
	src, mac := linkLocal(n.cfg.MAC), groupMAC(&dst)
	ip := putEth(b, &mac, &n.cfg.MAC, t, ethTypeIPv6)
	putIPv6(ip, 0, 1, protoHopByHop, &src, &dst)
	binary.BigEndian.PutUint16(ip[4:], hopByHopLen+mldLen)
	copy(ip[ipv6Len:], []byte{protoICMPv6, 0, 5, 2, 0, 0, 1, 0})
	m := ip[ipv6Len+hopByHopLen:]
	clear(m)
	m[0] = typ
	copy(m[8:], gid[:])
	putChecksum(m[2:], pseudoSum(&src, &dst, protoICMPv6, mldLen), m)
}
