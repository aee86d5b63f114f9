package ucma

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/rdmacm"
)

// TestJoin follows a membership as in mckey: resolve the group's address, join, leave. The attributes in the events
// address the group.
func TestJoin(t *testing.T) {
	for _, group := range []string{"239.1.2.3:7174", "[ff15::7]:7174"} {
		c := open(t, lab(t)[0])
		id := c.create(11, rdmacm.PSUDP)
		s, n := storage(group)
		c.do(rdmacm.CmdResolveAddr, rdmacm.ResolveAddr{ID: id, TimeoutMS: 1000, DstSize: n, DstAddr: s})
		c.next(rdmacm.EventAddrResolved)
		join := rdmacm.JoinMcast{UID: 77, ID: id, AddrSize: n, Addr: s}
		m := ask[rdmacm.CreateIDResp](c, rdmacm.CmdJoinMcast, join).ID
		e := c.next(rdmacm.EventMulticastJoin)
		var p rdmacm.UDParam
		_, err := binary.Decode(e.Param[:], native, &p)
		must(t, err)
		dst, err := parseSockaddr(s[:n])
		must(t, err)
		if e.UID != 77 || e.ID != m || p.QPNum != groupQPN || p.QKey != defaultQKey || p.AHAttr.IsGlobal != 1 ||
			p.AHAttr.GRH.DGID != inet.GIDOf(dst.Addr()) || p.AHAttr.GRH.HopLimit != 1 {
			t.Errorf("%s: %+v %+v", group, e, p)
		}
		c.refuse(unix.EADDRINUSE, rdmacm.CmdJoinMcast, 4, join)
		if n := ask[rdmacm.DestroyIDResp](c, rdmacm.CmdLeaveMcast, rdmacm.DestroyID{ID: m}).EventsReported; n != 1 {
			t.Errorf("%s: %d events", group, n)
		}
		c.refuse(unix.ENOENT, rdmacm.CmdLeaveMcast, 4, rdmacm.DestroyID{ID: m})
		m = ask[rdmacm.CreateIDResp](c, rdmacm.CmdJoinMcast, join).ID
		if n := ask[rdmacm.DestroyIDResp](c, rdmacm.CmdLeaveMcast, rdmacm.DestroyID{ID: m}).EventsReported; n != 0 {
			t.Errorf("%s: %d events, none of which has been taken", group, n)
		}
		if n := c.destroy(id); n != 1 {
			t.Errorf("%s: %d events of the identifier", group, n)
		}
	}
}

// TestBadJoins refuses invalid memberships.
func TestBadJoins(t *testing.T) {
	c := open(t, lab(t)[0])
	udp, tcp, idle := c.create(1, rdmacm.PSUDP), c.create(2, rdmacm.PSTCP), c.create(3, rdmacm.PSUDP)
	c.bindTo(udp, "198.18.0.1:0")
	c.bindTo(tcp, "198.18.0.1:0")
	for _, r := range []struct {
		id    uint32
		addr  string
		flags uint16
	}{{udp, "198.18.0.2:0", 0}, {udp, "[ff15::1]:0", 0}, {udp, "239.0.0.1:0", 2}, {tcp, "239.0.0.1:0", 0}, {idle, "239.0.0.1:0", 0}} {
		s, n := storage(r.addr)
		c.refuse(unix.EINVAL, rdmacm.CmdJoinMcast, 4, rdmacm.JoinMcast{ID: r.id, AddrSize: n, JoinFlags: r.flags, Addr: s})
	}
	s, n := storage("239.0.0.1:0")
	c.refuse(unix.ENOENT, rdmacm.CmdJoinMcast, 4, rdmacm.JoinMcast{ID: 999, AddrSize: n, Addr: s})
}
