package dissect_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	rocelayers "roced.io/roced/bth/layers"
	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/pcapng"
)

// packets returns the packets of a capture.
func packets(t *testing.T, name string) (all []*dissect.Packet) {
	t.Helper()
	file, err := os.Open("../../test/captures/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := dissect.Read(file, func(_ int, f *pcapng.Frame, _ *dissect.Packet) error {
		all = append(all, read(bytes.Clone(f.Data), f.Link))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// read dissects a frame.
func read(data []byte, link pcapng.LinkType) *dissect.Packet {
	p := &dissect.Packet{}
	p.Frame(&pcapng.Frame{Data: data, Length: len(data), Link: link})
	return p
}

// TestCaptures dissects captures of mirrors, of tunnels and of fragments.
func TestCaptures(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"vxlan.pcap", "3 RoCE, 3 good, 0 fragments, vxlan 77 198.18.1.1 > 198.18.1.2"},
		{"erspan2.pcap", "3 RoCE, 3 good, 0 fragments, erspan 5 198.18.1.1 > 198.18.1.2"},
		{"v6hbh.pcap", "3 RoCE, 3 good, 0 fragments,"},
		{"v4frag.pcap", "0 RoCE, 0 good, 2 fragments,"},
		{"snap64.pcap", "3 RoCE, 1 good, 0 fragments,"},
		{"ng_unsup.pcapng", "2 RoCE, 2 good, 0 fragments,"},
	} {
		roce, good, fragments, outer := 0, 0, 0, ""
		for _, p := range packets(t, c.file) {
			if p.RoCE {
				roce++
				if p.ICRC == nil {
					good++
				}
			}
			if p.Other == dissect.Fragments {
				fragments++
			}
			outer = text(p)
		}
		if got := fmt.Sprintf("%d RoCE, %d good, %d fragments,%s", roce, good, fragments, outer); got != c.want {
			t.Errorf("%s: %s, want %s", c.file, got, c.want)
		}
	}
}

func text(p *dissect.Packet) string {
	var b []byte
	for i := range p.Outer {
		b = p.Outer[i].AppendText(b)
	}
	return string(b)
}

// inner returns an IPv4 packet of RoCEv2 with its ICRC.
func inner() []byte {
	p := bth.Packet{Opcode: bth.TransportMRC | bth.OpWriteOnly, PKey: bth.DefaultPKey, DestQP: 17, Payload: make([]byte, 8)}
	body := p.AppendTo(nil)
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
	b := serialise(ip, &layers.UDP{SrcPort: 49152, DstPort: bth.UDPPort}, gopacket.Payload(body))
	if err := bth.SealICRC(b); err != nil {
		panic(err)
	}
	return b
}

func serialise(all ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
		panic(err)
	}
	return bytes.Clone(buf.Bytes())
}

// v4 returns an outer IPv4 header, v6 an IPv6 header, udp a UDP header.
func v4(p layers.IPProtocol) gopacket.SerializableLayer {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: p, SrcIP: []byte{192, 0, 2, 1}, DstIP: []byte{192, 0, 2, 2}}
}

func v6(p layers.IPProtocol) gopacket.SerializableLayer {
	src, dst := netip.MustParseAddr("2001:db8::1").As16(), netip.MustParseAddr("2001:db8::2").As16()
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: p, SrcIP: src[:], DstIP: dst[:]}
}

func udp(port layers.UDPPort) gopacket.SerializableLayer {
	return &layers.UDP{SrcPort: 50000, DstPort: port}
}

func ethernet(t layers.EthernetType) gopacket.SerializableLayer {
	return &layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: t}
}

func gre(t layers.EthernetType) *layers.GRE { return &layers.GRE{Protocol: t} }

// TestEncapsulations dissects a packet in each encapsulation. The ICRC is that of the inner packet.
func TestEncapsulations(t *testing.T) {
	eth, ip4 := ethernet(layers.EthernetTypeIPv4), layers.EthernetTypeIPv4
	keyed := gre(layers.EthernetTypeTransparentEthernetBridging)
	keyed.KeyPresent, keyed.Key = true, 9
	numbered := gre(layers.EthernetTypeERSPAN)
	numbered.SeqPresent = true
	via := " 192.0.2.1 > 192.0.2.2"
	segments := []netip.Addr{netip.MustParseAddr("2001:db8::9"), netip.MustParseAddr("2001:db8::2")}
	srh := &rocelayers.SRH{NextHeader: layers.IPProtocolIPv4, SegmentsLeft: 1, Segments: segments}
	segment := v6(4).(*layers.IPv6)
	segment.DstIP = netip.MustParseAddr("5f00:1:2:3::").AsSlice()
	uses := func(all ...gopacket.SerializableLayer) []gopacket.SerializableLayer { return all }
	for _, c := range []struct {
		want  string
		outer []gopacket.SerializableLayer
	}{
		{"", uses(eth)},
		{" vxlan 5" + via, uses(eth, v4(17), udp(4789), &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth)},
		{" vxlan 5" + via, uses(eth, v4(17), udp(8472), &layers.VXLAN{ValidIDFlag: true, VNI: 5}, eth)},
		{" geneve 5" + via, uses(eth, v4(17), udp(6081), gopacket.Payload([]byte{0, 0, 0x65, 0x58, 0, 0, 5, 0}), eth)},
		{" gre" + via, uses(eth, v4(47), gre(ip4))},
		{" gretap 9" + via, uses(eth, v4(47), keyed, eth)},
		{" gre" + via, uses(eth, v4(17), udp(4754), gre(ip4))},
		{" erspan" + via, uses(eth, v4(47), gre(layers.EthernetTypeERSPAN), eth)},
		{" erspan 7" + via, uses(eth, v4(47), numbered, &layers.ERSPANII{Version: 1, SessionID: 7}, eth)},
		{" erspan 7" + via, uses(eth, v4(47), gre(0x22eb), &rocelayers.ERSPANIII{Version: 2, SessionID: 7, Platform: make([]byte, 8)}, eth)},
		{" erspan 7" + via, uses(eth, v4(47), gre(0x22eb), &rocelayers.ERSPANIII{Version: 2, SessionID: 7, FrameType: 2})},
		{" ipip" + via, uses(eth, v4(4))},
		{" srv6 2001:db8::1 > 2001:db8::2", uses(ethernet(layers.EthernetTypeIPv6), v6(4))},
		{" srv6 2001:db8::1 > 5f00:1:2:3::", uses(ethernet(layers.EthernetTypeIPv6), segment)},
		{" mpls 3", uses(ethernet(layers.EthernetTypeMPLSUnicast), &layers.MPLS{Label: 3, StackBottom: true})},
		{" mpls 3" + via, uses(eth, v4(17), udp(6635), &layers.MPLS{Label: 3, StackBottom: true})},
		{" srv6 2001:db8::1 > 2001:db8::2 segments 2001:db8::9 2001:db8::2 left 1",
			uses(ethernet(layers.EthernetTypeIPv6), v6(layers.IPProtocolIPv6Routing), srh)},
		{" srv6 2001:db8::1 > 2001:db8::2", uses(ethernet(layers.EthernetTypeIPv6), v6(60), gopacket.Payload([]byte{4, 0, 1, 4, 0, 0, 0, 0}))},
		{" srv6 2001:db8::1 > 2001:db8::2", uses(ethernet(layers.EthernetTypeIPv6), v6(44), gopacket.Payload([]byte{4, 0, 0, 0, 0, 0, 0, 1}))},
		{" vxlan 1" + via + " ipip" + via, uses(eth, v4(17), udp(4789), &layers.VXLAN{ValidIDFlag: true, VNI: 1}, eth, v4(4))},
	} {
		frame := serialise(append(c.outer, gopacket.Payload(inner()))...)
		p := read(frame, pcapng.LinkEthernet)
		if !p.RoCE || p.ICRC != nil || text(p) != c.want || p.Datagram.Src != netip.MustParseAddr("10.0.0.1") {
			t.Errorf("%q: %+v", c.want, p)
		}
		frame[slices.Index(frame, 0xca)+21]++ // the BTH's opcode, then a byte of the RETH
		p = read(frame, pcapng.LinkEthernet)
		if !errors.Is(p.ICRC, bth.ErrICRC) {
			t.Errorf("%q: a changed packet: %+v", c.want, p)
		}
	}
}

// TestVLAN finds all tags, those before the standard too.
func TestVLAN(t *testing.T) {
	tags := []gopacket.SerializableLayer{ethernet(0x9100), &layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeQinQ},
		&layers.Dot1Q{VLANIdentifier: 6, Type: layers.EthernetTypeIPv4}, v4(17), udp(4789), &layers.VXLAN{ValidIDFlag: true},
		ethernet(layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}, gopacket.Payload(inner())}
	frame := serialise(tags...)
	p := read(frame, pcapng.LinkEthernet)
	if !p.RoCE || !slices.Equal(p.VLAN, []inet.Tag{5, 6, 7}) {
		t.Errorf("%+v", p)
	}
}

// TestPlain: a plain frame causes no allocation, also with VLAN tags.
func TestPlain(t *testing.T) {
	frame := serialise(ethernet(layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeIPv4}, gopacket.Payload(inner()))
	f, p := pcapng.Frame{Data: frame, Length: len(frame), Link: pcapng.LinkEthernet}, dissect.Packet{}
	if n := testing.AllocsPerRun(100, func() { p.Frame(&f) }); n != 0 || !p.RoCE || p.ICRC != nil {
		t.Errorf("%v allocations: %+v", n, p)
	}
}

// TestDepth: a frame of many tunnels ends the dissection early.
func TestDepth(t *testing.T) {
	b := inner()
	for range 100 {
		b = serialise(v4(4), gopacket.Payload(b))
	}
	p := read(b, pcapng.LinkRaw)
	if p.RoCE || len(p.Outer) != 63 || p.Other != dissect.TooDeep {
		t.Errorf("%d tunnels, RoCE %v, %v", len(p.Outer), p.RoCE, p.Other)
	}
}

// FuzzFrame dissects arbitrary frames. Offsets of the result lie in the frame.
func FuzzFrame(f *testing.F) {
	for _, name := range []string{"vxlan.pcap", "erspan2.pcap", "v6hbh.pcap", "v4frag.pcap"} {
		file, err := os.ReadFile("../../test/captures/testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file[40:], uint16(pcapng.LinkEthernet))
	}
	f.Add([]byte(strings.Repeat("\x00\x00\x00\x40", 100)), uint16(pcapng.LinkRaw))
	f.Fuzz(func(t *testing.T, data []byte, link uint16) {
		p := read(data, pcapng.LinkType(link))
		if p.RoCE == (p.Other != "") {
			t.Errorf("RoCE %v, %q", p.RoCE, p.Other)
		}
		if !p.RoCE {
			return
		}
		if d := p.Datagram; d.UDP+bth.UDPLen > len(p.IP) || len(p.IP) > len(data) || len(p.Outer) > 64 || !d.Src.IsValid() {
			t.Errorf("%+v", p)
		}
	})
}
