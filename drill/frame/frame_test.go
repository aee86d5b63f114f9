package frame

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/pcapng"
)

var v4 = Spec{SrcMAC: [6]byte{2, 0, 0, 0, 0, 1}, DstMAC: [6]byte{2, 0, 0, 0, 0, 2},
	Src: netip.MustParseAddr("198.18.0.1"), Dst: netip.MustParseAddr("198.18.0.2")}

var v6 = Spec{SrcMAC: v4.SrcMAC, DstMAC: v4.DstMAC, Src: netip.MustParseAddr("fd00::1"), Dst: netip.MustParseAddr("fd00::2")}

// TestBuildEveryOpcode builds a frame of each opcode over IPv4, IPv6 and VLANs. The frame is right, and parsing it gives the
// fields that were set.
func TestBuildEveryOpcode(t *testing.T) {
	for _, name := range Opcodes() {
		op, _ := Opcode(name)
		for i, s := range []Spec{v4, v6, v4} {
			s.Opcode, s.VLAN = op, i == 2
			s.Fields = []Set{{Name: "psn", Value: 77}, {Name: "dst", Value: 0x123456}}
			if op.HasPayload() {
				s.Payload = []byte("payload")
			}
			f, err := s.Build()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got, err := Parse(bytes.Clone(f.Bytes))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := got.Check(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if got.PSN() != bth.MakePSN(77) || !bytes.Equal(got.Payload, s.Payload) || got.String() != f.String() {
				t.Errorf("%s: parsed as %v, built as %v", name, got, f)
			}
		}
	}
}

// TestEveryField sets each field to ones and to a pattern. The field has the value, and no other named field changes.
func TestEveryField(t *testing.T) {
	derived := map[string]bool{"ip.len": true, "ip.csum": true, "udp.len": true, "udp.csum": true, "icrc": true}
	parsed := map[string]bool{"eth.type": true, "vlan.type": true, "ip.version": true, "ip.ihl": true, "ip.flags": true,
		"ip.frag": true, "ip.proto": true, "udp.dport": true, "opcode": true, "ip.len": true, "pad": true,
		"x.version": true, "x.length": true} // decide how a frame is parsed
	for _, name := range Opcodes() {
		for i, s := range []Spec{v4, v6} {
			s.Opcode, _ = Opcode(name)
			s.VLAN = i == 0
			plain, err := s.Build()
			if err != nil {
				t.Fatal(err)
			}
			for j := range fields {
				x := &fields[j]
				if plain.field(x.Name) != x || x.bits > 64 {
					continue
				}
				v := uint64(0xa5a5a5a5a5a5a5a5) >> (64 - x.bits)
				s.Fields = []Set{{Name: x.Name, Value: v}}
				f, err := s.Build()
				if err != nil {
					t.Fatal(err)
				}
				for k := range fields {
					y := &fields[k]
					if plain.field(y.Name) != y || y.bits > 64 || y != x && (derived[y.Name] || overlap(x, y)) {
						continue
					}
					want := y.get(plain.Bytes[plain.off[y.hdr]:])
					if y == x {
						want = v
					}
					if got := y.get(f.Bytes[f.off[y.hdr]:]); got != want {
						t.Errorf("%s: with %s=%#x, %s is %#x, want %#x", name, x.Name, v, y.Name, got, want)
					}
				}
				if derived[x.Name] || parsed[x.Name] || x.hdr == hdrEthernet && x.Name == "eth.type" {
					continue
				}
				if g, err := Parse(f.Bytes); err != nil && s.Opcode.Valid() {
					t.Errorf("%s with %s=%#x: %v", name, x.Name, v, err)
				} else if err := g.Check(); err != nil {
					t.Errorf("%s with %s=%#x: %v", name, x.Name, v, err)
				}
			}
		}
	}
}

// overlap reports whether two fields share bits: those of MRC are reserved bits of others.
func overlap(x, y *Field) bool {
	return x.hdr == y.hdr && x.bit < y.bit+y.bits && y.bit < x.bit+x.bits
}

// TestMRCFields compares frames of MRC with the codec.
func TestMRCFields(t *testing.T) {
	s := v4
	s.Opcode, s.Payload = bth.TransportMRC|bth.OpWriteOnly, []byte("data")
	s.Fields = []Set{{Name: "m.ts", Value: 1}, {Name: "m.rtx", Value: 1}, {Name: "m.msn", Value: 7}, {Name: "t.time", Value: 9}, {Name: "t.format", Value: 1}, {Name: "va", Value: 5}}
	check := func(want bth.Packet) {
		t.Helper()
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		want.Opcode, want.PKey = s.Opcode, bth.DefaultPKey
		if b, got := want.AppendTo(nil), f.Bytes[f.off[hdrBTH]:f.end]; !bytes.Equal(got[:len(got)-bth.ICRCLen], b[:len(b)-bth.ICRCLen]) {
			t.Errorf("%v\n%x, want\n%x", f, got, b)
		}
	}
	check(bth.Packet{ReTx: true, Stamped: true, METH: bth.METH{MSN: 7}, TSETH: bth.TSETH{Timestamp: 9, Format: 1}, RETH: bth.RETH{VA: 5}, Payload: s.Payload})
	s.Opcode, s.Payload = bth.OpcodeMRCSACK, nil
	s.Fields = []Set{{Name: "s.mark", Value: 1}, {Name: "s.pr", Value: 1}, {Name: "s.ack", Value: 2}, {Name: "s.ev", Value: 3}, {Name: "s.src", Value: 4},
		{Name: "s.dst", Value: 5}, {Name: "s.cack", Value: 6}, {Name: "s.cctype", Value: 7}, {Name: "s.ccfl", Value: 8}, {Name: "s.mpr", Value: 9},
		{Name: "s.base", Value: 10}, {Name: "s.bitmap", Value: 11}, {Name: "c.time", Value: 12}, {Name: "c.ooo", Value: 13}, {Name: "c.restore", Value: 1},
		{Name: "c.penalty", Value: 14}, {Name: "c.received", Value: 15}}
	check(bth.Packet{SETH: bth.SETH{Mark: 1, ProbeReply: true, AckOffset: 2, Entropy: 3, SrcContext: 4, DestContext: 5, Cack: bth.MakePSN(6), CCType: 7,
		CCFlags: 8, MPR: 9, SACKOffset: 10, Bitmap: 11}, CCState: bth.CCState{Timestamp: 12, OutOfOrder: 13, Restore: true, Penalty: 14, Received: 15}})
	s.Opcode = bth.OpcodeMRCNACK
	s.Fields = []Set{{Name: "n.reason", Value: 1}, {Name: "n.vendor", Value: 2}, {Name: "n.ev", Value: 3}, {Name: "n.src", Value: 4}, {Name: "n.dst", Value: 5},
		{Name: "n.psn", Value: 6}, {Name: "n.cctype", Value: 7}, {Name: "n.ccfl", Value: 8}, {Name: "n.time", Value: 9}}
	check(bth.Packet{NETH: bth.NETH{Reason: 1, Vendor: 2, Entropy: 3, SrcContext: 4, DestContext: 5, PSN: bth.MakePSN(6), CCType: 7, CCFlags: 8, Timestamp: 9}})
	s.Opcode = bth.OpcodeMRCProbe
	s.Fields = []Set{{Name: "p.vendor", Value: 1}, {Name: "p.id", Value: 2}, {Name: "p.src", Value: 3}, {Name: "p.dst", Value: 4}, {Name: "p.time", Value: 5}, {Name: "p.format", Value: 1}}
	check(bth.Packet{PETH: bth.PETH{Vendor: 1, ProbeID: 2, SrcContext: 3, DestContext: 4, TSETH: bth.TSETH{Timestamp: 5, Format: 1}}})
	s.Opcode = bth.OpcodeMRCEndpointRequest
	s.Fields = []Set{{Name: "e.op", Value: 1}, {Name: "e.vendor", Value: 2}, {Name: "e.ports", Value: 3}, {Name: "e.time", Value: 4}, {Name: "e.format", Value: 1}}
	check(bth.Packet{ERTH: bth.ERTH{Op: 1, Vendor: 2, PortMask: 3, TSETH: bth.TSETH{Timestamp: 4, Format: 1}}})
	s.Opcode = bth.OpcodeMRCEndpointResponse
	s.Fields = []Set{{Name: "r.op", Value: 1}, {Name: "r.time", Value: 2}}
	check(bth.Packet{EETH: bth.EETH{Op: 1, Timestamp: 2}})
}

// TestExtensionFields sets each field of the extension header.
func TestExtensionFields(t *testing.T) {
	s := v4
	s.Opcode, _ = Opcode("EXT_SEND_ONLY")
	for i := range fields {
		name, x := fields[i].Name, fields[i].hdr
		if x < hdrExtension || x > hdrExtHole3 || name == "x.version" || name == "x.length" {
			continue
		}
		s.Fields = []Set{{Name: "x.len1", Value: 1}, {Name: "x.len2", Value: 1}, {Name: "x.len3", Value: 1}, {Name: name, Value: 1}}
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		g, err := Parse(f.Bytes)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if v, ok := g.Get(name); v != 1 || !ok {
			t.Errorf("%s is %d", name, v)
		}
	}
}

// TestWrong builds frames with one fault each; Check reports it.
func TestWrong(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"wrong IPv4 header checksum":                            func(s *Spec) { s.Fields = []Set{{Name: "ip.csum", Value: 1}} },
		"UDP length 9 of a datagram of 28 bytes":                func(s *Spec) { s.Fields = []Set{{Name: "udp.len", Value: 9}} },
		"wrong UDP checksum 0x0001":                             func(s *Spec) { s.Fields = []Set{{Name: "udp.csum", Value: 1}} },
		"the packet is not a multiple of four bytes: wrong pad": func(s *Spec) { s.Padding = []byte{} },
		"wrong ICRC 0xbcd20818, the packet has 0x432df7e7":      func(s *Spec) { s.BadICRC = true },
	} {
		s := v4
		s.Opcode, _ = Opcode("SEND_ONLY")
		s.Payload = []byte("abc")
		change(&s)
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Check(); err == nil || err.Error() != name {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

// TestRefusals: a field that the packet does not have, or a value that does not fit, is an error of the script.
func TestRefusals(t *testing.T) {
	for want, set := range map[string]Set{
		"SEND_ONLY has no field msn":              {Name: "msn", Value: 1},
		"psn=0x1000000: the field has 24 bits":    {Name: "psn", Value: 1 << 24},
		"SEND_ONLY has no field x.sack":           {Name: "x.sack", Value: 1},
		"ip.src: 16 bytes for a field of 32 bits": {Name: "ip.src", Bytes: make([]byte, 16)},
	} {
		s := v4
		s.Opcode, _ = Opcode("SEND_ONLY")
		s.Fields = []Set{set}
		if _, err := s.Build(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestCaptures parses the frames of Linux' Soft-RoCE. All of them are right.
func TestCaptures(t *testing.T) {
	paths, err := filepath.Glob("../../bth/testdata/*.pcap")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pcapng.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		frames := 0
		for c := (pcapng.Frame{}); r.Next(&c) == nil; {
			f, err := Parse(bytes.Clone(c.Data))
			if err != nil {
				continue
			}
			frames++
			if err := f.Check(); err != nil {
				t.Errorf("%s: %v: %v", path, f, err)
			}
		}
		if frames == 0 {
			t.Errorf("%s: no frames", path)
		}
	}
}

// FuzzParse: no frame makes the parser or the printer fail.
func FuzzParse(f *testing.F) {
	for _, name := range Opcodes() {
		s := v4
		s.Opcode, _ = Opcode(name)
		if x, err := s.Build(); err == nil {
			f.Add(x.Bytes)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := Parse(b); err == nil {
			_ = x.String()
		}
	})
}
