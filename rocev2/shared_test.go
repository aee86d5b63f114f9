package rocev2

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// prefixes parses a list.
func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// sharedConfig configures a NIC on an interface with two addresses, their prefixes and a default route.
func sharedConfig() Config {
	cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
	cfg.Shared, cfg.Routes = true, prefixes("10.0.0.0/24", "fd00::/64", "0.0.0.0/0", "::/0")
	return cfg
}

// questions returns all pending queries of n.
func questions(n *NIC) (out []string) {
	for q, ok := n.PollQuery(); ok; q, ok = n.PollQuery() {
		out = append(out, fmt.Sprintf("%v from %v", q.Dst.Addr(), q.Src.Addr()))
	}
	return out
}

// TestSharedIsSilent: a shared NIC leaves ARP, neighbour discovery and echo to the kernel. It sends no announcement,
// request or answer.
func TestSharedIsSilent(t *testing.T) {
	n := newNIC(t, sharedConfig())
	q := plug(t, n, 0x11, qp.RC, newScript(sends(7, 1, 10)...))
	connect(t, n, q, 1, "fd00::2", nil)
	n.sch.activate(q)
	for _, c := range controlExchanges {
		n.Receive(0, unhex(t, c.in), 0)
	}
	n.Receive(0, echo(false, 10), 0)
	n.Receive(0, echo(true, 10), 0)
	n.SetLink(0, false, 0)
	n.SetLink(0, true, 0)
	for now := mono.Time(0); now < 10e9; now += 10e6 {
		n.Advance(now)
		if out := transmit(n, now); len(out) != 0 {
			t.Fatalf("at %v it sends %x", now, out[0].b)
		}
	}
	if got := n.net.Counters.AddrConflicts; got != 0 {
		t.Errorf("%d address conflicts", got)
	}
}

// TestSharedResolution: a packet waits for the answer to its query, which the NIC repeats. It goes to the station of
// the answer.
func TestSharedResolution(t *testing.T) {
	n := newNIC(t, sharedConfig())
	s := newScript(sends(7, 1, 10)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "192.0.2.9", nil) // behind a gateway, which the kernel resolves
	n.sch.activate(q)
	const want = "192.0.2.9 from 10.0.0.1"
	if got := questions(n); len(got) != 1 || got[0] != want {
		t.Fatalf("asks %q, want %q", got, want)
	}
	n.Advance(mono.Time(stack.NeighFirst))
	if got := questions(n); len(got) != 1 || got[0] != want {
		t.Fatalf("asks %q the second time", got)
	}
	if out := transmit(n, 1); len(out) != 0 {
		t.Fatalf("sends %d frames to nobody", len(out))
	}
	n.Resolved(2, gid("192.0.2.8"), macB) // irrelevant
	n.Resolved(2, gid("192.0.2.9"), inet.MAC{1})
	if out := transmit(n, 2); len(out) != 0 {
		t.Fatal("takes the address of a group for a station")
	}
	n.Resolved(3, gid("192.0.2.9"), macB)
	out := transmit(n, 3)
	if len(out) != 1 || inet.MAC(out[0].b) != macB || inet.MAC(out[0].b[6:]) != macA {
		t.Fatalf("sends %v", out)
	}
	moved := inet.MAC{2, 0, 0, 0, 0, 0xc}
	n.Resolved(4, gid("192.0.2.9"), moved)
	s.out = append(s.out, sends(7, 2, 10)...)
	n.sch.activate(q)
	if out := transmit(n, 4); len(out) != 1 || inet.MAC(out[0].b) != moved {
		t.Fatalf("does not follow the station: %v", out)
	}
	if got := n.Destinations(); len(got) != 1 || got[0].Dst != gid("192.0.2.9") {
		t.Errorf("destinations %v", got)
	}
}

// TestSharedUnreachable: packets that wait for an answer are discarded when there is none. A later answer is
// effective.
func TestSharedUnreachable(t *testing.T) {
	n := newNIC(t, sharedConfig())
	s := newScript(sends(7, 1, 10, 20)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.2", nil)
	n.sch.activate(q)
	n.Unreachable(1, gid("10.0.0.2"))
	n.Unreachable(1, gid("10.0.0.3")) // irrelevant
	if out := transmit(n, 1); len(out) != 0 || counter(t, n, "tx_dropped_unreachable") == 0 {
		t.Fatalf("sends %d frames, %d dropped", len(out), counter(t, n, "tx_dropped_unreachable"))
	}
	questions(n)
	s.out = append(s.out, sends(7, 3, 10)...)
	n.sch.activate(q)
	later := mono.Time(2 * stack.NeighRetrans)
	transmit(n, later)
	if got := questions(n); len(got) != 1 {
		t.Errorf("asks %q when there is something to send again", got)
	}
	n.Resolved(later, gid("10.0.0.2"), macB)
	s.out = append(s.out, sends(7, 4, 10)...)
	n.sch.activate(q)
	if out := transmit(n, later); len(out) != 1 {
		t.Errorf("sends %d frames after the answer", len(out))
	}
}

// TestSharedQuestionsAreBounded: without PollQuery the number of queries stays bounded, and every destination has
// one.
func TestSharedQuestionsAreBounded(t *testing.T) {
	const addresses = 200
	n := newNIC(t, sharedConfig())
	for i := range addresses {
		if _, err := n.net.NewPath(0, AddressVector{DGID: gid(fmt.Sprintf("10.0.0.%d", i+2))}); err != nil {
			t.Fatal(err)
		}
	}
	for now := mono.Time(0); now < 3e9; now += 1e6 {
		n.Advance(now)
	}
	got := questions(n)
	if len(got) != stack.NeighLimit {
		t.Errorf("%d questions, want %d", len(got), stack.NeighLimit)
	}
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != addresses {
		t.Errorf("%d of %d addresses asked for", len(got), addresses)
	}
}

// TestSharedMACChanges: the interface gets another MAC, and existing paths send from it.
func TestSharedMACChanges(t *testing.T) {
	n := newNIC(t, sharedConfig())
	s := newScript(sends(7, 1, 10)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.2", &macB)
	n.sch.activate(q)
	moved := inet.MAC{2, 0, 0, 0, 0, 0xd}
	i := Interface{MAC: moved, Addrs: n.cfg.Addrs, Routes: n.cfg.Routes}
	if err := n.SetInterface(&i); err != nil {
		t.Fatal(err)
	}
	s.out = append(s.out, sends(7, 2, 10)...)
	n.sch.activate(q)
	out := transmit(n, 1)
	if len(out) == 0 || inet.MAC(out[len(out)-1].b[6:]) != moved || n.MAC() != moved {
		t.Errorf("sends %v", out)
	}
	i.MAC = inet.MAC{1}
	if err := n.SetInterface(&i); err == nil || n.MAC() != moved {
		t.Errorf("takes a group address: %v", err)
	}
}

// TestSharedSource: the source of a path over a default route is not a link-local address.
func TestSharedSource(t *testing.T) {
	n := newNIC(t, sharedConfig())
	i := Interface{MAC: macA, Addrs: prefixes("fe80::1/64", "10.0.0.1/24", "fd00::1/64"),
		Routes: prefixes("fe80::/64", "10.0.0.0/24", "fd00::/64", "172.16.0.0/12", "::/0")}
	if err := n.SetInterface(&i); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dst, src string
		bits     RouteBits
	}{
		{"10.0.0.9", "10.0.0.1", 24}, {"fd00::9", "fd00::1", 64}, {"2001:db8::1", "fd00::1", 0},
		{"fe80::9", "fe80::1", 64}, {"172.16.3.4", "10.0.0.1", 12}, {"10.0.0.1", "10.0.0.1", stack.RouteOwn},
	} {
		e, bits, ok := n.Source(gid(c.dst))
		if !ok || e.GID != gid(c.src) || bits != c.bits {
			t.Errorf("to %s: from %v by %d, %v; want %s by %d", c.dst, e.GID.Addr(), bits, ok, c.src, c.bits)
		}
	}
	if _, _, ok := n.Source(gid("192.0.2.1")); ok {
		t.Error("a way without a route")
	}
	if _, err := n.net.NewPath(0, AddressVector{DGID: gid("192.0.2.1"), SGIDIndex: n.GIDs()[0].Index}); err == nil {
		t.Error("a path without a route")
	}
}

// TestGIDPlaces checks against a model that addresses keep their indices while present, and get them again when they
// return, while places remain.
func TestGIDPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ev := &portEvents{}
		cfg := sharedConfig()
		cfg.Events = ev
		n, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		index := map[inet.GID]uint8{}
		for _, g := range n.GIDs() {
			index[g.GID] = g.Index
		}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			var addrs []netip.Prefix
			for _, b := range rapid.SliceOfNDistinct(rapid.ByteRange(1, gidPlaces-2), 0, 8, rapid.ID[byte]).Draw(t, "addresses") {
				addrs = append(addrs, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, b}), 24))
			}
			before := fmt.Sprint(n.GIDs())
			ev.got = nil
			if err := n.SetInterface(&Interface{MAC: macA, Addrs: addrs, Routes: cfg.Routes}); err != nil {
				t.Fatal(err)
			}
			if changed := before != fmt.Sprint(n.GIDs()); changed != (len(ev.got) == 1 && ev.got[0] == qp.EventGIDChange) {
				t.Fatalf("changed: %v, events %v", changed, ev.got)
			}
			live := 0
			for i, g := range n.GIDs() {
				if int(g.Index) != i {
					t.Fatalf("index %d at place %d", g.Index, i)
				}
				if g.GID == (inet.GID{}) {
					continue
				}
				live++
				if was, known := index[g.GID]; known && was != g.Index {
					t.Fatalf("%v moved from %d to %d", g.GID.Addr(), was, g.Index)
				}
				index[g.GID] = g.Index
			}
			if live != len(addrs) {
				t.Fatalf("%d addresses, want %d", live, len(addrs))
			}
		}
	})
}

// TestGIDPlacesAreUsedAgain: with more addresses over time than places, the table reuses places and never exceeds the
// range of an index.
func TestGIDPlacesAreUsedAgain(t *testing.T) {
	n := newNIC(t, sharedConfig())
	for i := range 3 * maxAddrs {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		if err := n.SetInterface(&Interface{MAC: macA, Addrs: []netip.Prefix{netip.PrefixFrom(a, 24)}}); err != nil {
			t.Fatal(err)
		}
		if places := len(n.GIDs()); places > gidPlaces {
			t.Fatalf("%d places after %d addresses", places, i)
		}
	}
}

// TestSharedHeldFrames: a waiting datagram leaves from the MAC that the interface has at that time.
func TestSharedHeldFrames(t *testing.T) {
	n := newNIC(t, sharedConfig())
	p, err := n.net.NewPath(0, AddressVector{DGID: gid("10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.Repeat([]byte{0xee}, 100)
	n.net.Hold(p.Next, &link.Frame{Bufs: [][]byte{b}, Len: len(b)})
	moved := inet.MAC{2, 0, 0, 0, 0, 0xd}
	if err := n.SetInterface(&Interface{MAC: moved, Addrs: n.cfg.Addrs, Routes: n.cfg.Routes}); err != nil {
		t.Fatal(err)
	}
	n.Resolved(1, gid("10.0.0.2"), macB)
	if out := transmit(n, 1); len(out) != 1 || inet.MAC(out[0].b) != macB || inet.MAC(out[0].b[6:]) != moved {
		t.Errorf("sends %v", out)
	}
}
