package rocev2

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

const second = mono.Time(time.Second)

// arp returns an ARP packet from B.
func arp(op byte, mac inet.MAC, sender, target string) []byte {
	b := append(append(macA[:6:6], mac[:]...), 8, 6, 0, 1, 8, 0, 6, 4, 0, op)
	b = append(b, mac[:]...)
	s, d := gid(sender), gid(target)
	b = append(b, s[12:]...)
	b = append(b, macA[:]...)
	return append(b, d[12:]...)
}

// etherTypes returns the types of frames.
func etherTypes(out []wire) (types []int) {
	for _, w := range out {
		types = append(types, int(w.b[12])<<8|int(w.b[13]))
	}
	return types
}

func TestResolutionThenData(t *testing.T) {
	n := nicA(t)
	s := newScript(sends(0x22, 0, 10, 20)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.2", nil)
	n.sch.activate(q)
	out := transmit(n, 0)
	want := unhex(t, "ffffffffffff02000000000a0806 0001080006040001 02000000000a0a000001 0000000000000a000002")
	if len(out) != 1 || !bytes.Equal(out[0].b, want) || s.sent != 0 {
		t.Fatalf("request %x, %d packets taken", out, s.sent)
	}
	n.Advance(second)
	if out := transmit(n, second); !slices.Equal(etherTypes(out), []int{inet.TypeARP}) {
		t.Errorf("second request: %x", out)
	}
	n.Receive(second, arp(arpReply, macB, "10.0.0.2", "10.0.0.1"), 0)
	out = transmit(n, second)
	if !slices.Equal(etherTypes(out), []int{inet.TypeIPv4, inet.TypeIPv4}) || inet.MAC(out[0].b[:6]) != macB {
		t.Errorf("data: %x", out)
	}
	if n.net.NextTimeout() == mono.Never {
		t.Error("the timer is kept until it fires")
	}
	n.Advance(9 * second)
	if n.NextTimeout() != mono.Never || len(transmit(n, 9*second)) != 0 {
		t.Errorf("next timeout %v", n.NextTimeout())
	}
}

func TestResolutionFails(t *testing.T) {
	n := nicA(t)
	s := newScript(sends(0x22, 0, 10, 20)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 1, "fd00::2", nil)
	n.sch.activate(q)
	// The first requests follow each other quickly, for a link that has just come up.
	var asked []time.Duration
	now := mono.Time(0)
	for range 20 {
		for range len(transmit(n, now)) {
			asked = append(asked, time.Duration(now)/time.Millisecond)
		}
		if now = n.NextTimeout(); now == mono.Never {
			break
		}
		n.Advance(now)
	}
	want := []time.Duration{0, 10, 30, 70, 150, 310, 630, 1270, 2270, 3270}
	if !slices.Equal(asked, want) || now != mono.Never || s.sent != 2 {
		t.Errorf("requests at %d ms, next %v, %d packets taken", asked, now, s.sent)
	}
	if counter(t, n, "tx_dropped_unreachable") != 2 || s.flushed != 2 {
		t.Errorf("discarded %d, flushed %d", counter(t, n, "tx_dropped_unreachable"), s.flushed)
	}
	// Later packets repeat the request, once a second.
	for _, c := range []struct {
		now  mono.Time
		asks int
	}{{5 * second, 0}, {6 * second, 1}, {6*second + 1, 0}, {7 * second, 1}} {
		s.sent = 0
		n.sch.activate(q)
		if out := transmit(n, c.now); len(out) != c.asks {
			t.Errorf("at %v: %d frames, want %d", c.now, len(out), c.asks)
		}
	}
	n.net.Learn(8*second, q.path.Next, macB)
	s.sent = 0
	n.sch.activate(q)
	if out := transmit(n, 8*second); len(out) != 2 {
		t.Errorf("after the answer: %d frames", len(out))
	}
}

// TestProbing: the NIC probes a neighbour in use directly after a long silence. Acknowledgements also confirm that it
// is reachable.
func TestProbing(t *testing.T) {
	n := nicA(t)
	s := newScript(sends(0x22, 0, 10)...)
	q := plug(t, n, 0x11, qp.RC, s)
	connect(t, n, q, 0, "10.0.0.2", &macB)
	send := func(now mono.Time) []int {
		s.sent = 0
		n.sch.activate(q)
		n.Advance(now)
		return etherTypes(transmit(n, now))
	}
	if got := send(30 * second); !slices.Equal(got, []int{inet.TypeIPv4}) {
		t.Errorf("fresh: %x", got)
	}
	if got := send(31 * second); !slices.Equal(got, []int{inet.TypeIPv4, inet.TypeARP}) {
		t.Errorf("old: %x", got)
	}
	n.Receive(31*second, arp(arpReply, macB, "10.0.0.2", "10.0.0.1"), 0)
	if got := send(60 * second); !slices.Equal(got, []int{inet.TypeIPv4}) {
		t.Errorf("confirmed: %x", got)
	}
	send(62 * second)
	if q.path.Next.State != stack.Probe {
		t.Errorf("state %d", q.path.Next.State)
	}
	q.path.Next.Confirm(62 * second)
	if got := send(80 * second); !slices.Equal(got, []int{inet.TypeIPv4}) {
		t.Errorf("confirmed by the transport: %x", got)
	}
	for now := 100 * second; now < 104*second; now += second {
		send(now)
	}
	if q.path.Next.State != stack.Failed {
		t.Errorf("nobody answers: state %d", q.path.Next.State)
	}
}

// TestLearningIsBounded: the NIC learns from frames only about neighbours on a path.
func TestLearningIsBounded(t *testing.T) {
	n := nicA(t)
	q := plug(t, n, 0x11, qp.RC, newScript())
	connect(t, n, q, 0, "10.0.0.2", &macB)
	for i := range 5000 {
		n.Receive(0, arp(arpRequest, inet.MAC{2, 9, 0, 0, byte(i >> 8), byte(i)}, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String(), "10.0.0.1"), 0)
		if i%50 == 0 {
			discardAll(n)
		}
	}
	if len(n.net.Neighbours()) != 1 {
		t.Errorf("%d entries", len(n.net.Neighbours()))
	}
	n.Receive(0, arp(arpRequest, inet.MAC{2, 7}, "10.0.0.2", "10.0.0.2"), 0)
	if q.path.Next.MAC != (inet.MAC{2, 7}) {
		t.Errorf("gratuitous ARP: %x", q.path.Next.MAC)
	}
}

func TestAdverts(t *testing.T) {
	dst, us := gid("fd00::1"), gid("fd00::2")
	advert := func(flags byte, mac inet.MAC) []byte {
		return advertFrame(flags, mac, us, dst)
	}
	n := nicA(t)
	q := plug(t, n, 0x11, qp.RC, newScript())
	connect(t, n, q, 1, "fd00::2", nil)
	other := inet.MAC{2, 1, 1, 1, 1, 1}
	for i, c := range []struct {
		flags byte
		mac   inet.MAC
		want  inet.MAC
	}{
		{naSolicited, macB, macB},
		{naSolicited, other, macB}, // RFC 4861 7.2.5: without override
		{naOverride, other, other},
		{naOverride | naSolicited, macB, macB},
	} {
		n.Receive(0, advert(c.flags, c.mac), 0)
		if q.path.Next.MAC != c.want || q.path.Next.State != stack.Valid {
			t.Errorf("advert %d: state %d, %x", i, q.path.Next.State, q.path.Next.MAC)
		}
	}
	dst = us
	us = gid("fd00::1")
	n.Receive(0, advert(naOverride, macB), 0)
	if counter(t, n, "address_conflicts") != 1 {
		t.Error("somebody advertises our address")
	}
}

// TestHeldDatagrams: at most 16 datagrams wait for the neighbour. Destroying a handle with waiting datagrams is safe.
func TestHeldDatagrams(t *testing.T) {
	n := nicA(t)
	p, err := n.net.NewPath(0, AddressVector{SGIDIndex: 0, DGID: gid("10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	ah, ap := plugAH(t, n, p)
	s := newScript(sends(0x22, 0, slices.Repeat([]int{8}, stack.NeighHeld+3)...)...)
	for i := range s.out {
		s.out[i].Opcode |= bth.TransportUD
		s.ah = append(s.ah, ah)
	}
	s.ah[5] = ah + 1
	q := plugUD(t, n, 0x11, s)
	n.sch.activate(q)
	if out := transmit(n, 0); !slices.Equal(etherTypes(out), []int{inet.TypeARP}) {
		t.Errorf("%x", etherTypes(out))
	}
	if s.flushed != len(s.out) || counter(t, n, "tx_dropped_hold") != 2 || counter(t, n, "tx_dropped_no_path") != 1 {
		t.Errorf("flushed %d, dropped %d", s.flushed, counter(t, n, "tx_dropped_hold"))
	}
	n.Receive(0, arp(arpReply, macB, "10.0.0.2", "10.0.0.1"), 0)
	out := transmit(n, 0)
	for _, w := range out {
		if err := bth.CheckICRC(w.b[inet.EthernetLen:]); err != nil || inet.MAC(w.b[:6]) != macB {
			t.Errorf("%v %x", err, w.b)
		}
	}
	if len(out) != stack.NeighHeld || n.net.Held() != 0 {
		t.Errorf("%d frames, %d still held", len(out), n.net.Held())
	}
	n.releasePath(ap)
	n.net.SetNeighbourLimit(1)
	if _, err := n.net.NewPath(0, AddressVector{SGIDIndex: 0, DGID: gid("10.0.0.3")}); err != nil {
		t.Errorf("the place of an unused neighbour: %v", err)
	}
}

func TestGateway(t *testing.T) {
	cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
	cfg.Gateways = []netip.Addr{netip.MustParseAddr("10.0.0.254"), netip.MustParseAddr("fd00::fe")}
	n := newNIC(t, cfg)
	for sgid, dst := range map[uint8][2]string{0: {"192.168.1.1", "10.0.0.254"}, 1: {"fd01::1", "fd00::fe"}} {
		p, err := n.net.NewPath(0, AddressVector{SGIDIndex: sgid, DGID: gid(dst[0])})
		if err != nil || p.Next.Addr != gid(dst[1]) {
			t.Errorf("%s: %v", dst[0], err)
		}
	}
}

// TestReleaseWakes: releasing the path of a queue pair that waits for an address wakes all queue pairs that wait for
// it.
func TestReleaseWakes(t *testing.T) {
	n := nicA(t)
	a, b := plug(t, n, 0x11, qp.RC, newScript(sends(1, 0, 1)...)), plug(t, n, 0x12, qp.RC, newScript(sends(1, 0, 1)...))
	connect(t, n, a, 0, "10.0.0.2", nil)
	connect(t, n, b, 0, "10.0.0.2", nil)
	n.sch.activate(a)
	n.sch.activate(b)
	transmit(n, 0)
	if nb := a.path.Next; !a.node.wait.Listed() || !b.node.wait.Listed() || nb.Refs != 2 {
		t.Fatalf("%+v", nb)
	}
	nb := a.path.Next
	n.releasePath(&a.path)
	transmit(n, 0)
	if a.node.wait.Listed() || !b.node.wait.Listed() || counter(t, n, "tx_dropped_no_path") != 1 {
		t.Errorf("%+v", nb)
	}
	n.unschedule(b)
	n.releasePath(&b.path)
	if b.node.wait.Listed() || nb.Refs != 0 {
		t.Errorf("%+v", nb)
	}
}
