package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/lab/namespace"
	"roced.io/roced/internal/lab/netlab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is the timeout of the tests. Only a failing test waits so long.
const limit = 30 * time.Second

// recorder is a handler that records the last report of each kind.
type recorder struct {
	t     testing.TB
	mu    sync.Mutex
	state State
	way   map[netip.Addr]string // MAC or "none"
	uses  []Query
}

func (r *recorder) Changed(s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = s
}

func (r *recorder) Resolved(dst netip.Addr, mac inet.MAC) {
	r.set(dst, net.HardwareAddr(mac[:]).String())
}
func (r *recorder) Unreachable(dst netip.Addr) { r.set(dst, "none") }
func (r *recorder) Failed(err error)           { r.t.Logf("failed: %v", err) }

func (r *recorder) set(dst netip.Addr, way string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.way[dst] = way
}

func (r *recorder) Destinations() []Query {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.uses)
}

// world is a veth between two namespaces with a follower of the first end.
type world struct {
	*netlab.Bed
	*recorder
	f *Follower
}

func newWorld(t testing.TB) *world {
	t.Helper()
	b, err := netlab.NewDirect([2]bool{true, true})
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("needs CAP_NET_ADMIN: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	f, err := Open(Config{Interface: netlab.Veth, Netns: b.NS[0].Path()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return &world{Bed: b, recorder: &recorder{t: t, way: map[netip.Addr]string{}, state: f.State()}, f: f}
}

// eventually waits until ok holds for the recorded reports.
func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(time.Millisecond) {
		w.mu.Lock()
		done := ok()
		w.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("waited in vain for %s; state %+v, ways %v", what, w.state, w.way)
		}
	}
}

// resolves repeats a query, as a NIC does, until the result is as expected.
func (w *world) resolves(q Query, way string) {
	w.t.Helper()
	next := time.Now()
	w.eventually(fmt.Sprintf("%v by %s", q.Dst, way), func() bool {
		if now := time.Now(); now.After(next) {
			w.f.Ask(q)
			next = now.Add(100 * time.Millisecond)
		}
		return w.way[q.Dst] == way
	})
}

// use sets the queries whose results are in use.
func (w *world) use(queries ...Query) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uses = queries
}

// on runs f on the interface of a namespace.
func (w *world) on(i int, f func(netlink.Link) error) {
	w.t.Helper()
	err := w.NS[i].Do(func() error {
		l, err := netlink.LinkByName(netlab.Veth)
		if err != nil {
			return err
		}
		return f(l)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) mac(i int) (mac string) {
	w.t.Helper()
	w.on(i, func(l netlink.Link) error {
		mac = l.Attrs().HardwareAddr.String()
		return nil
	})
	return mac
}

func query(dst, src string) Query {
	return Query{Dst: netip.MustParseAddr(dst), Src: netip.MustParseAddr(src)}
}

func (w *world) route(i int, dst, gw string) {
	w.t.Helper()
	_, to, err := net.ParseCIDR(dst)
	if err != nil {
		w.t.Fatal(err)
	}
	w.on(i, func(l netlink.Link) error {
		return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: to, Gw: net.ParseIP(gw)})
	})
}

// neighbour adds a permanent entry to the neighbour table.
func (w *world) neighbour(i int, addr, mac string) {
	w.t.Helper()
	hw, err := net.ParseMAC(mac)
	if err != nil {
		w.t.Fatal(err)
	}
	w.on(i, func(l netlink.Link) error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP(addr), HardwareAddr: hw,
			State: unix.NUD_PERMANENT})
	})
}

func TestStateIsFollowed(t *testing.T) {
	w := newWorld(t)
	first := w.state
	if first.Index == 0 || first.MTU != namespace.MTU || !first.Up || len(first.Addrs) < 3 {
		t.Fatalf("first state %+v", first)
	}
	w.f.Run(w.recorder)
	has := func(list []netip.Prefix, text string) bool { return slices.Contains(list, netip.MustParsePrefix(text)) }
	addr, err := netlink.ParseAddr("198.18.7.1/24")
	if err != nil {
		t.Fatal(err)
	}
	w.on(0, func(l netlink.Link) error { return netlink.AddrAdd(l, addr) })
	w.eventually("the address and its route", func() bool {
		return has(w.state.Addrs, "198.18.7.1/24") && has(w.state.Routes, "198.18.7.0/24")
	})
	w.on(0, func(l netlink.Link) error { return netlink.AddrDel(l, addr) })
	w.eventually("neither", func() bool { return !has(w.state.Addrs, "198.18.7.1/24") && !has(w.state.Routes, "198.18.7.0/24") })
	w.route(0, "0.0.0.0/0", "198.18.0.2")
	w.eventually("the default route", func() bool { return has(w.state.Routes, "0.0.0.0/0") })
	w.on(0, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 1500) })
	w.eventually("the MTU", func() bool { return w.state.MTU == 1500 })
	mac := inet.MAC{2, 0, 0, 0, 7, 7}
	w.on(0, func(l netlink.Link) error { return netlink.LinkSetHardwareAddr(l, mac[:]) })
	w.eventually("the MAC", func() bool { return w.state.MAC == mac })
	w.on(1, netlink.LinkSetDown)
	w.eventually("no carrier", func() bool { return !w.state.Up })
	w.on(1, netlink.LinkSetUp)
	w.eventually("the carrier", func() bool { return w.state.Up })
	w.on(0, netlink.LinkDel)
	w.eventually("its end", func() bool { return w.state.Index == 0 && w.state.MAC == mac && len(w.state.Addrs) == 0 })
	if err := w.Wire(); err != nil {
		t.Fatal(err)
	}
	w.eventually("a new one", func() bool { return w.state.Index != 0 && w.state.Up && has(w.state.Addrs, "fd00::1/64") })
}

// TestTentativeAddresses checks that tentative addresses are not reported before duplicate address detection has completed.
func TestTentativeAddresses(t *testing.T) {
	w := newWorld(t)
	w.f.Run(w.recorder)
	own, err := netlink.ParseAddr("fd00::2/64") // the peer has the same address
	if err != nil {
		t.Fatal(err)
	}
	w.on(0, func(l netlink.Link) error { return netlink.AddrAdd(l, own) })
	failed := func() (failed bool) {
		w.on(0, func(l netlink.Link) error {
			list, err := netlink.AddrList(l, netlink.FAMILY_V6)
			for _, a := range list {
				failed = failed || a.IP.Equal(own.IP) && a.Flags&unix.IFA_F_DADFAILED != 0
			}
			return err
		})
		return failed
	}
	w.eventually("a duplicate address", failed)
	w.on(0, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 8000) })
	w.eventually("a change after that", func() bool { return w.state.MTU == 8000 })
	if slices.Contains(w.state.Addrs, netip.MustParsePrefix("fd00::2/64")) {
		t.Errorf("a duplicate address is used: %v", w.state.Addrs)
	}
}

func TestNeighboursAreResolved(t *testing.T) {
	w := newWorld(t)
	// Without a route, the kernel assumes that an address is a neighbour and tries to resolve it.
	if hop, err := w.f.route(query("203.0.113.1", "198.18.0.1")); !errors.Is(err, errNoRoute) {
		t.Errorf("without a route over %v, %v", hop, err)
	}
	w.f.Run(w.recorder)
	peer := w.mac(1)
	w.resolves(query("198.18.0.2", "198.18.0.1"), peer)
	w.resolves(query("fd00::2", "fd00::1"), peer)
	w.resolves(query("198.18.0.99", "198.18.0.1"), "none") // after the kernel's attempt
	w.resolves(query("203.0.113.1", "198.18.0.1"), "none") // no route
	w.resolves(query("198.18.0.1", "198.18.0.1"), "none")  // our own address: not over the interface
	w.resolves(query("198.18.0.2", "198.18.9.9"), "none")  // from an address that we do not have
	w.resolves(query("198.18.0.2", "198.18.0.1"), peer)
	w.route(0, "203.0.113.0/24", "198.18.0.2")
	w.resolves(query("203.0.113.1", "198.18.0.1"), peer) // over a gateway
	w.resolves(Query{Dst: linkLocalOf(t, peer), Src: w.linkLocal()}, peer)
}

// linkLocal waits for the link-local address of the interface, which the kernel adds last.
func (w *world) linkLocal() (own netip.Addr) {
	w.t.Helper()
	w.eventually("a link-local address", func() bool {
		i := slices.IndexFunc(w.state.Addrs, func(a netip.Prefix) bool { return a.Addr().IsLinkLocalUnicast() })
		if i >= 0 {
			own = w.state.Addrs[i].Addr()
		}
		return i >= 0
	})
	return own
}

// linkLocalOf returns the address that the kernel derives from a MAC (RFC 4291, appendix A).
func linkLocalOf(t *testing.T, mac string) netip.Addr {
	m, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// TestChangesAreTold checks that the follower reports changes without a query.
func TestChangesAreTold(t *testing.T) {
	w := newWorld(t)
	direct, far := query("198.18.0.2", "198.18.0.1"), query("203.0.113.1", "198.18.0.1")
	w.use(direct, far)
	w.route(0, far.Dst.String()+"/32", "198.18.0.2")
	w.f.Run(w.recorder)
	w.linkLocal() // no changes without the test from now on
	peer := w.mac(1)
	w.resolves(direct, peer)
	w.eventually("the way over the gateway", func() bool { return w.way[far.Dst] == peer })
	const a, b = "02:00:00:00:00:0a", "02:00:00:00:00:0b"
	w.neighbour(0, "198.18.0.2", a)
	w.eventually("the other MAC of the neighbour", func() bool { return w.way[direct.Dst] == a && w.way[far.Dst] == a })
	w.neighbour(0, "198.18.0.3", b)
	w.route(0, far.Dst.String()+"/32", "198.18.0.3")
	w.eventually("the other gateway", func() bool { return w.way[far.Dst] == b && w.way[direct.Dst] == a })
	w.on(0, func(l netlink.Link) error {
		return netlink.RouteDel(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: &net.IPNet{IP: far.Dst.AsSlice(), Mask: net.CIDRMask(32, 32)}})
	})
	w.eventually("no route", func() bool { return w.way[far.Dst] == "none" })
	forget := func(i int, addr netip.Addr) {
		w.on(i, func(l netlink.Link) error {
			return netlink.NeighDel(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: addr.AsSlice()})
		})
	}
	forget(1, direct.Src) // otherwise the peer would eventually resolve our address, and so create an entry
	forget(0, direct.Dst)
	w.eventually("the MAC that the kernel finds out", func() bool { return w.way[direct.Dst] == peer })
	w.on(0, netlink.LinkSetDown)
	w.eventually("nothing while it is down", func() bool { return w.way[direct.Dst] == "none" })
}

// TestLostNotifications overruns the socket. The follower then reloads all tables.
func TestLostNotifications(t *testing.T) {
	w := newWorld(t)
	q := query("198.18.0.2", "198.18.0.1")
	w.use(q)
	if err := w.f.events.SetReceiveBufferSize(1, false); err != nil {
		t.Fatal(err)
	}
	const first, last = "02:00:00:00:01:01", "02:00:00:00:02:02"
	w.neighbour(0, "198.18.0.2", first)
	if err := w.f.apply(w.recorder, change{lost: true}); err != nil || w.way[q.Dst] != first {
		t.Fatalf("%v, %v", err, w.way)
	}
	for i := range 100 {
		w.neighbour(0, fmt.Sprintf("198.18.0.%d", 100+i), first)
	}
	w.neighbour(0, "198.18.0.2", last)
	w.on(0, func(l netlink.Link) error { return netlink.LinkSetMTU(l, 2000) })
	lost := false
	for range 200 {
		if _, err := w.f.next(); errors.Is(err, unix.ENOBUFS) {
			lost = true
			break
		}
	}
	if !lost {
		t.Fatal("no notification was lost")
	}
	if err := w.f.apply(w.recorder, change{lost: true}); err != nil || w.way[q.Dst] != last || w.state.MTU != 2000 {
		t.Errorf("%v, %v, %+v", err, w.way, w.state)
	}
}

func TestMerge(t *testing.T) {
	ev := func(n int) change { return change{neighs: make([]neighEvent, n)} }
	for _, c := range []struct {
		a, b, want change
	}{
		{change{}, change{}, change{}},
		{ev(1), ev(2), ev(3)},
		{change{state: true}, ev(2), change{state: true, neighs: make([]neighEvent, 2)}},
		{ev(2), change{lost: true}, change{state: true, lost: true}},
		{change{lost: true}, ev(1), change{state: true, lost: true}},
		{ev(maxPending), ev(1), change{state: true, lost: true}},
	} {
		got := c.a
		got.merge(c.b)
		if got.state != c.want.state || got.lost != c.want.lost || len(got.neighs) != len(c.want.neighs) {
			t.Errorf("%+v and %+v: %+v", c.a, c.b, got)
		}
		if got.empty() != (c.want.state == false && c.want.lost == false && len(c.want.neighs) == 0) {
			t.Errorf("%+v: empty %v", got, got.empty())
		}
	}
}

func TestFaultsOfConfig(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ iface, netns, want string }{
		{"nothing", w.NS[0].Path(), ErrNoInterface.Error()}, {"lo", w.NS[0].Path(), "not an Ethernet interface"},
		{netlab.Veth, "/nowhere", "/nowhere"},
	} {
		f, err := Open(Config{Interface: c.iface, Netns: c.netns})
		if err == nil {
			f.Close()
			t.Errorf("%+v: opened", c)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestRouteMTU: the MTU of a NIC on sockets is that of the smallest configured route. A route of a router advertisement has no
// effect, because any host of the link can send one. Other NICs have the MTU of the interface.
func TestRouteMTU(t *testing.T) {
	w := newWorld(t)
	mtu := func(routed bool) int {
		f, err := Open(Config{Interface: netlab.Veth, Netns: w.NS[0].Path(), Routed: routed})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return f.State().MTU
	}
	for _, c := range []struct {
		mtu      int
		protocol netlink.RouteProtocol
		want     int
	}{
		{0, unix.RTPROT_STATIC, namespace.MTU}, {1280, unix.RTPROT_RA, namespace.MTU}, {namespace.MTU + 1, unix.RTPROT_STATIC, namespace.MTU},
		{1400, unix.RTPROT_STATIC, 1400},
	} {
		w.on(0, func(l netlink.Link) error {
			_, dst, err := net.ParseCIDR("fd00:7::/64")
			if err != nil {
				return err
			}
			return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: dst, MTU: c.mtu, Protocol: c.protocol})
		})
		if routed, direct := mtu(true), mtu(false); routed != c.want || direct != namespace.MTU {
			t.Errorf("route %+v: MTU %d on sockets, %d on the interface", c, routed, direct)
		}
	}
}
