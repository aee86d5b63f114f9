package ucma

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/rocev2"
)

// TestLoopback connects a NIC to itself over loopback addresses.
func TestLoopback(t *testing.T) {
	for _, c := range []struct{ listen, dial, own string }{
		{"127.0.0.1:7471", "127.0.0.1:7471", "198.18.0.1"},
		{"[::1]:7471", "[::1]:7471", "fd00::1"},
		{"127.0.0.1:7471", "198.18.0.1:7471", "198.18.0.1"},
		{"0.0.0.0:7471", "127.0.0.2:7471", "198.18.0.1"},
	} {
		hosts := lab(t)
		a := open(t, hosts[0])
		l := a.listenOn(11, rdmacm.PSTCP, c.listen, 3)
		if q := ask[rdmacm.QueryAddrResp](a, rdmacm.CmdQuery, rdmacm.Query{ID: l, Option: rdmacm.QueryAddr}); q.NodeGUID == [8]byte{} && c.listen[0] != '0' {
			t.Errorf("%s is bound to no NIC", c.listen)
		}
		id := a.routeTo(21, rdmacm.PSTCP, c.dial)
		a.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "hello")})
		req := a.next(rdmacm.EventConnectRequest).ID
		q := ask[rdmacm.QueryAddrResp](a, rdmacm.CmdQuery, rdmacm.Query{ID: req, Option: rdmacm.QueryAddr})
		src, err := parseSockaddr(q.SrcAddr[:q.SrcSize])
		must(t, err)
		if src.Addr() != netip.MustParseAddr(c.own) {
			t.Errorf("%s to %s: accepted at %v", c.dial, c.listen, src)
		}
	}
}

// TestLoopbackIsPrivate: other hosts do not reach a listener on a loopback address, and a loopback address does not
// reach other hosts.
func TestLoopbackIsPrivate(t *testing.T) {
	hosts := lab(t)
	a, b := open(t, hosts[0]), open(t, hosts[1])
	a.listenOn(11, rdmacm.PSTCP, "127.0.0.1:7471", 3)
	id := b.routeTo(21, rdmacm.PSTCP, "198.18.0.1:7471")
	b.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "hello")})
	b.next(rdmacm.EventRejected)
	a.quiet()
	out := a.create(31, rdmacm.PSTCP)
	a.bindTo(out, "127.0.0.1:0")
	s, n := storage("198.18.0.2:7471")
	a.refuse(unix.ENETUNREACH, rdmacm.CmdResolveAddr, 0, rdmacm.ResolveAddr{ID: out, TimeoutMS: 100, DstSize: n, DstAddr: s})
}

// TestLoopbackNICs connects NICs of two daemons whose own addresses are loopback addresses: each address means its NIC,
// and 127.0.0.1 the program's own.
func TestLoopbackNICs(t *testing.T) {
	dir := t.TempDir()
	var hosts [2]*client
	for i, address := range [2]string{"127.0.0.2/8", "127.0.0.3/8"} {
		cfg := rocev2.Config{Sockets: true, Addrs: []netip.Prefix{netip.MustParsePrefix(address)}}
		hosts[i] = open(t, newHostAt(t, dir, i, testQuota(), cfg).cfg.Path)
	}
	a, b := hosts[0], hosts[1]
	a.listenOn(11, rdmacm.PSTCP, "127.0.0.2:7471", 3)
	b.listenOn(11, rdmacm.PSTCP, "127.0.0.3:7471", 3)
	for i, c := range []struct {
		source, dial string
		at           *client
	}{
		{"", "127.0.0.2:7471", a}, {"", "127.0.0.3:7471", b}, {"127.0.0.2:0", "127.0.0.3:7471", b},
		{"", "127.0.0.1:7471", a}, {"127.0.0.2:0", "127.0.0.2:7471", a},
	} {
		id := a.create(uint64(21+i), rdmacm.PSTCP)
		if c.source != "" {
			a.bindTo(id, c.source)
		}
		a.resolve(id, c.dial)
		a.do(rdmacm.CmdConnect, rdmacm.Connect{ID: id, ConnParam: param(0x111, "hello")})
		c.at.next(rdmacm.EventConnectRequest)
	}
}
