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
		"ip.frag": true, "ip.proto": true, "udp.dport": true, "opcode": true, "ip.len": true, "pad": true} // decide how a frame is parsed
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
					if plain.field(y.Name) != y || y.bits > 64 || derived[y.Name] && y != x {
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

// TestExtensionFields sets each field of the extension header.
func TestExtensionFields(t *testing.T) {
	s := v4
	s.Opcode, _ = Opcode("EXT_SEND_ONLY")
	for i := range extFields {
		name := extFields[i].name
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
		"bth: invariant CRC does not match":                     func(s *Spec) { s.BadICRC = true },
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
		"SEND_ONLY has no field msn":                {Name: "msn", Value: 1},
		"psn=0x1000000: the field has 24 bits":      {Name: "psn", Value: 1 << 24},
		"x.sack: SEND_ONLY has no extension header": {Name: "x.sack", Value: 1},
		"ip.src: 16 bytes for a field of 32 bits":   {Name: "ip.src", Bytes: make([]byte, 16)},
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
	paths, err := filepath.Glob("../../../bth/testdata/*.pcap")
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
