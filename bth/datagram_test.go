package bth_test

import (
	"net/netip"
	"testing"

	"roced.io/roced/bth"
)

// TestReadDatagram reads the headers of a packet of each IP version, and rejects shorter packets.
func TestReadDatagram(t *testing.T) {
	v4 := []byte{
		0x46, 0x6b, 0, 60, 0x12, 0x34, 0x40, 0, 64, 17, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2, 1, 1, 1, 0,
		0xc0, 1, 0x12, 0xb7, 0, 36, 0, 0,
	}
	v6 := append([]byte{0x66, 0xb0, 0, 0, 0, 36, 17, 64}, make([]byte, 32)...)
	v6[8], v6[23], v6[24], v6[39] = 0xfd, 1, 0xfd, 2
	v6 = append(v6, v4[24:]...)
	for _, c := range []struct {
		packet []byte
		want   bth.Datagram
	}{
		{v4, bth.Datagram{
			Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2"),
			TOS: 0x6b, ID: 0x1234, UDP: 24, End: 60, SPort: 0xc001, UDPLen: 36,
		}},
		{v6, bth.Datagram{
			Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2"),
			TOS: 0x6b, UDP: 40, End: 76, SPort: 0xc001, UDPLen: 36,
		}},
	} {
		d, ok := bth.ReadDatagram(bth.EtherType(c.packet), c.packet)
		if !ok || d != c.want || !d.Marked() {
			t.Errorf("%+v, %t; want %+v", d, ok, c.want)
		}
		for n := range c.packet {
			if d, ok := bth.ReadDatagram(bth.EtherType(c.packet[:n]), c.packet[:n]); ok {
				t.Errorf("%d bytes of a packet are %+v", n, d)
			}
		}
	}
	if got := bth.EtherType([]byte{0x50}); got != 0 {
		t.Errorf("version 5 is EtherType %#x", got)
	}
}
