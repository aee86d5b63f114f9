package ucma

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/qp"
)

// pushed reads an event from the event socket of a client with pushed events.
func (c *client) pushed(flags int) (e rdmacm.EventResp, ok bool) {
	c.t.Helper()
	e, attr, ok := c.pushedWith(flags)
	if attr != nil {
		c.t.Fatalf("event %+v with attributes", e)
	}
	return e, ok
}

// pushedWith is pushed for an event with connection attributes.
func (c *client) pushedWith(flags int) (e rdmacm.EventResp, attr *rdmacm.ConnAttr, ok bool) {
	c.t.Helper()
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(c.bell, b, flags)
	if err == unix.EAGAIN {
		return e, nil, false
	}
	must(c.t, err)
	e, err = uverbs.Decode[rdmacm.EventResp](b[:n])
	must(c.t, err)
	rest := b[uverbs.Size[rdmacm.EventResp]():n]
	if len(rest) == 0 {
		return e, nil, true
	}
	if len(rest) != uverbs.Size[rdmacm.ConnAttr]() {
		c.t.Fatalf("an event of %d bytes", n)
	}
	a, err := uverbs.Decode[rdmacm.ConnAttr](rest)
	must(c.t, err)
	return e, &a, true
}

// checkAttr checks that an event's connection attributes equal those of INIT_QP_ATTR and QUERY.
func (c *client) checkAttr(id uint32, a *rdmacm.ConnAttr) {
	c.t.Helper()
	attr := func(s qp.State) rdmacm.QPAttr {
		return ask[rdmacm.QPAttr](c, rdmacm.CmdInitQPAttr, rdmacm.InitQPAttr{ID: id, QPState: uint32(s)})
	}
	q := ask[rdmacm.QueryAddrResp](c, rdmacm.CmdQuery, rdmacm.Query{ID: id, Option: rdmacm.QueryAddr})
	want := rdmacm.ConnAttr{Init: attr(qp.Init), RTR: attr(qp.RTR), RTS: attr(qp.RTS), SrcAddr: q.SrcAddr, DstAddr: q.DstAddr}
	if a == nil || *a != want {
		c.t.Errorf("attributes of %d are %+v, want %+v", id, a, want)
	}
}

// connectTo returns the request to create and connect an identifier in one command.
func connectTo(uid uint64, ps rdmacm.PortSpace, addr string, p rdmacm.ConnParam) rdmacm.ConnectTo {
	s, n := storage(addr)
	return rdmacm.ConnectTo{UID: uid, TimeoutMS: 15000, DstSize: n, PS: ps, DstAddr: s, ConnParam: p}
}

// TestConnectTo: one command creates an identifier and connects it. The events contain all attributes that the two
// sides need.
func TestConnectTo(t *testing.T) {
	for _, addrs := range [][2]string{{"198.18.0.2:7471", "198.18.0.2:7471"}, {"[::]:7471", "[fd00::2]:7471"}} {
		hosts := lab(t)
		c, s := openWith(t, hosts[0], rdmacm.HelloEvents), openWith(t, hosts[1], rdmacm.HelloEvents)
		s.listenOn(11, rdmacm.PSTCP, addrs[0], 3)
		for i := range 2 { // the neighbour is unknown, then known
			uid := uint64(21 + i)
			id := ask[rdmacm.CreateIDResp](c, rdmacm.ExtConnect, connectTo(uid, rdmacm.PSTCP, addrs[1], param(0x111, "hello"))).ID
			e, attr, _ := s.pushedWith(0)
			p := connOf(t, &e)
			if e.Event != rdmacm.EventConnectRequest || text(&p) != "hello" || p.QPNum != 0x111 {
				t.Fatalf("request %+v, %+v", e, p)
			}
			s.checkAttr(e.ID, attr)
			s.do(rdmacm.CmdAccept, rdmacm.Accept{UID: 12, ID: e.ID, ConnParam: param(0x222, "welcome")})
			e, attr, _ = c.pushedWith(0)
			p = connOf(t, &e)
			if e.Event != rdmacm.EventConnectResponse || e.UID != uid || e.ID != id || text(&p) != "welcome" || p.QPNum != 0x222 {
				t.Fatalf("response %+v, %+v", e, p)
			}
			c.checkAttr(id, attr)
			c.do(rdmacm.CmdAccept, rdmacm.Accept{ID: id})
			if e, _ := s.pushed(0); e.Event != rdmacm.EventEstablished || e.UID != 12 {
				t.Errorf("established: %+v", e)
			}
			if n := c.destroy(id); n != 1 {
				t.Errorf("%d events are reported", n)
			}
			if e, _ := s.pushed(0); e.Event != rdmacm.EventDisconnected {
				t.Errorf("disconnected: %+v", e)
			}
		}
	}
}

// TestConnectToFails: an immediate error leaves nothing behind. The event of the failed step reports a later error.
func TestConnectToFails(t *testing.T) {
	h := newHost(t, t.TempDir(), 0)
	c := openWith(t, h.cfg.Path, rdmacm.HelloEvents)
	out := uverbs.Size[rdmacm.CreateIDResp]()
	good := param(0x111, "")
	long := connectTo(1, rdmacm.PSTCP, "198.18.0.1:7471", good)
	long.DstSize = uint16(len(long.DstAddr) + 1)
	for _, r := range []struct {
		want unix.Errno
		rdmacm.ConnectTo
	}{
		{unix.EINVAL, long},
		{unix.EINVAL, connectTo(1, rdmacm.PSTCP, "198.18.0.1:7471", rdmacm.ConnParam{})},
		{unix.EINVAL, connectTo(1, 0x999, "198.18.0.1:7471", good)},
		{unix.ENETUNREACH, connectTo(1, rdmacm.PSTCP, "198.19.0.1:7471", good)},
	} {
		c.refuse(r.want, rdmacm.ExtConnect, out, r.ConnectTo)
	}
	h.mu.Lock()
	if n, m := len(h.ids), len(h.ports); n != 0 || m != 0 {
		t.Errorf("%d identifiers and %d ports are left", n, m)
	}
	h.mu.Unlock()
	silent := connectTo(2, rdmacm.PSTCP, "198.18.0.77:7471", good)
	silent.TimeoutMS = 10
	for _, r := range []struct {
		event  uint32
		status int32
		rdmacm.ConnectTo
	}{
		{rdmacm.EventAddrError, -int32(unix.ETIMEDOUT), silent},
		{rdmacm.EventConnectError, -int32(unix.EINVAL), connectTo(2, rdmacm.PSTCP, "198.18.0.1:7471", param(0x111, strings.Repeat("x", 57)))},
		{rdmacm.EventRejected, 8, connectTo(2, rdmacm.PSTCP, "198.18.0.1:7471", good)}, // no listener
	} {
		id := ask[rdmacm.CreateIDResp](c, rdmacm.ExtConnect, r.ConnectTo).ID
		if e, _ := c.pushed(0); e.Event != r.event || int32(e.Status) != r.status || e.ID != id || e.UID != 2 {
			t.Errorf("event %+v, want %d with status %d", e, r.event, r.status)
		}
		c.destroy(id)
	}
}

// TestPushedEvents: a client with pushed events finds them in the event socket, in order, up to the number of places.
// The others wait until the client returns places. All of them count as reported.
func TestPushedEvents(t *testing.T) {
	c := openWith(t, newHost(t, t.TempDir(), 0).cfg.Path, rdmacm.HelloEvents)
	var ids []uint32
	const programs = 12
	for i := range programs {
		ids = append(ids, c.create(uint64(i), rdmacm.PSTCP))
	}
	s, n := storage("198.18.0.1:7471")
	sent := 0
	resolve := func(id uint32) {
		c.do(rdmacm.CmdResolveAddr, rdmacm.ResolveAddr{ID: id, TimeoutMS: 15000, DstSize: n, DstAddr: s})
		sent++
	}
	for i, id := range ids { // the NIC resolves its own address at once
		resolve(id)
		if e, _ := c.pushed(0); e.Event != rdmacm.EventAddrResolved || e.UID != uint64(i) || e.ID != id || e.Status != 0 {
			t.Fatalf("event %+v", e)
		}
	}
	for sent < rdmacm.EventPlaces+programs {
		i := sent % programs
		c.destroy(ids[i])
		ids[i] = c.create(uint64(i), rdmacm.PSTCP)
		resolve(ids[i])
	}
	for k := programs; k < rdmacm.EventPlaces; k++ {
		if e, _ := c.pushed(0); e.UID != uint64(k%programs) {
			t.Fatalf("event %d is %+v", k, e)
		}
	}
	if e, ok := c.pushed(unix.MSG_DONTWAIT); ok {
		t.Fatalf("an event without a place: %+v", e)
	}
	for i, id := range ids {
		if n := c.destroy(id); i == 0 && n != 0 { // its event waits in the daemon
			t.Errorf("%d events are reported that are not there", n)
		}
	}
	id := c.create(99, rdmacm.PSTCP)
	resolve(id)
	c.do(rdmacm.ExtBell, rdmacm.Bell{Taken: 1 << 31})
	if e, _ := c.pushed(0); e.UID != 99 {
		t.Errorf("event %+v", e)
	}
	if n := c.destroy(id); n != 1 {
		t.Errorf("%d events are reported", n)
	}
	c.refuse(unix.EINVAL, rdmacm.ExtBell, 0, uint32(0))
}

// TestHelloFlags: unknown flags are refused.
func TestHelloFlags(t *testing.T) {
	conn, err := uverbs.Dial(newHost(t, t.TempDir(), 0).cfg.Path)
	must(t, err)
	c := &client{t: t, conn: conn, bell: -1}
	defer c.close()
	c.refuse(unix.EINVAL, rdmacm.ExtHello, uverbs.Size[rdmacm.HelloResp](), rdmacm.Hello{Version: rdmacm.ExtVersion, Flags: 2})
}
