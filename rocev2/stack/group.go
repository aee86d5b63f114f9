package stack

import (
	"encoding/binary"
	"slices"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

// Reports tell routers and switches which links want a group: IGMP version 2 (RFC 2236) and MLD version 1 (RFC 2710),
// which later versions understand. On a shared interface the kernel reports.
const (
	igmpQuery      = 0x11
	igmpReport     = 0x16
	igmpLeave      = 0x17
	igmpLen        = 8
	igmpIPv4Len    = inet.IPv4Len + 4 // with the router alert option (RFC 2113)
	igmpMaxDefault = 100              // tenths of a second, for a query of version 1
	mldQuery       = 130
	mldReport      = 131
	mldDone        = 132
	mldLen         = 24
	hopByHopLen    = 8 // with the router alert option (RFC 2711)

	// The stack reports a new membership robustness times, reportInterval apart (RFC 2236 8.1, 8.10; RFC 2710 7.1,
	// 7.10).
	robustness     = 2
	reportInterval = mono.Time(10 * time.Second)
)

// MaxGroups bounds the multicast groups of a NIC.
const MaxGroups = 1024

var (
	allHosts    = inet.GID{10: 0xff, 11: 0xff, 12: 224, 15: 1}
	allRouters4 = inet.GID{10: 0xff, 11: 0xff, 12: 224, 15: 2}
	allRouters6 = inet.GID{0: 0xff, 1: 0x02, 15: 2}
)

// group is a membership.
type group struct {
	gid     inet.GID
	reports int // still to be sent
	due     mono.Time
}

// groupTable holds the memberships.
type groupTable struct {
	byGID map[inet.GID]*group
	list  []*group         // in the order of joining
	macs  map[inet.MAC]int // number of groups
	next  mono.Time        // first report that is due
}

func (t *groupTable) init() {
	t.byGID, t.macs, t.next = map[inet.GID]*group{}, map[inet.MAC]int{}, mono.Never
}

// groupMAC returns the Ethernet address of a group (RFC 1112 6.4, RFC 2464 section 7).
func groupMAC(g *inet.GID) inet.MAC {
	if g.Is4() {
		return inet.MAC{1, 0, 0x5e, g[13] & 0x7f, g[14], g[15]}
	}
	return inet.MAC{0x33, 0x33, g[12], g[13], g[14], g[15]}
}

// Join makes the NIC a member of a group. It must not be one already.
func (s *Stack) Join(now mono.Time, gid inet.GID) error {
	t := &s.groups
	switch {
	case s.withoutGroups():
		return ErrNoGroups
	case !gid.Multicast():
		return ErrNotGroup
	case len(t.list) == MaxGroups:
		return ErrGroups
	}
	g := &group{gid: gid}
	if s.cfg.Group != nil {
		if err := s.cfg.Group(gid, true); err != nil {
			return err
		}
	} else {
		g.reports, g.due = robustness, now
		t.next = t.next.Min(now)
	}
	t.byGID[gid] = g
	t.list = append(t.list, g)
	t.macs[groupMAC(&gid)]++
	return nil
}

// Leave ends a membership.
func (s *Stack) Leave(gid inet.GID) {
	t := &s.groups
	delete(t.byGID, gid)
	t.list = slices.DeleteFunc(t.list, func(g *group) bool { return g.gid == gid })
	mac := groupMAC(&gid)
	if t.macs[mac]--; t.macs[mac] == 0 {
		delete(t.macs, mac)
	}
	if s.cfg.Group == nil {
		s.sendReport(&gid, true)
		return
	}
	_ = s.cfg.Group(gid, false) // fails only if the kernel has left the group already
}

// withoutGroups reports whether a kernel owns the link and the stack cannot make it join groups.
func (s *Stack) withoutGroups() bool { return s.cfg.Shared && s.cfg.Group == nil }

// advanceGroups sends the reports that are due.
func (s *Stack) advanceGroups(now mono.Time) {
	t := &s.groups
	if now < t.next {
		return
	}
	t.next = mono.Never
	for _, g := range t.list {
		if g.reports > 0 && g.due <= now {
			s.sendReport(&g.gid, false)
			g.reports--
			g.due = now + reportInterval
		}
		if g.reports > 0 {
			t.next = t.next.Min(g.due)
		}
	}
}

// queried schedules the answers to a query for a group, or for all groups of a family if gid is zero. Stations
// answer at a random time within the interval of the query. The stack derives the time from the MAC address, which
// differs between stations too.
func (s *Stack) queried(now mono.Time, gid *inet.GID, v6 bool, within time.Duration) {
	t := &s.groups
	due := now + mono.Time(within)*mono.Time(s.cfg.MAC[5])/256
	for _, g := range t.list {
		if *gid != (inet.GID{}) && g.gid != *gid || g.gid.Is4() == v6 || linkOnly(&g.gid) {
			continue
		}
		if g.reports == 0 || due < g.due {
			g.reports, g.due = max(g.reports, 1), due
		}
		t.next = t.next.Min(g.due)
	}
}

// linkOnly reports whether a group is never reported: 224.0.0.1 (RFC 2236 section 6), ff02::1 and groups that do not
// leave the station (RFC 2710 section 5).
func linkOnly(g *inet.GID) bool {
	return *g == allHosts || *g == allNodes || g[0] == 0xff && g[1]&0xf < 2
}

// receiveIGMP handles a query and ignores the reports of other stations.
func (s *Stack) receiveIGMP(now mono.Time, d *Datagram) Drop {
	m := d.Payload
	if len(m) < igmpLen || inet.Checksum(0, m) != 0 {
		return DropShort
	}
	if m[0] != igmpQuery {
		return Accepted
	}
	gid, tenths := inet.GID{}, int(m[1])
	if [4]byte(m[4:8]) != [4]byte{} {
		gid = inet.GIDOf4(m[4:8])
	}
	if tenths == 0 {
		tenths = igmpMaxDefault
	}
	s.queried(now, &gid, false, time.Duration(tenths)*time.Second/10)
	return Accepted
}

// receiveMLD handles a query behind a hop-by-hop header, the start of d.Payload.
func (s *Stack) receiveMLD(now mono.Time, d *Datagram) Drop {
	if len(d.Payload) < hopByHopLen || d.Payload[0] != inet.ProtoICMPv6 || d.Payload[1] != 0 || d.TTL != 1 {
		return DropProto
	}
	m := d.Payload[hopByHopLen:]
	if len(m) < mldLen || m[0] < mldQuery || m[0] > mldDone {
		return DropProto
	}
	if inet.Checksum(inet.PseudoSum(&d.Src, &d.Dst, inet.ProtoICMPv6, len(m)), m) != 0 {
		return DropICMP
	}
	if gid := inet.GID(m[8:24]); m[0] == mldQuery {
		s.queried(now, &gid, true, time.Duration(binary.BigEndian.Uint16(m[4:]))*time.Millisecond)
	}
	return Accepted
}

// sendReport reports to the link, and to all VLANs of the NIC, that it is a member of a group or leaves it.
func (s *Stack) sendReport(gid *inet.GID, leave bool) {
	if linkOnly(gid) {
		return
	}
	s.sendReportIn(gid, 0, leave)
	for _, v := range s.cfg.VLANs {
		s.sendReportIn(gid, v.ID, leave)
	}
}

func (s *Stack) sendReportIn(gid *inet.GID, vlan uint16, leave bool) {
	if !gid.Is4() {
		s.sendMLD(gid, inet.NewTag(vlan, 0), leave)
	} else if src := s.addrs.first4(vlan); src != nil {
		s.sendIGMP(gid, &src.GID, inet.NewTag(vlan, 0), leave)
	}
}

func (s *Stack) sendIGMP(gid, src *inet.GID, t inet.Tag, leave bool) {
	dst, typ := *gid, byte(igmpReport)
	if leave {
		dst, typ = allRouters4, igmpLeave
	}
	mac := groupMAC(&dst)
	ip := s.control(&mac, t, inet.TypeIPv4, igmpIPv4Len+igmpLen)
	if ip == nil {
		return
	}
	ip, m := ip[:igmpIPv4Len], ip[igmpIPv4Len:]
	inet.PutIPv4(ip, 0xc0, 1, inet.ProtoIGMP, src, &dst)
	ip[0] = 0x40 | igmpIPv4Len/4
	binary.BigEndian.PutUint16(ip[2:], uint16(igmpIPv4Len+igmpLen))
	copy(ip[inet.IPv4Len:], []byte{0x94, 4, 0, 0})
	inet.SealIPv4(ip)
	clear(m)
	m[0] = typ
	copy(m[4:], gid[12:])
	inet.PutChecksum(m[2:], 0, m)
}

func (s *Stack) sendMLD(gid *inet.GID, t inet.Tag, leave bool) {
	dst, typ := *gid, byte(mldReport)
	if leave {
		dst, typ = allRouters6, mldDone
	}
	src, mac := linkLocal(s.cfg.MAC), groupMAC(&dst)
	ip := s.control(&mac, t, inet.TypeIPv6, inet.IPv6Len+hopByHopLen+mldLen)
	if ip == nil {
		return
	}
	inet.PutIPv6(ip, 0, 1, inet.ProtoHopByHop, &src, &dst)
	binary.BigEndian.PutUint16(ip[4:], hopByHopLen+mldLen)
	copy(ip[inet.IPv6Len:], []byte{inet.ProtoICMPv6, 0, 5, 2, 0, 0, 1, 0})
	m := ip[inet.IPv6Len+hopByHopLen:]
	clear(m)
	m[0] = typ
	copy(m[8:], gid[:])
	inet.PutChecksum(m[2:], inet.PseudoSum(&src, &dst, inet.ProtoICMPv6, mldLen), m)
}
