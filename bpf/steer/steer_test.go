package steer

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
)

// Actions of an XDP program (linux/bpf.h).
const (
	actionDrop     = 1
	actionPass     = 2
	actionRedirect = 4
)

var (
	nic4, nic6     = netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("fd00::1")
	other4, other6 = netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("fd00::2")
)

// load loads the program with two addresses of the NIC.
func load(t testing.TB) *Steer {
	t.Helper()
	s, err := Load(bth.UDPPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.SetAddrs([]netip.Addr{nic4, nic6}); err != nil {
		t.Fatal(err)
	}
	return s
}

// addSocket steers queue 0 to a socket. The socket receives no frames, because test runs do not redirect.
func addSocket(t testing.TB, s *Steer) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := s.SetSocket(0, fd); err != nil {
		t.Fatal(err)
	}
}

// run runs the program on a frame, on queue 0.
func run(t testing.TB, s *Steer, frame []byte) uint32 {
	t.Helper()
	action, err := s.Program().Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatal(err)
	}
	return action
}

// udp returns a frame with a UDP datagram, modified by edit.
func udp(src, dst netip.Addr, port uint16, edit func(f []byte)) []byte {
	eth := &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv4}
	var ip gopacket.SerializableLayer = &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP,
		SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	if dst.Is6() {
		eth.EthernetType = layers.EthernetTypeIPv6
		ip = &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolUDP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	}
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, eth, ip,
		&layers.UDP{SrcPort: 50000, DstPort: layers.UDPPort(port)}, gopacket.Payload(make([]byte, 20)))
	if err != nil {
		panic(err)
	}
	f := buf.Bytes()
	if edit != nil {
		edit(f)
	}
	return f
}

func set(off int, b byte) func([]byte) { return func(f []byte) { f[off] = b } }

// TestVerdicts runs the program on frames that differ in the fields that it reads.
func TestVerdicts(t *testing.T) {
	arp := make([]byte, 60)
	binary.BigEndian.PutUint16(arp[12:], unix.ETH_P_ARP)
	options := udp(other4, nic4, 4791, nil)
	options = slices.Insert(options, 34, make([]byte, 8)...)
	options[14] = 0x47
	tagged := func(f []byte, tci ...byte) []byte {
		return slices.Concat(make([]byte, 12), []byte{0x81, 0}, tci, f[12:])
	}
	in4, in6 := udp(other4, nic4, 4791, nil), udp(other6, nic6, 4791, nil)
	for _, c := range []struct {
		name  string
		frame []byte
		ours  bool
	}{
		{"IPv4", udp(other4, nic4, 4791, nil), true},
		{"IPv6", udp(other6, nic6, 4791, nil), true},
		{"IPv4 that must not be fragmented", udp(other4, nic4, 4791, set(20, 0x40)), true},
		{"IPv4 with traffic class and CE", udp(other4, nic4, 4791, set(15, 0x6b)), true},
		{"IPv6 with flow label", udp(other6, nic6, 4791, set(17, 0x77)), true},
		{"IPv4 to another station", udp(nic4, other4, 4791, nil), false},
		{"IPv6 to another station", udp(nic6, other6, 4791, nil), false},
		{"IPv4 to another port", udp(other4, nic4, 4790, nil), false},
		{"IPv6 to another port", udp(other6, nic6, 53, nil), false},
		{"IPv4 first fragment", udp(other4, nic4, 4791, set(20, 0x20)), false},
		{"IPv4 later fragment", udp(other4, nic4, 4791, set(21, 1)), false},
		{"IPv4 with options", options, true},
		{"IPv4 with options beyond its end", options[:44], false},
		{"IPv4 with a bad header length", udp(other4, nic4, 4791, set(14, 0x41)), false},
		{"IPv4 of version 6", udp(other4, nic4, 4791, set(14, 0x65)), false},
		{"IPv6 of version 4", udp(other6, nic6, 4791, set(14, 0x40)), false},
		{"TCP", udp(other4, nic4, 4791, set(23, 6)), false},
		{"IPv6 with extension header", udp(other6, nic6, 4791, set(20, 0)), false},
		{"IPv4 without whole UDP header", udp(other4, nic4, 4791, nil)[:41], false},
		{"IPv6 without whole UDP header", udp(other6, nic6, 4791, nil)[:61], false},
		{"IPv4 without whole IP header", udp(other4, nic4, 4791, nil)[:33], false},
		{"Ethernet header alone", udp(other4, nic4, 4791, nil)[:14], false},
		{"VLAN", tagged(in4, 0, 5), false},
		{"VLAN with a priority", tagged(in6, 0xa0, 5), false},
		{"the greatest VLAN", tagged(in4, 0x0f, 0xfe), false},
		{"IPv4 with a priority", tagged(in4, 0xa0, 0), true},
		{"IPv6 with a priority", tagged(in6, 0xa0, 0), true},
		{"IPv4 with the least priority", tagged(in4, 0, 0), true},
		{"VLAN below a priority", tagged(tagged(in4, 0, 5), 0xa0, 0), false},
		{"half a tag", tagged(in4, 0xa0, 0)[:16], false},
		{"tag alone", tagged(in4, 0xa0, 0)[:18], false},
		{"ARP", arp, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := load(t)
			want, verdicts := uint32(actionPass), [2]Verdicts{{Other: 1}, {Other: 2}}
			if c.ours {
				want, verdicts = actionDrop, [2]Verdicts{{Unsteered: 1}, {Unsteered: 1, Steered: 1}}
			}
			if got := run(t, s, c.frame); got != want {
				t.Errorf("action %d without a socket, want %d", got, want)
			}
			checkVerdicts(t, s, verdicts[0])
			addSocket(t, s)
			if c.ours {
				want = actionRedirect
			}
			if got := run(t, s, c.frame); got != want {
				t.Errorf("action %d with a socket, want %d", got, want)
			}
			checkVerdicts(t, s, verdicts[1])
		})
	}
}

func checkVerdicts(t *testing.T, s *Steer, want Verdicts) {
	t.Helper()
	if got, err := s.Verdicts(); err != nil || got != want {
		t.Errorf("verdicts %+v, %v, want %+v", got, err, want)
	}
}

// TestSetAddrs replaces the addresses.
func TestSetAddrs(t *testing.T) {
	s := load(t)
	frames := [][]byte{udp(other4, nic4, 4791, nil), udp(other6, nic6, 4791, nil), udp(nic4, other4, 4791, nil)}
	check := func(want ...uint32) {
		t.Helper()
		for i, f := range frames {
			if got := run(t, s, f); got != want[i] {
				t.Errorf("frame %d: action %d, want %d", i, got, want[i])
			}
		}
	}
	check(actionDrop, actionDrop, actionPass)
	set := func(addrs ...netip.Addr) {
		t.Helper()
		if err := s.SetAddrs(addrs); err != nil {
			t.Fatal(err)
		}
	}
	set(nic6, other4)
	check(actionPass, actionDrop, actionDrop)
	set()
	check(actionPass, actionPass, actionPass)
	many := make([]netip.Addr, MaxAddrs)
	for i, a := 0, netip.MustParseAddr("fd00:2::"); i < len(many); i++ {
		many[i], a = a, a.Next()
	}
	set(many...)
	set(nic4) // makes room
	check(actionDrop, actionPass, actionPass)
	if err := s.SetAddrs(append(many, nic4)); err == nil {
		t.Error("too many addresses are accepted")
	}
	check(actionDrop, actionPass, actionPass)
}

// FuzzSteer compares the program with an implementation in Go.
func FuzzSteer(f *testing.F) {
	for _, frame := range [][]byte{udp(other4, nic4, 4791, nil), udp(other6, nic6, 4791, nil), udp(nic4, other4, 4791, nil),
		udp(other4, nic4, 53, nil), udp(other4, nic4, 4791, set(20, 0x20))} {
		f.Add(frame)
	}
	s := load(f)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 3000 {
			return // the kernel does not run it
		}
		want := uint32(actionPass)
		if isOurs(frame) {
			want = actionDrop
		}
		if got := run(t, s, frame); got != want {
			t.Errorf("action %d, want %d: %x", got, want, frame)
		}
	})
}

// isOurs implements the rule of the package documentation.
func isOurs(f []byte) bool {
	var dst netip.Addr
	at := 0
	switch binary.BigEndian.Uint16(f[12:]) {
	case unix.ETH_P_IP:
		if len(f) < 34 || f[14]>>4 != 4 || f[14]&0xf < 5 || f[23] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(f[20:])&0x3fff != 0 {
			return false
		}
		dst, at = netip.AddrFrom4([4]byte(f[30:])), 14+int(f[14]&0xf)*4
	case unix.ETH_P_IPV6:
		if at = 54; len(f) < at || f[14]>>4 != 6 || f[20] != unix.IPPROTO_UDP {
			return false
		}
		dst = netip.AddrFrom16([16]byte(f[38:]))
	default:
		return false
	}
	// The program accepts a mapped IPv4 address in an IPv6 header as well; no host sends it.
	return len(f) >= at+8 && binary.BigEndian.Uint16(f[at+2:]) == 4791 && (dst.Unmap() == nic4 || dst == nic6)
}

// TestUDPPort: MRC may have another port, whose datagrams alone are the NIC's then.
func TestUDPPort(t *testing.T) {
	s, err := Load(bth.MRCUDPPort)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetAddrs([]netip.Addr{nic4, nic6}); err != nil {
		t.Fatal(err)
	}
	addSocket(t, s)
	for port, want := range map[uint16]uint32{bth.MRCUDPPort: actionRedirect, bth.UDPPort: actionPass} {
		if got := run(t, s, udp(other4, nic4, port, nil)); got != want {
			t.Errorf("port %d: action %d, want %d", port, got, want)
		}
	}
}
