package ucma

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// text returns the private data of an event, without padding.
func text(p *rdmacm.ConnParam) string {
	return strings.TrimRight(string(p.PrivateData[:p.PrivateDataLen]), "\x00")
}

// TestConnection follows a connection from its first to its last event, with both address families.
func TestConnection(t *testing.T) {
	for _, addrs := range [][2]string{{"198.18.0.2:7471", "198.18.0.2:7471"}, {"[::]:7471", "[fd00::2]:7471"}} {
		hosts := lab(t)
		c, s := open(t, hosts[0]), open(t, hosts[1])
		l := s.listenOn(11, rdmacm.PSTCP, addrs[0], 3)
		id := c.routeTo(21, rdmacm.PSTCP, addrs[1])
		c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "hello")})

		e := s.next(rdmacm.EventConnectRequest)
		p := connOf(t, &e)
		if e.UID != 11 || e.ID == l || text(&p) != "hello" || p.QPNum != 0x111 || p.ResponderResources != 2 ||
			p.InitiatorDepth != 3 || p.RetryCount != 7 || p.RNRRetryCount != 6 || p.PrivateDataLen != 56 {
			t.Errorf("request %+v", p)
		}
		req := e.ID
		sRTR := ask[rdmacm.QPAttr](s, rdmacm.CmdInitQPAttr, rdmacm.InitQPAttr{ID: req, QPState: uint32(qp.RTR)})
		sRTS := ask[rdmacm.QPAttr](s, rdmacm.CmdInitQPAttr, rdmacm.InitQPAttr{ID: req, QPState: uint32(qp.RTS)})
		s.do(rdmacm.CmdAccept, rdmacm.Accept{UID: 12, ID: req, ConnParam: param(0x222, "welcome")})

		e = c.next(rdmacm.EventConnectResponse)
		p = connOf(t, &e)
		if e.UID != 21 || e.ID != id || text(&p) != "welcome" || p.QPNum != 0x222 {
			t.Errorf("response %+v", p)
		}
		cRTR := ask[rdmacm.QPAttr](c, rdmacm.CmdInitQPAttr, rdmacm.InitQPAttr{ID: id, QPState: uint32(qp.RTR)})
		cRTS := ask[rdmacm.QPAttr](c, rdmacm.CmdInitQPAttr, rdmacm.InitQPAttr{ID: id, QPState: uint32(qp.RTS)})
		if cRTR.DestQPNum != 0x222 || sRTR.DestQPNum != 0x111 || cRTR.RQPSN != sRTS.SQPSN || sRTR.RQPSN != cRTS.SQPSN ||
			cRTR.PathMTU != 3 || sRTR.PathMTU != 3 || cRTS.RNRRetry != 6 || cRTS.MaxRdAtomic != 3 || sRTR.MaxDestRdAtomic != 2 {
			t.Errorf("queue pair attributes: client %+v %+v, server %+v %+v", cRTR, cRTS, sRTR, sRTS)
		}
		if q := ask[rdmacm.QueryAddrResp](c, rdmacm.CmdQuery, rdmacm.Query{ID: id, Option: rdmacm.QueryAddr}); q.NodeGUID != [8]byte{0, 0, 0, 0xff, 0xfe, 0, 0, 1} || q.IBDevIndex != noIndex {
			t.Errorf("node GUID %x, index %d", q.NodeGUID, q.IBDevIndex)
		}
		c.do(rdmacm.CmdAccept, rdmacm.Accept{ID: id})
		if e := s.next(rdmacm.EventEstablished); e.UID != 12 || e.ID != req {
			t.Errorf("established: %+v", e)
		}

		c.do(rdmacm.CmdDisconnect, rdmacm.Disconnect{ID: id})
		s.next(rdmacm.EventDisconnected)
		s.do(rdmacm.CmdDisconnect, rdmacm.Disconnect{ID: req})
		c.next(rdmacm.EventDisconnected)
		if n := c.destroy(id); n != 4 {
			t.Errorf("%d events of the client's identifier", n)
		}
		if n, m := s.destroy(req), s.destroy(l); n != 2 || m != 1 {
			t.Errorf("%d events of the request, %d of the listener", n, m)
		}
		c.quiet()
		s.quiet()
	}
}

// TestLaterAddress listens on all IPv4 addresses of a NIC before the NIC has one.
func TestLaterAddress(t *testing.T) {
	dir := t.TempDir()
	a, b := newHost(t, dir, 0), newHost(t, dir, 1)
	addrs := func(list ...string) {
		t.Helper()
		var p []netip.Prefix
		for _, a := range list {
			p = append(p, netip.MustParsePrefix(a))
		}
		must(t, b.nics[0].do(func(now mono.Time, core *rocev2.NIC) error { return core.SetAddrs(now, p, nil) }))
	}
	addrs("fd00::2/64")
	c, s := open(t, a.cfg.Path), open(t, b.cfg.Path)
	s.listenOn(11, rdmacm.PSTCP, "0.0.0.0:7471", 3)
	addrs("fd00::2/64", "198.18.0.2/24")
	id := c.routeTo(21, rdmacm.PSTCP, "198.18.0.2:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "hello")})
	s.next(rdmacm.EventConnectRequest)
}

// TestMTUs: a request with a larger path MTU than the passive side's link permits is refused with that reason. It is
// counted and not reported to the listening program.
func TestMTUs(t *testing.T) {
	dir := t.TempDir()
	a, b := newHost(t, dir, 0), newHost(t, dir, 1)
	mtu := func(n int) {
		t.Helper()
		must(t, a.nics[0].do(func(now mono.Time, core *rocev2.NIC) error { return core.SetLink(now, true, n) }))
	}
	c, s := open(t, a.cfg.Path), open(t, b.cfg.Path)
	s.listenOn(11, rdmacm.PSTCP, "0.0.0.0:7471", 3)
	mtu(9000)
	id := c.routeTo(21, rdmacm.PSTCP, "198.18.0.2:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "large")})
	if e := c.next(rdmacm.EventRejected); e.Status != uint32(mad.ReasonInvalidMTU) {
		t.Errorf("status %d", e.Status)
	}
	counters := map[string]uint64{}
	must(t, b.nics[0].do(func(_ mono.Time, core *rocev2.NIC) error {
		for _, c := range core.CounterSnapshot() {
			counters[c.Name] = c.Value
		}
		return nil
	}))
	if counters["cm_rx_msgs_req"] != 1 || counters["cm_tx_msgs_rej"] != 1 || counters["cm_invalid_mtu"] != 1 {
		t.Errorf("counters %v", counters)
	}
	mtu(1500)
	id = c.routeTo(22, rdmacm.PSTCP, "198.18.0.2:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x112, "fits")})
	e := s.next(rdmacm.EventConnectRequest)
	if p := connOf(t, &e); text(&p) != "fits" {
		t.Errorf("request %q", text(&p))
	}
}

func TestRejected(t *testing.T) {
	hosts := lab(t)
	c, s := open(t, hosts[0]), open(t, hosts[1])
	s.listenOn(1, rdmacm.PSTCP, "0.0.0.0:7471", 3)
	id := c.routeTo(2, rdmacm.PSTCP, "198.18.0.2:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "")})
	r := rdmacm.Reject{ID: s.next(rdmacm.EventConnectRequest).ID}
	r.PrivateDataLen = uint8(copy(r.PrivateData[:], "no"))
	s.do(rdmacm.CmdReject, r)
	e := c.next(rdmacm.EventRejected)
	if p := connOf(t, &e); text(&p) != "no" || e.Status != uint32(mad.ReasonConsumerDefined) {
		t.Errorf("status %d, %+v", e.Status, p)
	}
	// Another port and another address family have no listener.
	for _, addr := range []string{"198.18.0.2:7472", "[fd00::2]:7471"} {
		id = c.routeTo(3, rdmacm.PSTCP, addr)
		c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x112, "")})
		if e := c.next(rdmacm.EventRejected); e.Status != uint32(mad.ReasonInvalidServiceID) {
			t.Errorf("%s: status %d", addr, e.Status)
		}
	}
}

func TestDatagrams(t *testing.T) {
	hosts := lab(t)
	c, s := open(t, hosts[0]), open(t, hosts[1])
	s.listenOn(1, rdmacm.PSUDP, "0.0.0.0:7174", 3)
	id := c.routeTo(2, rdmacm.PSUDP, "198.18.0.2:7174")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "ping")})
	e := s.next(rdmacm.EventConnectRequest)
	s.do(rdmacm.CmdAccept, rdmacm.Accept{UID: 5, ID: e.ID, ConnParam: param(0x222, "pong")})
	e = c.next(rdmacm.EventEstablished)
	var p rdmacm.UDParam
	if _, err := binary.Decode(e.Param[:], native, &p); err != nil {
		t.Fatal(err)
	}
	if p.QPNum != 0x222 || p.QKey != defaultQKey || p.AHAttr.GRH.DGID[15] != 2 || string(p.PrivateData[:4]) != "pong" {
		t.Errorf("%+v", p)
	}
}

// TestOwners checks that a context cannot use another context's identifiers, and that its identifiers end with it.
func TestOwners(t *testing.T) {
	hosts := lab(t)
	c, s, other := open(t, hosts[0]), open(t, hosts[1]), open(t, hosts[1])
	l := s.listenOn(1, rdmacm.PSTCP, "0.0.0.0:7471", 1)
	other.refuse(unix.ENOENT, rdmacm.CmdDestroyID, 4, rdmacm.DestroyID{ID: l})
	other.refuse(unix.EBADF, rdmacm.CmdMigrateID, 4, rdmacm.MigrateID{ID: l})
	if _, _, err := other.raw(rdmacm.CmdMigrateID, 4, rdmacm.MigrateID{ID: l}, []int{other.bell}); err != unix.ENOENT {
		t.Errorf("migrated another user's identifier: %v", err)
	}
	id := other.create(2, rdmacm.PSTCP)
	a, n := storage("198.18.0.2:7471")
	other.refuse(unix.EADDRNOTAVAIL, rdmacm.CmdBind, 0, rdmacm.Bind{ID: id, AddrSize: n, Addr: a})

	x := c.routeTo(3, rdmacm.PSTCP, "198.18.0.2:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: x, ConnParam: param(0x111, "")})
	s.next(rdmacm.EventConnectRequest)
	s.close() // the request is refused, and the port becomes free
	c.next(rdmacm.EventRejected)
	for {
		if _, _, err := other.raw(rdmacm.CmdBind, 0, rdmacm.Bind{ID: id, AddrSize: n, Addr: a}, nil); err == nil {
			break
		}
	}
}

// TestMigrate moves a listener with a request that waits for the program.
func TestMigrate(t *testing.T) {
	hosts := lab(t)
	c, s, to := open(t, hosts[0]), open(t, hosts[1]), open(t, hosts[1])
	l := s.listenOn(1, rdmacm.PSTCP, "0.0.0.0:7471", 2)
	id := c.routeTo(3, rdmacm.PSTCP, "198.18.0.2:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "")})
	var b [1]byte
	if n, err := unix.Read(s.bell, b[:]); n != 1 {
		t.Fatal(n, err)
	}
	if _, _, err := to.raw(rdmacm.CmdMigrateID, 4, rdmacm.MigrateID{ID: l}, []int{s.bell}); err != nil {
		t.Fatal(err)
	}
	s.refuse(unix.EAGAIN, rdmacm.CmdGetEvent, uverbs.Size[rdmacm.EventResp](), uint64(0))
	e := to.next(rdmacm.EventConnectRequest)
	to.do(rdmacm.CmdAccept, rdmacm.Accept{UID: 9, ID: e.ID, ConnParam: param(0x222, "")})
	c.next(rdmacm.EventConnectResponse)
	if n := to.destroy(l); n != 1 {
		t.Errorf("%d events", n)
	}
}

// openAs opens a device for another user, whose quota it then uses.
func openAs(t *testing.T, s *Server, uid uint32) *client {
	t.Helper()
	c := open(t, s.cfg.Path)
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.ctxs {
		if d.cred.Uid == 0 {
			d.cred.Uid, d.account = uid, s.cfg.Quota.Open(uid)
		}
	}
	return c
}

// TestMigrateQuota moves identifiers between two users who cooperate. Neither has more of them than the quota allows.
func TestMigrateQuota(t *testing.T) {
	var each quota.Amounts
	each[quota.CMIDs] = 2
	srv := newHostWith(t, t.TempDir(), 0, quota.New(each, quota.Amounts{}, nil))
	a, b := openAs(t, srv, 1001), openAs(t, srv, 1002)
	migrate := func(id uint32) error {
		_, _, err := a.raw(rdmacm.CmdMigrateID, 4, rdmacm.MigrateID{ID: id}, []int{b.bell})
		return err
	}
	mine := a.create(1, rdmacm.PSTCP)
	first, second := b.create(2, rdmacm.PSTCP), b.create(3, rdmacm.PSTCP)
	if err := migrate(first); err != nil {
		t.Error(err)
	}
	if err := migrate(second); err != unix.ENOMEM {
		t.Errorf("one too many: %v", err)
	}
	b.destroy(second)
	a.destroy(mine)
	a.destroy(first)
	for _, u := range srv.cfg.Quota.Usage() {
		if u.UID != 0 && u.Used[quota.CMIDs] != 0 {
			t.Errorf("user %d still has %d", u.UID, u.Used[quota.CMIDs])
		}
	}
}

// TestEndingConnections destroys the identifier of a connection. The connection counts for the user until the end of
// timewait, even if the user opens another device.
func TestEndingConnections(t *testing.T) {
	var each quota.Amounts
	each[quota.CMEnding] = 1
	srv := newHostWith(t, t.TempDir(), 0, quota.New(each, quota.Amounts{}, nil))
	c := openAs(t, srv, 1001)
	s := open(t, srv.cfg.Path)
	s.listenOn(1, rdmacm.PSTCP, "198.18.0.1:7471", 1)
	id := c.routeTo(2, rdmacm.PSTCP, "198.18.0.1:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "")})
	e := s.next(rdmacm.EventConnectRequest)
	s.do(rdmacm.CmdAccept, rdmacm.Accept{UID: 3, ID: e.ID, ConnParam: param(0x222, "")})
	c.next(rdmacm.EventConnectResponse)
	c.do(rdmacm.CmdAccept, rdmacm.Accept{ID: id})
	s.next(rdmacm.EventEstablished)
	c.destroy(id)
	more := rdmacm.CreateID{PS: rdmacm.PSTCP}
	c.refuse(unix.ENOMEM, rdmacm.CmdCreateID, 4, more)
	c.close()
	c = openAs(t, srv, 1001)
	c.refuse(unix.ENOMEM, rdmacm.CmdCreateID, 4, more)
	s.next(rdmacm.EventDisconnected)
	s.do(rdmacm.CmdDisconnect, rdmacm.Disconnect{ID: e.ID}) // the answer, for which the connection waits
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, _, err := c.raw(rdmacm.CmdCreateID, 4, more, nil); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the connection counts for ever")
		}
	}
}

func TestErrors(t *testing.T) {
	c := open(t, lab(t)[0])
	id := c.create(1, rdmacm.PSTCP)
	c.refuse(unix.ENOSYS, 99, 0, uint32(0))
	c.refuse(unix.EINVAL, rdmacm.CmdListen, 0, uint16(0))
	c.refuse(unix.ENOSPC, rdmacm.CmdCreateID, 0, rdmacm.CreateID{PS: rdmacm.PSTCP})
	c.refuse(unix.EINVAL, rdmacm.CmdCreateID, 4, rdmacm.CreateID{PS: 7})
	c.refuse(unix.EINVAL, rdmacm.CmdJoinMcast, 4, uint64(0))
	c.refuse(unix.EINVAL, rdmacm.CmdConnect, 0, rdmacm.Connect{ID: id, ConnParam: param(2, "")})
	c.refuse(unix.EINVAL, rdmacm.CmdDisconnect, 0, rdmacm.Disconnect{ID: id})
	c.refuse(unix.ENOSYS, rdmacm.CmdQuery, 400, rdmacm.Query{ID: id, Option: 9})
	s, n := storage("192.0.2.1:1")
	c.refuse(unix.EADDRNOTAVAIL, rdmacm.CmdBind, 0, rdmacm.Bind{ID: id, AddrSize: n, Addr: s})
	c.refuse(unix.ENETUNREACH, rdmacm.CmdResolveAddr, 0, rdmacm.ResolveAddr{ID: id, TimeoutMS: 10, DstSize: n, DstAddr: s})
	s, n = storage("198.18.0.77:1")
	id = c.create(2, rdmacm.PSTCP)
	c.do(rdmacm.CmdResolveAddr, rdmacm.ResolveAddr{ID: id, TimeoutMS: 10, DstSize: n, DstAddr: s})
	if e := c.next(rdmacm.EventAddrError); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("status %d", int32(e.Status))
	}
	for range 14 {
		c.create(3, rdmacm.PSUDP)
	}
	c.refuse(unix.ENOMEM, rdmacm.CmdCreateID, 4, rdmacm.CreateID{PS: rdmacm.PSTCP})
}

// TestReuseAddr: identifiers share a port while none of them listens. A listener owns its port, so another user
// cannot steal connections with a bind to one of its addresses (Linux, rdma_listen).
func TestReuseAddr(t *testing.T) {
	dirs := lab(t)
	victim, other := open(t, dirs[0]), open(t, dirs[0])
	reuse := func(c *client) uint32 {
		id := c.create(1, rdmacm.PSTCP)
		c.do(rdmacm.CmdSetOption, struct {
			rdmacm.SetOption
			Value uint32
		}{rdmacm.SetOption{ID: id, Level: rdmacm.OptionID, OptName: rdmacm.OptionReuseAddr, OptLen: 4}, 1})
		return id
	}
	any, n := storage("0.0.0.0:7471")
	one, m := storage("198.18.0.1:7471")
	a, b := reuse(victim), reuse(other)
	victim.do(rdmacm.CmdBind, rdmacm.Bind{ID: a, AddrSize: n, Addr: any})
	other.do(rdmacm.CmdBind, rdmacm.Bind{ID: b, AddrSize: m, Addr: one})
	victim.refuse(unix.EADDRNOTAVAIL, rdmacm.CmdListen, 0, rdmacm.Listen{ID: a, Backlog: 1}) // the port is shared
	other.destroy(b)
	victim.do(rdmacm.CmdListen, rdmacm.Listen{ID: a, Backlog: 1})
	other.refuse(unix.EADDRNOTAVAIL, rdmacm.CmdBind, 0, rdmacm.Bind{ID: reuse(other), AddrSize: m, Addr: one})
}

// TestBacklog checks that the backlog counts unread requests: programs that read requests and answer them later get more
// than the backlog.
func TestBacklog(t *testing.T) {
	for _, ps := range []rdmacm.PortSpace{rdmacm.PSTCP, rdmacm.PSUDP} {
		hosts := lab(t)
		c, s := open(t, hosts[0]), open(t, hosts[1])
		s.listenOn(1, ps, "0.0.0.0:7471", 2)
		for i := range uint32(6) {
			id := c.routeTo(uint64(10+i), ps, "198.18.0.2:7471")
			c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x100+i, "")})
			s.next(rdmacm.EventConnectRequest)
		}
	}
}

// TestFailedAccept checks that a failed rdma_accept() rejects the request, so that the peer need not wait for a timeout.
func TestFailedAccept(t *testing.T) {
	hosts := lab(t)
	c, s := open(t, hosts[0]), open(t, hosts[1])
	s.listenOn(1, rdmacm.PSTCP, "0.0.0.0:7471", 2)
	id := c.routeTo(2, rdmacm.PSTCP, "198.18.0.2:7471")
	c.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "")})
	r := rdmacm.Accept{UID: 5, ID: s.next(rdmacm.EventConnectRequest).ID, ConnParam: param(1<<24, "")}
	s.refuse(unix.EINVAL, rdmacm.CmdAccept, 0, r) // a queue pair number of 25 bits
	if e := c.next(rdmacm.EventRejected); e.Status != uint32(mad.ReasonConsumerDefined) {
		t.Errorf("status %d", e.Status)
	}
}
