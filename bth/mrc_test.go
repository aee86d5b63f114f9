package bth_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

// drawMRC draws the headers of MRC that p has.
func drawMRC(t *rapid.T, p *bth.Packet) {
	u16, u32, u8, u4 := rapid.Uint16(), rapid.Uint32(), rapid.Byte(), rapid.Uint8Range(0, 15)
	flag := rapid.Bool()
	psn := func() bth.PSN { return bth.MakePSN(u32.Draw(t, "psn")) }
	stamp := func() bth.TSETH {
		return bth.TSETH{Timestamp: u16.Draw(t, "time"), Coarse: flag.Draw(t, "coarse"), Format: u4.Draw(t, "format")}
	}
	op := func() bth.MRCEndpointOp { return bth.MRCEndpointOp(rapid.Uint8Range(0, 3).Draw(t, "op")) }
	p.ReTx, p.Stamped = flag.Draw(t, "retx"), flag.Draw(t, "stamped")
	switch o := p.Opcode; {
	case o.IsWrite():
		p.METH = bth.METH{RQMSN: u16.Draw(t, "rqmsn"), MSN: u16.Draw(t, "msn")}
		if p.Stamped {
			p.TSETH = stamp()
		}
	case o.IsSACK():
		p.SETH = bth.SETH{Mark: bth.MRCMark(rapid.Uint8Range(0, 3).Draw(t, "mark")), ProbeReply: flag.Draw(t, "pr"),
			AckOffset: rapid.Int16().Draw(t, "offset"), Entropy: u32.Draw(t, "ev"), SrcContext: u16.Draw(t, "src"),
			DestContext: u16.Draw(t, "dst"), Cack: psn(), CCType: u4.Draw(t, "type"), CCFlags: u4.Draw(t, "fl"), MPR: u8.Draw(t, "mpr"),
			SACKOffset: rapid.Int16().Draw(t, "base"), Bitmap: rapid.Uint64().Draw(t, "bitmap")}
		p.CCState = bth.CCState{Timestamp: u16.Draw(t, "time"), OutOfOrder: rapid.Uint16Range(0, 1<<15-1).Draw(t, "ooo"),
			Restore: flag.Draw(t, "restore"), Penalty: rapid.Uint8Range(0, 127).Draw(t, "penalty"), Received: psn().Uint32()}
	case o.IsNACK():
		p.NETH = bth.NETH{Reason: bth.MRCReason(u8.Draw(t, "reason")), Vendor: u8.Draw(t, "vendor"), Entropy: u32.Draw(t, "ev"),
			SrcContext: u16.Draw(t, "src"), DestContext: u16.Draw(t, "dst"), PSN: psn(), CCType: u4.Draw(t, "type"),
			CCFlags: u4.Draw(t, "fl"), Timestamp: u16.Draw(t, "time")}
	case o.IsProbe():
		p.PETH = bth.PETH{Vendor: u8.Draw(t, "vendor"), ProbeID: u16.Draw(t, "id"), SrcContext: u16.Draw(t, "src"),
			DestContext: u16.Draw(t, "dst"), TSETH: stamp()}
	case o == bth.OpcodeMRCEndpointRequest:
		p.ERTH = bth.ERTH{Op: op(), Vendor: u8.Draw(t, "vendor"), PortMask: u32.Draw(t, "ports"), TSETH: stamp()}
	case o == bth.OpcodeMRCEndpointResponse:
		p.EETH = bth.EETH{Op: op(), Timestamp: u16.Draw(t, "time")}
	}
}

// mrcVectors are packets of MRC without ICRC. The bytes follow the tables of public descriptions. An independent
// decoder agrees with them, except about the operation in an EETH (see docs/results/mrc-choices.md).
var mrcVectors = []struct {
	name, hex string
	packet    bth.Packet
}{
	{"write first", "c600ffff00123456 20000105 0000 0007 1122334455667788 99aabbcc 00001000 61626364",
		bth.Packet{Opcode: 0xc6, ReTx: true, DestQP: 0x123456, PSN: bth.MakePSN(0x105), METH: bth.METH{MSN: 7},
			RETH: bth.RETH{VA: 0x1122334455667788, RKey: 0x99aabbcc, Length: 0x1000}, Payload: []byte("abcd")}},
	{"stamped write with immediate", "cb10ffff00123456 90000106 0003 0008 beef 80 01 1122334455667788 99aabbcc 00000003 cafebabe 616263 00",
		bth.Packet{Opcode: 0xcb, AckReq: true, Stamped: true, DestQP: 0x123456, PSN: bth.MakePSN(0x106), METH: bth.METH{RQMSN: 3, MSN: 8},
			TSETH: bth.TSETH{Timestamp: 0xbeef, Coarse: true, Format: bth.MRCFormatTimestamp}, Imm: 0xcafebabe,
			RETH: bth.RETH{VA: 0x1122334455667788, RKey: 0x99aabbcc, Length: 3}, Payload: []byte("abc")}},
	{"acknowledge", "d100ffff00123456 00000106 1f 000008",
		bth.Packet{Opcode: 0xd1, DestQP: 0x123456, PSN: bth.MakePSN(0x106), AETH: bth.AETH{Syndrome: bth.SyndromeACK, MSN: 8}}},
	{"sack", "dc00ffff00123456 00000010 00 20 fffe deadbeef 0102 0304 00 000010 0a 02 0005 8000000000000001 beef 1234 95 abcdef",
		bth.Packet{Opcode: 0xdc, DestQP: 0x123456, PSN: bth.MakePSN(0x10), SETH: bth.SETH{Mark: bth.MRCMarkSkip, AckOffset: -2,
			Entropy: 0xdeadbeef, SrcContext: 0x0102, DestContext: 0x0304, Cack: bth.MakePSN(0x10), CCFlags: 10, MPR: 2, SACKOffset: 5,
			Bitmap: 1<<63 | 1}, CCState: bth.CCState{Timestamp: 0xbeef, OutOfOrder: 0x1234, Restore: true, Penalty: 0x15, Received: 0xabcdef}}},
	{"sack of a probe", "dc00ffff00123456 00fffffe 00 42 9999 00000001 0000 0000 00 fffffe 00 00 ffff 0000000000000000 0000 0000 00 000001",
		bth.Packet{Opcode: 0xdc, DestQP: 0x123456, PSN: bth.MakePSN(0xfffffe), SETH: bth.SETH{Mark: bth.MRCMarkRemove, ProbeReply: true,
			AckOffset: -0x6667, Entropy: 1, Cack: bth.MakePSN(0xfffffe), SACKOffset: -1}, CCState: bth.CCState{Received: 1}}},
	{"nack", "dd00ffff00123456 00123457 0000 0b 77 cafef00d 0102 0304 00 123457 23 00 4321",
		bth.Packet{Opcode: 0xdd, DestQP: 0x123456, PSN: bth.MakePSN(0x123457), NETH: bth.NETH{Reason: bth.MRCOutOfWindow, Vendor: 0x77,
			Entropy: 0xcafef00d, SrcContext: 0x0102, DestContext: 0x0304, PSN: bth.MakePSN(0x123457), CCType: bth.MRCStateNACK, CCFlags: 3,
			Timestamp: 0x4321}}},
	{"probe", "de00ffff00123456 00000000 0000 00 5a 9999 0000 0304 0102 1111 80 01",
		bth.Packet{Opcode: 0xde, DestQP: 0x123456, PETH: bth.PETH{Vendor: 0x5a, ProbeID: 0x9999, SrcContext: 0x0304, DestContext: 0x0102,
			TSETH: bth.TSETH{Timestamp: 0x1111, Coarse: true, Format: bth.MRCFormatTimestamp}}}},
	{"port status", "d800ffff00000002 0000abcd 00 00 00 42 0000000f 00000000 2222 00 01",
		bth.Packet{Opcode: 0xd8, DestQP: bth.MRCEndpointQPN, PSN: bth.MakePSN(0xabcd), ERTH: bth.ERTH{Op: bth.MRCPortStatus, Vendor: 0x42,
			PortMask: 0xf, TSETH: bth.TSETH{Timestamp: 0x2222, Format: bth.MRCFormatTimestamp}}}},
	{"probe of an entropy value", "d800ffff00000002 0000abce 00 01 00 00 00000000 00000000 2222 00 01",
		bth.Packet{Opcode: 0xd8, DestQP: bth.MRCEndpointQPN, PSN: bth.MakePSN(0xabce), ERTH: bth.ERTH{Op: bth.MRCEVProbe,
			TSETH: bth.TSETH{Timestamp: 0x2222, Format: bth.MRCFormatTimestamp}}}},
	{"endpoint response", "d900ffff00000002 0000abce 00 04 0000 000000000000000000000000000000000000000000000000 3333 0000 00000000",
		bth.Packet{Opcode: 0xd9, DestQP: bth.MRCEndpointQPN, PSN: bth.MakePSN(0xabce), EETH: bth.EETH{Op: bth.MRCEVProbe, Timestamp: 0x3333}}},
}

func TestMRCVectors(t *testing.T) {
	for _, v := range mrcVectors {
		want, err := hex.DecodeString(strip(v.hex) + "00000000")
		if err != nil {
			t.Fatal(v.name, err)
		}
		p := v.packet
		p.PKey = bth.DefaultPKey
		if got := p.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded\n%x, want\n%x", v.name, got, want)
		}
		var q bth.Packet
		if err := q.Decode(want); err != nil {
			t.Errorf("%s: %v", v.name, err)
		} else if d := cmp.Diff(p, q, samePacket); d != "" {
			t.Errorf("%s: %s", v.name, d)
		}
	}
}

// TestMRCReserved sets all reserved bits: they are ignored.
func TestMRCReserved(t *testing.T) {
	for o, reserved := range map[bth.Opcode]string{
		0xca: "00000000 0000 7f f0",
		0xdc: "ff9d 0000 00000000 00000000 ff000000 00 00 0000 0000000000000000 0000 8000",
		0xdd: "ffff 00 00 00000000 00000000 ff000000 00 ff",
		0xde: "ffff ff 00 0000 ffff 00000000 0000 7f f0",
		0xd8: "ff fc ff 00 00000000 ffffffff 0000 7f f0",
		0xd9: "ff f3 ffff ffffffffffffffffffffffffffffffffffffffffffffffff 0000 ffff ffffffff",
	} {
		p := bth.Packet{Opcode: o, Stamped: o.IsWrite()}
		b := p.AppendTo(nil)
		bits, err := hex.DecodeString(strip(reserved))
		if err != nil {
			t.Fatal(o, err)
		}
		for i, v := range bits {
			b[bth.BTHLen+i] |= v
		}
		b[8] |= 0x4f
		var q bth.Packet
		if err := q.Decode(b); err != nil {
			t.Errorf("%v: %v", o, err)
		} else if d := cmp.Diff(p, q, samePacket); d != "" {
			t.Errorf("%v: %s", o, d)
		}
	}
	rc := bth.Packet{Opcode: 4, AckReq: true, ReTx: true, Stamped: true}
	b := rc.AppendTo(nil)
	if b[8] != 0x80 {
		t.Errorf("byte 8 of an RC packet is %#x", b[8])
	}
}

// TestMRCTrimmed cuts a WRITE at every length.
func TestMRCTrimmed(t *testing.T) {
	for _, stamped := range []bool{false, true} {
		p := bth.Packet{Opcode: 0xcb, Stamped: stamped, METH: bth.METH{RQMSN: 1, MSN: 2}, TSETH: bth.TSETH{Timestamp: 3}, Payload: []byte("data")}
		least := 16
		if stamped {
			least = 20
		}
		b := p.AppendTo(nil)
		for n := range b {
			want := bth.ErrTrimmed
			if n < least {
				want = bth.ErrShort
			}
			if n >= p.HeaderLen()+bth.ICRCLen {
				want = bth.ErrPad // no multiple of four
				if n%4 == 0 {
					want = nil
				}
			}
			var q bth.Packet
			if err := q.Decode(b[:n]); err != want {
				t.Errorf("stamped %v: %d bytes: %v, want %v", stamped, n, err, want)
			} else if want == bth.ErrTrimmed && (q.METH != p.METH || stamped && q.TSETH != p.TSETH) {
				t.Errorf("stamped %v: %d bytes: %+v", stamped, n, q)
			}
		}
	}
	for _, o := range []bth.Opcode{bth.TransportMRC | bth.OpAcknowledge, bth.OpcodeMRCSACK, bth.OpcodeMRCNACK, bth.OpcodeMRCProbe,
		bth.OpcodeMRCEndpointRequest, bth.OpcodeMRCEndpointResponse} {
		p := bth.Packet{Opcode: o, Stamped: true}
		b := p.AppendTo(nil)
		if want := int(o.Info().HeaderLen) + bth.ICRCLen; len(b) != want {
			t.Errorf("%v has %d bytes, want %d", o, len(b), want)
		}
		for n := range b {
			if err := p.Decode(b[:n]); err != bth.ErrShort {
				t.Errorf("%v: %d bytes: %v", o, n, err)
			}
		}
		if err := p.Decode(append(b, 0, 0, 0, 0)); err != bth.ErrLength {
			t.Errorf("%v with payload: %v", o, err)
		}
	}
}

func TestMRCFields(t *testing.T) {
	h := bth.SETH{Cack: bth.MakePSN(0xffffff), AckOffset: 2, SACKOffset: -3}
	if h.AckPSN() != bth.MakePSN(1) || h.Base() != bth.MakePSN(0xfffffc) {
		t.Errorf("%v, base %v", h.AckPSN(), h.Base())
	}
	if h.AckOffset = -1; h.ProbeID() != 0xffff {
		t.Errorf("probe %#x", h.ProbeID())
	}
	if port, label := bth.SplitEntropy(0x12345678); port != 0x5678 || label != 0x1234 {
		t.Errorf("port %#x, label %#x", port, label)
	}
	if ev := bth.JoinEntropy(0x5678, 0xf1234); ev != 0x12345678 {
		t.Errorf("entropy value %#x", ev)
	}
	for r, want := range map[bth.MRCReason]string{0x01: "TRIMMED", 0x02: "TRIMMED_LASTHOP", 0x06: "NO_BITMAP", 0x07: "NO_PKT_BUFFER",
		0x0a: "NO_RESOURCE", 0x0b: "PSN_OOR_WINDOW", 0x19: "UNEXP_EVENT", 0x05: "0x05"} {
		if r.String() != want {
			t.Errorf("%#x: %v, want %s", uint8(r), r, want)
		}
	}
}

func TestMRCDoesNotAllocate(t *testing.T) {
	var p bth.Packet
	buf := make([]byte, bth.MaxHeaderLen)
	for _, v := range mrcVectors {
		b, _ := hex.DecodeString(strip(v.hex) + "00000000")
		if n := testing.AllocsPerRun(10, func() {
			if p.Decode(b) == nil {
				p.PutHeaders(buf)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", v.name, n)
		}
	}
}
