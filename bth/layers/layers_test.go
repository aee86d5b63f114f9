package layers_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"roced.io/roced/bth"
	rocelayers "roced.io/roced/bth/layers"
	"roced.io/roced/internal/observe/pcapng"
)

// frames returns the Ethernet frames of all captures.
func frames(tb testing.TB) [][]byte {
	tb.Helper()
	files, err := filepath.Glob("../testdata/*.pcap")
	if err != nil || len(files) == 0 {
		tb.Fatalf("captures: %v, %v", files, err)
	}
	var all [][]byte
	for _, file := range files {
		fd, err := os.Open(file)
		if err != nil {
			tb.Fatal(err)
		}
		defer fd.Close()
		r, err := pcapng.NewReader(fd)
		if err != nil {
			tb.Fatal(err)
		}
		var f pcapng.Frame
		for err = r.Next(&f); err == nil; err = r.Next(&f) {
			all = append(all, bytes.Clone(f.Data))
		}
		if err != io.EOF {
			tb.Fatal(file, err)
		}
	}
	return all
}

func roceFrames(tb testing.TB) (roce [][]byte) {
	for _, f := range frames(tb) {
		if decode(f).Layer(rocelayers.LayerTypeBTH) != nil {
			roce = append(roce, f)
		}
	}
	if len(roce) < 500 {
		tb.Fatalf("captures hold %d RoCE frames", len(roce))
	}
	return roce
}

func decode(frame []byte) gopacket.Packet {
	return gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
}

// serializable returns the layers of p. The ICRC layer refers to its IP and UDP layers.
func serializable(tb testing.TB, p gopacket.Packet) (all []gopacket.SerializableLayer) {
	tb.Helper()
	var ip gopacket.SerializableLayer
	var udp *layers.UDP
	for _, l := range p.Layers() {
		s, ok := l.(gopacket.SerializableLayer)
		if !ok {
			tb.Fatalf("%v cannot be serialised", l.LayerType())
		}
		switch l := l.(type) {
		case *layers.IPv4, *layers.IPv6:
			ip = s
		case *layers.UDP:
			udp = l
		case *rocelayers.BTH:
			if err := l.SetLayersForICRC(ip, udp); err != nil {
				tb.Fatal(err)
			}
		}
		all = append(all, s)
	}
	return all
}

func TestCaptures(t *testing.T) {
	for _, frame := range roceFrames(t) {
		p := decode(frame)
		if e := p.ErrorLayer(); e != nil {
			t.Fatalf("%v\n%v", e.Error(), p)
		}
		if err := rocelayers.CheckICRC(p); err != nil {
			t.Errorf("ICRC: %v\n%v", err, p)
		}
		all := serializable(t, p)
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, all...); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(unpadded(buf, frame), frame) {
			t.Errorf("serialised\n%x, captured\n%x", buf.Bytes(), frame)
		}
		p.Layer(rocelayers.LayerTypeBTH).(*rocelayers.BTH).ICRC = 0
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
			t.Fatal(err)
		}
		if err := rocelayers.CheckICRC(decode(buf.Bytes())); !errors.Is(err, bth.ErrICRC) {
			t.Errorf("ICRC 0: %v", err)
		}
		checkComputed(t, frame, all)
	}
}

// unpadded returns the content of buf without the padding to 60 bytes. gopacket's Ethernet layer adds that padding;
// short frames of the captures lack it.
func unpadded(buf gopacket.SerializeBuffer, frame []byte) []byte {
	b := buf.Bytes()
	if len(b) == 60 && len(frame) < 60 {
		b = b[:len(frame)]
	}
	return b
}

// checkComputed serialises with all computed fields. Over IPv4 the UDP checksum differs from the captures, where it
// is 0; the ICRC does not differ.
func checkComputed(t *testing.T, frame []byte, all []gopacket.SerializableLayer) {
	t.Helper()
	for _, l := range all {
		if udp, ok := l.(*layers.UDP); ok {
			if err := udp.SetNetworkLayerForChecksum(all[1].(gopacket.NetworkLayer)); err != nil {
				t.Fatal(err)
			}
		}
	}
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, all...); err != nil {
		t.Fatal(err)
	}
	n := len(frame)
	if got := unpadded(buf, frame); len(got) != n || !bytes.Equal(got[n-4:], frame[n-4:]) {
		t.Errorf("computed\n%x, captured\n%x", got, frame)
	}
}

func TestLazyDecoding(t *testing.T) {
	for _, frame := range roceFrames(t)[:100] {
		lazy := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Lazy)
		if a, b := decode(frame).String(), lazy.String(); a != b {
			t.Fatalf("lazy %s, eager %s", b, a)
		}
	}
}

func TestLayerOrder(t *testing.T) {
	for o, want := range map[bth.Opcode]string{
		0x00: "BTH Payload",
		0x03: "BTH ImmDt Payload",
		0x0b: "BTH RETH ImmDt Payload",
		0x0c: "BTH RETH",
		0x0d: "BTH AETH Payload",
		0x12: "BTH AETH AtomicAckETH",
		0x13: "BTH AtomicETH",
		0x17: "BTH IETH Payload",
		0x65: "BTH DETH ImmDt Payload",
		0x81: "BTH Payload",
		0xe7: "BTH XETH RETH Payload",
		0xf7: "BTH XETH IETH Payload",
		0xff: "BTH XETH AETH",
		0xfe: "BTH Payload", // unknown
		0xc7: "BTH METH RETH Payload",
		0xcb: "BTH METH RETH ImmDt Payload",
		0xd1: "BTH AETH",
		0xdc: "BTH SETH CCState",
		0xdd: "BTH NETH",
		0xde: "BTH PETH",
		0xd8: "BTH ERTH",
		0xd9: "BTH EETH",
	} {
		datagram := datagramOf(o)
		var got []string
		for _, l := range gopacket.NewPacket(datagram, rocelayers.LayerTypeBTH, gopacket.Default).Layers() {
			got = append(got, l.LayerType().String())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%v: %s, want %s", o, s, want)
		}
		var stack rocelayers.Stack
		parser := gopacket.NewDecodingLayerParser(rocelayers.LayerTypeBTH, stack.Layers()...)
		var types []gopacket.LayerType
		if err := parser.DecodeLayers(datagram, &types); err != nil {
			t.Errorf("%v: %v", o, err)
		}
		got = got[:0]
		for _, lt := range types {
			got = append(got, lt.String())
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%v: parser gives %s, want %s", o, s, want)
		}
	}
}

// TestExtensionHeader decodes and serialises headers of a later revision and with reserved bits.
func TestExtensionHeader(t *testing.T) {
	h := bth.XETH{Profile: bth.ProfileMELO, Flags: bth.XHasMsg | bth.XHasPath | bth.XECE, MSN: 5, Offset: 6, Path: 7}
	h.SetHoles([]bth.Hole{{Start: bth.MakePSN(8), Len: 9}})
	header := make([]byte, h.Len())
	h.Put(header)
	later := append(bytes.Clone(header), 1, 2, 3, 4)
	later[0]++
	reserved := bytes.Clone(later)
	reserved[4], reserved[12], reserved[16] = 0xff, 0x80, 1 // MSN, path, first hole
	for _, want := range [][]byte{header, later, reserved} {
		p := gopacket.NewPacket(append(bytes.Clone(want), 0xff), rocelayers.LayerTypeXETH, gopacket.Default)
		x, ok := p.Layer(rocelayers.LayerTypeXETH).(*rocelayers.XETH)
		if !ok || x.XETH != h || len(x.LayerPayload()) != 1 {
			t.Fatalf("%v", p)
		}
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, x); err != nil || !bytes.Equal(buf.Bytes(), want) {
			t.Errorf("%x, %v, want %x", buf.Bytes(), err, want)
		}
	}
}

func datagramOf(o bth.Opcode) []byte {
	p := bth.Packet{Opcode: o, Ext: bth.XETH{Flags: bth.XHasMsg}}
	if !o.Valid() {
		p.Opcode = 0
	}
	if !o.Valid() || o.HasPayload() {
		p.Payload = make([]byte, 16)
	}
	b := p.AppendTo(nil)
	b[0] = byte(o)
	return b
}

func TestParserDoesNotAllocate(t *testing.T) {
	var eth layers.Ethernet
	var ip layers.IPv4
	var udp layers.UDP
	var roce rocelayers.Stack
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, append(roce.Layers(), &eth, &ip, &udp)...)
	frame := roceFrames(t)[len(roceFrames(t))/2]
	types := make([]gopacket.LayerType, 0, 10)
	run := func() {
		if err := parser.DecodeLayers(frame, &types); err != nil || !slices.Contains(types, rocelayers.LayerTypeBTH) {
			t.Fatal(err, types)
		}
		if err := roce.BTH.CheckICRC(&ip, &udp); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestExtensionHeaders verifies the ICRC of packets with extension headers of IPv6, decoded with a parser.
func TestExtensionHeaders(t *testing.T) {
	body := (&bth.Packet{Opcode: bth.OpAcknowledge, PKey: bth.DefaultPKey, DestQP: 17}).AppendTo(nil)
	for name, extensions := range map[string][]byte{
		"none": nil, "hop by hop": {17, 0, 1, 4, 0, 0, 0, 0}, "destination": {17, 0, 1, 4, 0, 0, 0, 0},
		"both": {60, 0, 1, 4, 0, 0, 0, 0, 17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		n := byte(len(extensions) + 8 + len(body))
		b := append([]byte{0x60, 0, 0, 0, 0, n, 0, 64}, make([]byte, 32)...)
		if name == "none" {
			b[6] = 17
		} else if name == "destination" {
			b[6] = 60
		}
		b = append(append(b, extensions...), 0xc0, 0, 0x12, 0xb7, 0, byte(8+len(body)), 0, 0)
		at := len(b)
		b = append(b, body...)
		crc := bth.ICRCUpdate(bth.ICRCStart(b[:at-8], b[at-8:], b[at:at+bth.BTHLen]), b[at+bth.BTHLen:len(b)-bth.ICRCLen])
		bth.PutICRC(b[len(b)-bth.ICRCLen:], crc)
		var ip layers.IPv6
		var skip layers.IPv6ExtensionSkipper
		var udp layers.UDP
		var roce rocelayers.BTH
		parser := gopacket.NewDecodingLayerParser(layers.LayerTypeIPv6, &ip, &skip, &udp, &roce)
		parser.IgnoreUnsupported = true
		var types []gopacket.LayerType
		if err := parser.DecodeLayers(b, &types); err != nil || !slices.Contains(types, rocelayers.LayerTypeBTH) {
			t.Fatal(name, err, types)
		}
		if err := roce.CheckICRC(&ip, &udp); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ip.HopByHop != nil && len(extensions) == 8 {
			if err := roce.SetLayersForICRC(&ip, &udp); err != nil {
				t.Fatal(err)
			}
			want, buf := bytes.Clone(body[:len(body)-bth.ICRCLen]), gopacket.NewSerializeBuffer()
			err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, &roce, gopacket.Payload(roce.Payload))
			if err != nil || !bytes.Equal(buf.Bytes(), append(want, b[len(b)-bth.ICRCLen:]...)) {
				t.Errorf("%s: serialised %x, %v", name, buf.Bytes(), err)
			}
		}
		b[len(b)-5]++
		if err := roce.CheckICRC(&ip, &udp); !errors.Is(err, bth.ErrICRC) {
			t.Errorf("%s, changed: %v", name, err)
		}
	}
}

func TestCheckICRCWithoutVerdict(t *testing.T) {
	frame := roceFrames(t)[0]
	for name, c := range map[string]struct {
		packet gopacket.Packet
		want   error
	}{
		"no UDP":    {decode(frame[:20]), rocelayers.ErrNoBTH},
		"no IP":     {gopacket.NewPacket(frame[42:], rocelayers.LayerTypeBTH, gopacket.Default), rocelayers.ErrNoBTH},
		"truncated": {decode(frame[:len(frame)-1]), rocelayers.ErrTruncated},
	} {
		if err := rocelayers.CheckICRC(c.packet); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	read := datagramOf(0x0c)
	badPad := datagramOf(0x11)
	badPad = append(badPad[:bth.BTHLen:bth.BTHLen], 0, 0, 0, 0)
	badPad[1] = 0x30
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"short BTH":  {read[:15], bth.ErrShort},
		"short RETH": {read[:26], bth.ErrShort},
		"pad":        {badPad, bth.ErrPad},
		"version":    {append([]byte{0xe0}, make([]byte, 19)...), bth.ErrExtVersion},
	} {
		p := gopacket.NewPacket(c.data, rocelayers.LayerTypeBTH, gopacket.Default)
		if e := p.ErrorLayer(); e == nil || !errors.Is(e.Error(), c.want) {
			t.Errorf("%s: %v", name, p)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{ComputeChecksums: true}, &rocelayers.BTH{}); err == nil {
		t.Error("an ICRC without IP and UDP")
	}
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, &rocelayers.BTH{PadCount: 4}); !errors.Is(err, bth.ErrPad) {
		t.Errorf("pad count 4: %v", err)
	}
	if (&rocelayers.BTH{}).SetLayersForICRC(&layers.TCP{}, nil) == nil {
		t.Error("an ICRC over TCP")
	}
}

func FuzzLayers(f *testing.F) {
	for i, frame := range roceFrames(f) {
		if i%40 == 0 {
			f.Add(frame)
		}
	}
	for _, o := range []bth.Opcode{0xc6, 0xcb, 0xd8, 0xd9, 0xdc, 0xdd, 0xde} {
		f.Add(datagramOf(o))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		opts := gopacket.DecodeOptions{SkipDecodeRecovery: true}
		p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		_ = rocelayers.CheckICRC(p)
		p = gopacket.NewPacket(frame, rocelayers.LayerTypeBTH, opts)
		if p.ErrorLayer() != nil || len(frame) == 0 {
			return
		}
		var all []gopacket.SerializableLayer
		for _, l := range p.Layers() {
			all = append(all, l.(gopacket.SerializableLayer))
		}
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, all...); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(buf.Bytes(), frame) {
			t.Fatalf("serialised %x, was %x", buf.Bytes(), frame)
		}
	})
}

// TestMRC decodes and serialises packets of MRC with reserved bits, also at MRC's other port.
func TestMRC(t *testing.T) {
	for _, o := range []bth.Opcode{0xc6, 0xcb, 0xd1, 0xd8, 0xd9, 0xdc, 0xdd, 0xde} {
		p := bth.Packet{Opcode: o, Stamped: true, ReTx: true}
		b := p.AppendTo(nil)
		for i := bth.BTHLen; i < len(b); i++ {
			b[i] = 0xff
		}
		packet := gopacket.NewPacket(b, rocelayers.LayerTypeBTH, gopacket.Default)
		if e := packet.ErrorLayer(); e != nil || (packet.Layer(rocelayers.LayerTypeTSETH) != nil) != o.IsWrite() {
			t.Fatal(packet)
		}
		var all []gopacket.SerializableLayer
		for _, l := range packet.Layers() {
			all = append(all, l.(gopacket.SerializableLayer))
		}
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{}, all...); err != nil || !bytes.Equal(buf.Bytes(), b) {
			t.Errorf("%v: %x, %v, want %x", o, buf.Bytes(), err, b)
		}
	}
	udp := &layers.UDP{SrcPort: 49152, DstPort: bth.MRCUDPPort}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true}, udp, gopacket.Payload(datagramOf(0xdc))); err != nil {
		t.Fatal(err)
	}
	if p := gopacket.NewPacket(buf.Bytes(), layers.LayerTypeUDP, gopacket.Default); p.Layer(rocelayers.LayerTypeSETH) == nil {
		t.Error(p)
	}
}
