package rocev2

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

// Addresses of the exchanges.
const (
	hexMACA   = "02000000000a"
	hexMACB   = "02000000000b"
	hexIP4A   = "0a000001"
	hexIP4B   = "0a000002"
	hexIP6A   = "fd000000000000000000000000000001"
	hexIP6B   = "fd000000000000000000000000000002"
	hexGroupA = "ff0200000000000000000001ff000001"
)

// controlExchanges are exchanges of ARP and neighbour discovery: a frame, the answer, and the drop reason. Another
// program computed the checksums.
var controlExchanges = []struct {
	name, in, out string
	drop          string
}{
	{"ARP request for us",
		"ffffffffffff" + hexMACB + "0806 0001080006040001" + hexMACB + hexIP4B + "000000000000" + hexIP4A + "000000000000000000000000000000000000",
		hexMACB + hexMACA + "0806 0001080006040002" + hexMACA + hexIP4A + hexMACB + hexIP4B, ""},
	{"ARP request for another",
		"ffffffffffff" + hexMACB + "0806 0001080006040001" + hexMACB + hexIP4B + "000000000000" + "0a000003", "", ""},
	{"ARP probe for our address",
		"ffffffffffff" + hexMACB + "0806 0001080006040001" + hexMACB + "00000000" + "000000000000" + hexIP4A,
		hexMACB + hexMACA + "0806 0001080006040002" + hexMACA + hexIP4A + hexMACB + "00000000", ""},
	{"ARP with our address as sender",
		"ffffffffffff" + hexMACB + "0806 0001080006040001" + hexMACB + hexIP4A + "000000000000" + hexIP4A, "", "rx_dropped_conflict"},
	{"ARP from a group address",
		"ffffffffffff" + hexMACB + "0806 0001080006040001" + "ffffffffffff" + hexIP4B + "000000000000" + hexIP4A, "", "rx_dropped_arp"},
	{"ARP of another hardware",
		"ffffffffffff" + hexMACB + "0806 0006080006040001" + hexMACB + hexIP4B + "000000000000" + hexIP4A, "", "rx_dropped_arp"},
	{"short ARP", "ffffffffffff" + hexMACB + "0806 00010800060400", "", "rx_dropped_short"},
	{"NS for us",
		"3333ff000001" + hexMACB + "86dd 60000000 0020 3a ff" + hexIP6B + hexGroupA + "8700 7d8e 00000000" + hexIP6A + "0101" + hexMACB,
		hexMACB + hexMACA + "86dd 60000000 0020 3a ff" + hexIP6A + hexIP6B + "8800 1c93 60000000" + hexIP6A + "0201" + hexMACA, ""},
	{"NS with a hop limit below 255",
		"3333ff000001" + hexMACB + "86dd 60000000 0020 3a fe" + hexIP6B + hexGroupA + "8700 7d8e 00000000" + hexIP6A + "0101" + hexMACB,
		"", "rx_dropped_nd"},
	{"NS with a wrong checksum",
		"3333ff000001" + hexMACB + "86dd 60000000 0020 3a ff" + hexIP6B + hexGroupA + "8700 7d8f 00000000" + hexIP6A + "0101" + hexMACB,
		"", "rx_dropped_icmp"},
	{"multicast of another group", "3333ff000009" + hexMACB + "86dd 60", "", "rx_dropped_mac"},
	{"VLAN", hexMACA + hexMACB + "8100 0001 0800", "", "rx_dropped_vlan"},
}

func TestControlExchanges(t *testing.T) {
	for _, c := range controlExchanges {
		n := nicA(t)
		n.Receive(0, unhex(t, c.in), 0)
		var got []byte
		for _, w := range transmit(n, 0) {
			got = append(got, w.b...)
		}
		if want := unhex(t, c.out); !bytes.Equal(got, want) {
			t.Errorf("%s: answer\n%x, want\n%x", c.name, got, want)
		}
		if d := n.ctr.RxDropped(); (d != 0) != (c.drop != "") {
			t.Errorf("%s: %d drops", c.name, d)
		} else if c.drop != "" && counter(t, n, c.drop) != 1 {
			t.Errorf("%s: not counted as %s", c.name, c.drop)
		}
	}
}

// echo returns an ICMP echo request from B to A with n bytes of data.
func echo(v6 bool, n int) []byte {
	src, dst := gid("10.0.0.2"), gid("10.0.0.1")
	typ, l3, proto, et, echoType := byte(icmpEcho), inet.IPv4Len, byte(inet.ProtoICMP), uint16(inet.TypeIPv4), uint64(0)
	if v6 {
		src, dst = gid("fd00::2"), gid("fd00::1")
		typ, l3, proto, et = icmpv6Echo, inet.IPv6Len, inet.ProtoICMPv6, inet.TypeIPv6
	}
	m := append([]byte{typ, 0, 0, 0, 1, 2, 3, 4}, payload(n, 3)...)
	b := make([]byte, inet.EthernetLen+l3, inet.EthernetLen+l3+len(m))
	ip := inet.PutEthernet(b, &macA, &macB, 0, et)
	if v6 {
		inet.PutIPv6(ip, 0, 64, proto, &src, &dst)
		ip[4], ip[5] = byte(len(m)>>8), byte(len(m))
		echoType = inet.PseudoSum(&src, &dst, proto, len(m))
	} else {
		inet.PutIPv4(ip, 0, 64, proto, &src, &dst)
		ip[2], ip[3] = byte((l3+len(m))>>8), byte(l3+len(m))
		inet.SealIPv4(ip)
	}
	inet.PutChecksum(m[2:], echoType, m)
	return append(b, m...)
}

func TestEcho(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, size := range []int{0, 1, 56, 1401} {
			n, peer := nicA(t), newNIC(t, testConfig(macB, "10.0.0.2/24", "fd00::2/64"))
			n.Receive(0, append(echo(v6, size), 0, 0, 0), 0) // Ethernet padding
			out := transmit(n, 0)
			if len(out) != 1 {
				t.Fatalf("v6 %v, %d bytes: %d answers", v6, size, len(out))
			}
			var h stack.IPHeader
			r := h.ParseIPv4(out[0].b[inet.EthernetLen:])
			sum := uint64(0)
			if v6 {
				r = h.ParseIPv6(out[0].b[inet.EthernetLen:])
				sum = inet.PseudoSum(&h.Src, &h.Dst, inet.ProtoICMPv6, len(h.Payload))
			}
			if r != stack.Accepted || inet.Checksum(sum, h.Payload) != 0 || !bytes.Equal(h.Payload[8:], payload(size, 3)) {
				t.Errorf("v6 %v, %d bytes: %v %x", v6, size, r, out[0].b)
			}
			if h.Payload[0] != icmpEchoReply && h.Payload[0] != icmpv6EchoReply {
				t.Errorf("type %d", h.Payload[0])
			}
			peer.Receive(0, out[0].b, 0)
			if counter(t, peer, "rx_dropped_icmp") != 1 { // no request is pending for the answer
				t.Errorf("peer: %v", peer.CounterSnapshot())
			}
		}
	}
}

// TestControlRingIsBounded: a flood fills only the control ring.
func TestControlRingIsBounded(t *testing.T) {
	n := nicA(t)
	for range 3 * controlSlots {
		n.Receive(0, echo(false, 1000), 0)
	}
	if out := transmit(n, 0); len(out) != controlSlots {
		t.Errorf("%d answers", len(out))
	}
	if got := counter(t, n, "tx_dropped_control"); got != 2*controlSlots {
		t.Errorf("%d dropped", got)
	}
}

type portEvents struct{ got []qp.Event }

func (*portEvents) QPEvent(*QueuePair, qp.Event) {}
func (*portEvents) CQEvent(*CQ, qp.Event)        {}
func (*portEvents) SRQEvent(*SRQ, qp.Event)      {}
func (p *portEvents) PortEvent(e qp.Event)       { p.got = append(p.got, e) }

func TestPort(t *testing.T) {
	ev := &portEvents{}
	cfg := testConfig(macA, "10.0.0.1/24", "fd00::1/64")
	cfg.Events = ev
	n := newNIC(t, cfg)
	if a := n.PortAttr(); a.State != PortActive || a.ActiveMTU != 5 || a.GIDs != stack.GIDTableLen {
		t.Errorf("%+v", a)
	}
	g := n.GIDs()
	if g[0].GID != gid("10.0.0.1") || g[1].GID != gid("fd00::1") || g[2].GID != gid("fe80::ff:fe00:a") || g[2].Index != 2 {
		t.Errorf("GIDs %v", g)
	}
	for mtu, want := range map[int]qp.MTU{352: 1, 1119: 2, 1120: 3, 1500: 3, 4191: 4, 4192: 5, 9000: 5} {
		if err := n.SetLink(0, true, mtu); err != nil || n.PortAttr().ActiveMTU != want {
			t.Errorf("MTU %d: %v, active %d, want %d", mtu, err, n.PortAttr().ActiveMTU, want)
		}
	}
	if len(ev.got) == 0 {
		t.Error("no event for a changed path MTU")
	}
	for _, e := range ev.got {
		if e != qp.EventPortActive {
			t.Errorf("event %v for a changed path MTU", e)
		}
	}
	ev.got = nil
	if err := n.SetLink(0, true, 351); !errors.Is(err, ErrMTU) {
		t.Errorf("MTU 351: %v", err)
	}
	n.SetLink(0, false, 0)
	if n.PortAttr().State != PortDown || counter(t, n, "link_downed") != 1 {
		t.Error("link is not down")
	}
	n.SetLink(0, true, 0)
	if out := transmit(n, 0); len(out) != 3 {
		t.Errorf("%d announcements", len(out))
	}
	if err := n.SetAddrs(0, []netip.Prefix{netip.MustParsePrefix("10.0.0.9/24")}, nil); err != nil || len(n.GIDs()) != 4 || n.GIDs()[3].GID != gid("10.0.0.9") || n.GIDs()[0].GID != (inet.GID{}) {
		t.Errorf("SetAddrs: %v, %v", err, n.GIDs())
	}
	want := []qp.Event{qp.EventPortErr, qp.EventPortActive, qp.EventGIDChange}
	if len(ev.got) != 3 || ev.got[0] != want[0] || ev.got[1] != want[1] || ev.got[2] != want[2] {
		t.Errorf("events %v, want %v", ev.got, want)
	}
}

func TestBadConfigurations(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want error
	}{
		{"group MAC", Config{MAC: inet.MAC{1}, MTU: 1500}, stack.ErrMAC},
		{"no MAC", Config{MTU: 1500}, stack.ErrMAC},
		{"MTU", Config{MAC: macA, MTU: 100}, ErrMTU},
		{"multicast", testConfig(macA, "224.0.0.1/24"), stack.ErrAddress},
		{"mapped", testConfig(macA, "::ffff:10.0.0.1/120"), stack.ErrAddress},
		{"zero prefix", Config{MAC: macA, MTU: 1500, Addrs: make([]netip.Prefix, 1)}, stack.ErrAddress},
		{"gateway", Config{MAC: macA, MTU: 1500, Gateways: []netip.Addr{netip.IPv6Loopback()}}, stack.ErrAddress},
	} {
		n := &NIC{cfg: c.cfg}
		if err := n.initNet(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestPathErrors(t *testing.T) {
	n := nicA(t)
	n.net.SetNeighbourLimit(2)
	for _, c := range []struct {
		sgid uint8
		dst  string
		want error
	}{
		{3, "10.0.0.2", stack.ErrGIDIndex},
		{1, "10.0.0.2", stack.ErrFamily},
		{0, "fd00::2", stack.ErrFamily},
		{0, "10.1.0.2", ErrNoRoute},
		{0, "224.0.0.1", stack.ErrBadGID},
		{1, "ff02::1", stack.ErrBadGID},
		{1, "::", stack.ErrBadGID},
		{0, "10.0.0.2", nil},
		{0, "10.0.0.2", nil},
		{1, "fd00::2", nil},
		{0, "10.0.0.3", ErrNeighbours},
		{0, "10.0.0.1", nil},
	} {
		_, err := n.net.NewPath(0, AddressVector{SGIDIndex: c.sgid, DGID: gid(c.dst)})
		if !errors.Is(err, c.want) {
			t.Errorf("%d to %s: %v, want %v", c.sgid, c.dst, err, c.want)
		}
		listed := strings.Contains(fmt.Sprint(err), fmt.Sprintf("(GID index %d; this NIC has 0 10.0.0.1, 1 fd00::1", c.sgid))
		if listed != (c.want == stack.ErrGIDIndex || c.want == stack.ErrFamily) {
			t.Errorf("%d to %s: %v", c.sgid, c.dst, err)
		}
	}
	if n.NextTimeout() != mono.Time(stack.NeighFirst) {
		t.Errorf("next timeout %v", n.NextTimeout())
	}
}
