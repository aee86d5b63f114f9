package bth_test

import (
	"fmt"
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

// slowICRC implements the definition of annex A17.3.3 literally, for an IP header of l3 bytes and a packet without
// its ICRC.
func slowICRC(pkt []byte, l3 int) uint32 {
	b := append([]byte{255, 255, 255, 255, 255, 255, 255, 255}, pkt...)
	ip := b[8:]
	if ip[0]>>4 == 4 {
		for _, i := range []int{1, 8, 10, 11} {
			ip[i] = 255
		}
	} else {
		ip[0] |= 0x0f
		for _, i := range []int{1, 2, 3, 7} {
			ip[i] = 255
		}
	}
	for _, i := range []int{6, 7, 8 + 4} {
		ip[l3+i] = 255
	}
	return crc32.ChecksumIEEE(b)
}

func TestICRCAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l3 := rapid.SampledFrom([]int{20, 24, 32, 60, 40}).Draw(t, "header")
		v6 := l3 == 40 && rapid.Bool().Draw(t, "v6")
		n := rapid.IntRange(12, 300).Draw(t, "transport")
		pkt := rapid.SliceOfN(rapid.Byte(), l3+8+n, l3+8+n).Draw(t, "packet")
		pkt[0] = 0x40 | byte(l3/4)
		if v6 {
			pkt[0] = pkt[0]&0x0f | 0x60
		}
		want := slowICRC(pkt, l3)
		pad := rapid.IntRange(0, min(3, n-12)).Draw(t, "pad")
		clear(pkt[len(pkt)-pad:])
		if pad > 0 {
			want = slowICRC(pkt, l3)
		}
		tr := pkt[l3+8 : len(pkt)-pad]
		cut := rapid.IntRange(12, len(tr)).Draw(t, "cut")
		crc := bth.ICRCStart(pkt[:l3], pkt[l3:l3+8], tr[:cut])
		if crc = bth.ICRCPad(bth.ICRCUpdate(crc, tr[cut:]), pad); crc != want {
			t.Fatalf("%08x, want %08x", crc, want)
		}
	})
}

func TestICRCRefuses(t *testing.T) {
	ok := ipv4Packet(64)
	if err := bth.CheckICRC(ok); err != nil {
		t.Fatal(err)
	}
	if err := bth.CheckICRC(append(ok, 0, 0, 0)); err != nil {
		t.Errorf("with Ethernet padding: %v", err)
	}
	for name, change := range map[string]func(b []byte) []byte{
		"empty":      func([]byte) []byte { return nil },
		"cut":        func(b []byte) []byte { return b[:len(b)-1] },
		"TCP":        func(b []byte) []byte { b[9] = 6; return b },
		"version 5":  func(b []byte) []byte { b[0] = 0x55; return b },
		"header 16":  func(b []byte) []byte { b[0] = 0x44; return b },
		"no BTH":     func(b []byte) []byte { b[2], b[3] = 0, 43; return b },
		"IPv6 short": func(b []byte) []byte { b[0] = 0x60; b[6] = 17; b[4], b[5] = 0xff, 0xff; return b },
	} {
		b := change(ipv4Packet(64))
		if err := bth.CheckICRC(b); err != bth.ErrL3 {
			t.Errorf("%s: CheckICRC %v", name, err)
		}
		if err := bth.SealICRC(b); err != bth.ErrL3 {
			t.Errorf("%s: SealICRC %v", name, err)
		}
	}
}

// ipv4Packet returns a SEND ONLY of n bytes from its IPv4 header on.
func ipv4Packet(n int) []byte {
	p := bth.Packet{Opcode: bth.TransportRC | bth.OpSendOnly, PKey: bth.DefaultPKey, DestQP: 17, Payload: make([]byte, n)}
	length := 28 + p.WireLen()
	b := []byte{
		0x45, 0, byte(length >> 8), byte(length), 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
		0xc0, 0, 0x12, 0xb7, byte((length - 20) >> 8), byte(length - 20), 0, 0,
	}
	b = p.AppendTo(b)
	if err := bth.SealICRC(b); err != nil {
		panic(err)
	}
	return b
}

func TestNoAllocations(t *testing.T) {
	frame := ipv4Packet(256)
	var p bth.Packet
	bad := []byte("too short")
	for name, f := range map[string]func(){
		"Decode": func() {
			if p.Decode(frame[28:]) != nil {
				t.Error("Decode")
			}
		},
		"Decode error": func() { _ = p.Decode(bad) },
		"SetCNP":       func() { p.SetCNP(5) },
		"CheckICRC": func() {
			if bth.CheckICRC(frame) != nil {
				t.Error("CheckICRC")
			}
		},
		"headers and ICRC on the stack": func() {
			q := bth.Packet{Opcode: bth.TransportRC | bth.OpAcknowledge, AETH: bth.AETH{Syndrome: 0x1f}}
			var l3 [20]byte
			var udp [8]byte
			var h [16]byte
			var icrc [4]byte
			l3[0] = 0x45
			n := q.PutHeaders(h[:])
			crc := bth.ICRCStart(l3[:], udp[:], h[:n])
			bth.PutICRC(icrc[:], bth.ICRCPad(crc, 3))
			if bth.GetICRC(icrc[:]) == 0 {
				t.Error("ICRC 0")
			}
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

var benchSizes = []int{64, 1024, 4096}

func BenchmarkDecode(b *testing.B) {
	for _, o := range []bth.Opcode{0x04, 0x0b, 0x11, 0x13} {
		b.Run(o.String(), func(b *testing.B) {
			p := bth.Packet{Opcode: o}
			if o.HasPayload() {
				p.Payload = make([]byte, 1024)
			}
			buf := p.AppendTo(nil)
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Decode(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPutHeaders(b *testing.B) {
	for _, o := range []bth.Opcode{0x04, 0x0b, 0x11, 0x13} {
		b.Run(o.String(), func(b *testing.B) {
			p := bth.Packet{Opcode: o, PKey: 0xffff}
			buf := make([]byte, bth.MaxHeaderLen)
			b.ReportAllocs()
			for b.Loop() {
				p.PutHeaders(buf)
			}
		})
	}
}

func BenchmarkICRC(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			pkt := ipv4Packet(n)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				if err := bth.CheckICRC(pkt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
