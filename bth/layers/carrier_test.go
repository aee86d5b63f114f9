package layers_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	rocelayers "roced.io/roced/bth/layers"
)

// TestCarriers decodes headers of encapsulations and serialises them to the same bytes.
func TestCarriers(t *testing.T) {
	srh := &rocelayers.SRH{NextHeader: layers.IPProtocolUDP, SegmentsLeft: 1, LastEntry: 1, Flags: 3, Tag: 0x1234,
		Segments: []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")}, TLVs: []byte{4, 6, 0, 0, 0, 0, 0, 0}}
	erspan := &rocelayers.ERSPANIII{Version: 2, VLANIdentifier: 0xabc, CoS: 5, BadShort: 2, IsTruncated: true, SessionID: 0x3a5, Timestamp: 1, SecurityGroup: 2,
		PDU: true, FrameType: 2, HardwareID: 0x2a, Egress: true, Granularity: 2, Platform: []byte{1, 2, 3, 4, 5, 6, 7, 8}}
	for _, l := range []gopacket.SerializableLayer{srh, &rocelayers.SRH{NextHeader: layers.IPProtocolIPv6}, erspan, &rocelayers.ERSPANIII{FrameType: 31}} {
		want := bytes.Clone(header(t, l))
		p := gopacket.NewPacket(want, l.LayerType(), gopacket.DecodeOptions{SkipDecodeRecovery: true, Lazy: true})
		got, ok := p.Layer(l.LayerType()).(gopacket.SerializableLayer)
		if !ok || !bytes.Equal(header(t, got), want) {
			t.Errorf("%v: %v, serialised %x, want %x", l.LayerType(), p, header(t, got), want)
		}
		for n := range want {
			cut := gopacket.NewPacket(want[:n], l.LayerType(), gopacket.DecodeOptions{SkipDecodeRecovery: true})
			if cut.Layer(l.LayerType()) != nil {
				t.Errorf("%v of %d bytes: %v", l.LayerType(), n, cut)
			}
		}
	}
	bad := header(t, srh)
	bad[4] = 9 // last entry
	if p := gopacket.NewPacket(bad, rocelayers.LayerTypeSRH, gopacket.Default); p.Layer(rocelayers.LayerTypeSRH) != nil {
		t.Error(p)
	}
}

func header(t *testing.T, l gopacket.SerializableLayer) []byte {
	t.Helper()
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, l); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
