package bth_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

var samePacket = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b bth.PSN) bool { return a == b }),
}

// drawPacket draws a packet that sets only the fields of its opcode.
func drawPacket(t *rapid.T) bth.Packet {
	w := rapid.SampledFrom(wantOpcodes).Draw(t, "opcode")
	o := bth.Opcode(w.code)
	u64, u32 := rapid.Uint64(), rapid.Uint32()
	u24 := rapid.Uint32Range(0, 1<<24-1)
	p := bth.Packet{
		Opcode:    o,
		Solicited: rapid.Bool().Draw(t, "se"), MigReq: rapid.Bool().Draw(t, "m"),
		FECN: rapid.Bool().Draw(t, "fecn"), BECN: rapid.Bool().Draw(t, "becn"),
		AckReq: rapid.Bool().Draw(t, "a"), PKey: rapid.Uint16().Draw(t, "pkey"),
		DestQP: bth.QPN(u24.Draw(t, "dqp")), PSN: bth.MakePSN(u24.Draw(t, "psn")),
	}
	for _, c := range w.traits {
		switch c {
		case 'x':
			p.Ext = drawXETH(t)
		case 'e':
			p.FETH = bth.FETH{Type: rapid.Uint8Range(0, 15).Draw(t, "type"), Level: rapid.Uint8Range(0, 3).Draw(t, "level")}
		case 'r':
			p.RETH = bth.RETH{VA: u64.Draw(t, "va"), RKey: u32.Draw(t, "rkey"), Length: u32.Draw(t, "len")}
		case 'a':
			p.AtomicETH = bth.AtomicETH{VA: u64.Draw(t, "va"), RKey: u32.Draw(t, "rkey"),
				SwapAdd: u64.Draw(t, "swap"), Compare: u64.Draw(t, "cmp")}
		case 'k':
			p.AETH = bth.AETH{Syndrome: bth.Syndrome(rapid.Byte().Draw(t, "syn")), MSN: u24.Draw(t, "msn")}
		case 't':
			p.AtomicAck = u64.Draw(t, "orig")
		case 'd':
			p.DETH = bth.DETH{QKey: u32.Draw(t, "qkey"), SrcQP: bth.QPN(u24.Draw(t, "sqp"))}
		case 'i':
			p.Imm = u32.Draw(t, "imm")
		case 'v':
			p.IETH = u32.Draw(t, "ieth")
		case 'C':
			drawMRC(t, &p)
		case 'p':
			p.Payload = rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "payload")
		}
	}
	if o.IsCNP() {
		p.Payload = make([]byte, 16)
	}
	return p
}

// drawXETH draws an extension header that sets only the fields of its flags.
func drawXETH(t *rapid.T) bth.XETH {
	u24 := rapid.Uint32Range(0, 1<<24-1)
	h := bth.XETH{Profile: bth.Profile(rapid.Byte().Draw(t, "profile"))}
	h.Flags = bth.XFlags(rapid.Uint16().Draw(t, "flags")) &^ (0x20 | bth.XHasOwn | bth.XHasHole1 | bth.XHasHole2 | bth.XHasHole3)
	field := func(f bth.XFlags, v *uint32) {
		if h.Flags&f != 0 {
			*v = u24.Draw(t, "field")
		}
	}
	field(bth.XHasMsg, &h.MSN)
	field(bth.XHasMsg, &h.Offset)
	field(bth.XHasRecvSN, &h.RecvSN)
	field(bth.XHasReadSN, &h.ReadSN)
	if h.Flags&bth.XHasHead != 0 {
		h.Head = bth.MakePSN(u24.Draw(t, "head"))
	}
	if h.Flags&bth.XHasSACK != 0 {
		h.SACK = bth.MakePSN(u24.Draw(t, "sack"))
	}
	if h.Flags&bth.XHasPath != 0 {
		h.Path = rapid.Uint16().Draw(t, "path")
	}
	var holes [bth.MaxHoles]bth.Hole
	n := rapid.IntRange(0, bth.MaxHoles).Draw(t, "holes")
	for i := range n {
		holes[i] = bth.Hole{Start: bth.MakePSN(u24.Draw(t, "start")), Len: rapid.Uint32Range(1, 1<<24-1).Draw(t, "len")}
	}
	h.SetHoles(holes[:n])
	if h.Profile >= bth.FirstOwnProfile && rapid.Bool().Draw(t, "own") {
		h.Holes = [bth.MaxHoles]bth.Hole{}
		h.SetOwn(rapid.SliceOfN(rapid.Byte(), bth.MaxOwn, bth.MaxOwn).Draw(t, "bytes")[:4*rapid.IntRange(1, bth.MaxOwn/4).Draw(t, "words")])
	}
	return h
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPacket(t)
		b := p.AppendTo(nil)
		if len(b) != p.WireLen() || len(b)%4 != 0 || len(b) != p.HeaderLen()+len(p.Payload)+p.PadLen()+bth.ICRCLen {
			t.Fatalf("%v encodes to %d bytes, WireLen %d", p.Opcode, len(b), p.WireLen())
		}
		var q bth.Packet
		if err := q.Decode(b); err != nil {
			t.Fatalf("%v: %v\n%x", p.Opcode, err, b)
		}
		if d := cmp.Diff(p, q, samePacket); d != "" {
			t.Fatalf("%v: %s", p.Opcode, d)
		}
		for n := range b {
			if err := q.Decode(b[:n]); err == nil && n < p.HeaderLen()+bth.ICRCLen {
				t.Fatalf("%v decodes from %d bytes", p.Opcode, n)
			}
		}
	})
}

func TestHeaderBytes(t *testing.T) {
	base := bth.Packet{Solicited: true, AckReq: true, PKey: 0xffff, DestQP: 0x123456, PSN: bth.MakePSN(0xabcdef)}
	for _, c := range []struct {
		name string
		set  func(p *bth.Packet)
		want string
	}{
		{"pad", func(p *bth.Packet) { p.Opcode = 4; p.Payload = []byte("a"); p.MigReq = true },
			"04f0ffff0012345680abcdef"},
		{"marks", func(p *bth.Packet) { p.Opcode = 4; p.FECN, p.BECN = true, true },
			"0480ffffc012345680abcdef"},
		{"write", func(p *bth.Packet) {
			p.Opcode, p.RETH, p.Imm = 0x0b, bth.RETH{VA: 0x1122334455667788, RKey: 0x99aabbcc, Length: 0xddeeff00}, 0x01020304
		}, "0b80ffff0012345680abcdef" + "112233445566778899aabbccddeeff00" + "01020304"},
		{"atomic", func(p *bth.Packet) {
			p.Opcode = 0x13
			p.AtomicETH = bth.AtomicETH{VA: 0x1122334455667788, RKey: 0x99aabbcc, SwapAdd: 0x1000000000000001, Compare: 0x2000000000000002}
		}, "1380ffff0012345680abcdef" + "112233445566778899aabbcc" + "1000000000000001" + "2000000000000002"},
		{"atomic ack", func(p *bth.Packet) {
			p.Opcode, p.AETH, p.AtomicAck = 0x12, bth.AETH{Syndrome: 0x1f, MSN: 0xfedcba}, 0x0807060504030201
		}, "1280ffff0012345680abcdef" + "1ffedcba" + "0807060504030201"},
		{"ud imm", func(p *bth.Packet) {
			p.Opcode, p.DETH, p.Imm = 0x65, bth.DETH{QKey: 0x80010000, SrcQP: 0x000001}, 0xcafebabe
		}, "6580ffff0012345680abcdef" + "8001000000000001" + "cafebabe"},
		{"irn", func(p *bth.Packet) {
			p.Opcode, p.RETH = 0xe7, bth.RETH{VA: 0x1122334455667788, RKey: 0x99aabbcc, Length: 0xddeeff00}
			p.Ext = bth.XETH{Profile: bth.ProfileIRN, Flags: bth.XHasMsg | bth.XHasRecvSN | bth.XReTx, MSN: 0xfedcba, Offset: 7, RecvSN: 0x123456}
		}, "e780ffff0012345680abcdef" + "24010181" + "00fedcba" + "00000007" + "00123456" + "112233445566778899aabbccddeeff00"},
		{"read request", func(p *bth.Packet) {
			p.Opcode, p.RETH = 0xec, bth.RETH{Length: 1}
			p.Ext = bth.XETH{Profile: bth.ProfileEunomia, Flags: bth.XHasReadSN | bth.XHasHead | bth.XTail, ReadSN: 5, Head: bth.MakePSN(9)}
		}, "ec80ffff0012345680abcdef" + "23040604" + "00000005" + "00000009" + "000000000000000000000000" + "00000001"},
		{"ack", func(p *bth.Packet) {
			p.Opcode, p.AETH = 0xf1, bth.AETH{Syndrome: 0x60, MSN: 1}
			p.Ext = bth.XETH{Profile: bth.ProfileMPRDMA, Flags: bth.XECE | bth.XRefused | bth.XHasSACK | bth.XHasPath, SACK: bth.MakePSN(3), Path: 0xc001}
			p.Ext.SetHoles([]bth.Hole{{Start: bth.MakePSN(2), Len: 1}, {Start: bth.MakePSN(8), Len: 4}})
		}, "f180ffff0012345680abcdef" + "27037818" + "00000003" + "0000c001" + "0000000200000001" + "0000000800000004" + "60000001"},
		{"flush", func(p *bth.Packet) {
			p.Opcode, p.FETH = 0x1c, bth.FETH{Type: bth.FlushGlobal | bth.FlushPersistent, Level: bth.FlushMR}
			p.RETH = bth.RETH{VA: 0x1122334455667788, RKey: 0x99aabbcc, Length: 0xddeeff00}
		}, "1c80ffff0012345680abcdef" + "00000013" + "112233445566778899aabbccddeeff00"},
		{"inv", func(p *bth.Packet) { p.Opcode, p.IETH = 0x17, 0xdeadbeef }, "1780ffff0012345680abcdef" + "deadbeef"},
	} {
		p := base
		c.set(&p)
		b := make([]byte, bth.MaxHeaderLen)
		if got := hex.EncodeToString(b[:p.PutHeaders(b)]); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	valid := func(o bth.Opcode, payload int) []byte {
		p := bth.Packet{Opcode: o, Payload: make([]byte, payload)}
		return p.AppendTo(nil)
	}
	send, read, cnp := valid(4, 5), valid(0x0c, 0), valid(0x81, 16)
	with := func(b []byte, i int, v byte) []byte {
		b = bytes.Clone(b)
		b[i] = v
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"send", send, nil},
		{"read", read, nil},
		{"cnp", cnp, nil},
		{"empty", nil, bth.ErrShort},
		{"part of BTH", send[:11], bth.ErrShort},
		{"no ICRC", send[:12], bth.ErrShort},
		{"no RETH", read[:24], bth.ErrShort},
		{"RETH without ICRC", read[:28], bth.ErrShort},
		{"version", with(send, 1, 0x31), bth.ErrTVer},
		{"XRC", with(send, 0, 0xa4), bth.ErrOpcode},
		{"RD", with(send, 0, 0x44), bth.ErrOpcode},
		{"UC read", with(send, 0, 0x2c), bth.ErrOpcode},
		{"reserved", with(send, 0, 0x15), bth.ErrOpcode},
		{"pad beyond payload", with(valid(4, 0), 1, 0x10), bth.ErrPad},
		{"odd length", send[:len(send)-1], bth.ErrPad},
		{"payload on a READ REQUEST", append(bytes.Clone(read), 0, 0, 0, 0), bth.ErrLength},
		{"padded payload on a READ REQUEST", with(append(bytes.Clone(read), 0, 0, 0, 0), 1, 0x30), bth.ErrLength},
		{"short CNP", cnp[:len(cnp)-4], bth.ErrLength},
		{"CNP with pad", with(cnp, 1, 0x10), bth.ErrLength},
	} {
		var p bth.Packet
		if err := p.Decode(c.b); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestDecodeHeadersOfPart(t *testing.T) {
	p := bth.Packet{Opcode: 0x06, RETH: bth.RETH{VA: 1, RKey: 2, Length: 3}, Payload: make([]byte, 100)}
	b := p.AppendTo(nil)
	var q bth.Packet
	if n, err := q.DecodeHeaders(b[:30]); n != 28 || err != nil || q.RETH != p.RETH || q.Payload != nil {
		t.Errorf("%d bytes, %v, %+v", n, err, q)
	}
}

func FuzzDecode(f *testing.F) {
	for _, w := range wantOpcodes {
		p := bth.Packet{Opcode: bth.Opcode(w.code), Payload: []byte("seed")}
		f.Add(p.AppendTo(nil))
	}
	for _, v := range mrcVectors {
		f.Add(v.packet.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, q bth.Packet
		if p.Decode(b) != nil {
			return
		}
		want := len(b)
		if p.Opcode.IsExt() { // except for fields of a later revision of the extension header
			want -= 4*int(b[bth.BTHLen]&0xf) - p.Ext.Len()
		}
		if p.WireLen() != want {
			t.Fatalf("WireLen %d of %d bytes, want %d", p.WireLen(), len(b), want)
		}
		if err := q.Decode(p.AppendTo(nil)); err != nil {
			t.Fatalf("re-encoded: %v", err)
		}
		if d := cmp.Diff(p, q, samePacket); d != "" {
			t.Fatal(d)
		}
	})
}
