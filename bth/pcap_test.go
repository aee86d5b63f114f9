package bth_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/pcapng"
)

// forEachRoCE calls f with every RoCEv2 packet of the captures, starting at the IP header.
func forEachRoCE(tb testing.TB, f func(file string, n int, l3 []byte, udp int)) {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.pcap")
	if err != nil || len(files) < 19 {
		tb.Fatalf("captures: %d files, %v", len(files), err)
	}
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
		var frame pcapng.Frame
		for n := 1; ; n++ {
			err := r.Next(&frame)
			if err == io.EOF {
				break
			}
			if err != nil {
				tb.Fatal(err)
			}
			if l3, udp, ok := roceOf(frame.Data); ok {
				f(filepath.Base(file), n, l3, udp)
			}
		}
	}
}

func roceOf(frame []byte) (l3 []byte, udp int, ok bool) {
	l3 = frame[14:]
	switch {
	case binary.BigEndian.Uint16(frame[12:]) == 0x0800 && l3[9] == 17:
		udp = int(l3[0]&0xf) * 4
	case binary.BigEndian.Uint16(frame[12:]) == 0x86dd && l3[6] == 17:
		udp = 40
	default:
		return nil, 0, false
	}
	return l3, udp, binary.BigEndian.Uint16(l3[udp+2:]) == bth.UDPPort
}

func TestCapturesRoundTrip(t *testing.T) {
	var p bth.Packet
	buf := make([]byte, 0, 8192)
	count := 0
	seen := map[bth.Opcode]bool{}
	forEachRoCE(t, func(file string, n int, l3 []byte, udp int) {
		count++
		b := l3[udp+8 : udp+int(binary.BigEndian.Uint16(l3[udp+4:]))]
		if err := p.Decode(b); err != nil {
			t.Errorf("%s packet %d: %v", file, n, err)
			return
		}
		seen[p.Opcode] = true
		buf = append(buf[:0], l3[:udp+8]...)
		buf = p.AppendTo(buf)
		if got := len(buf) - udp - 8; got != p.WireLen() || got != len(b) {
			t.Errorf("%s packet %d: WireLen %d, encoded %d, captured %d", file, n, p.WireLen(), got, len(b))
		}
		if err := bth.SealICRC(buf); err != nil {
			t.Errorf("%s packet %d: SealICRC: %v", file, n, err)
		}
		if !bytes.Equal(buf[udp+8:], b) {
			t.Errorf("%s packet %d %v: re-encoded\n%x, captured\n%x", file, n, p.Opcode, buf[udp+8:], b)
		}
		if err := bth.CheckICRC(l3); err != nil {
			t.Errorf("%s packet %d: %v", file, n, err)
		}
	})
	if count < 500 || len(seen) < 20 {
		t.Errorf("captures hold %d RoCE packets of %d opcodes", count, len(seen))
	}
}

func TestICRCInPieces(t *testing.T) {
	forEachRoCE(t, func(file string, n int, l3 []byte, udp int) {
		want, off, err := bth.ICRC(l3)
		if err != nil {
			t.Fatal(err)
		}
		tr := l3[udp+8 : off]
		for _, cut := range []int{bth.BTHLen, (bth.BTHLen + len(tr)) / 2, len(tr)} {
			crc := bth.ICRCStart(l3[:udp], l3[udp:udp+8], tr[:cut])
			if crc = bth.ICRCUpdate(crc, tr[cut:]); crc != want {
				t.Errorf("%s packet %d cut at %d: %08x, want %08x", file, n, cut, crc, want)
			}
		}
	})
}

func TestICRCCoverage(t *testing.T) {
	forEachRoCE(t, func(file string, n int, l3 []byte, udp int) {
		if file != "rc_send.pcap" && file != "v6_rc.pcap" || n > 12 {
			return
		}
		end := udp + int(binary.BigEndian.Uint16(l3[udp+4:]))
		for i := range end {
			for bit := range 8 {
				mod := bytes.Clone(l3)
				mod[i] ^= 1 << bit
				err := bth.CheckICRC(mod)
				if masked(udp, i, bit) != (err == nil) {
					t.Fatalf("%s packet %d: byte %d bit %d flipped: %v", file, n, i, bit, err)
				}
			}
		}
	})
}

// masked reports whether the ICRC omits a bit, given the offset of the UDP header.
func masked(udp, i, bit int) bool {
	if i == udp+6 || i == udp+7 || i == udp+8+4 {
		return true
	}
	if udp == 40 {
		return i == 0 && bit < 4 || i >= 1 && i <= 3 || i == 7
	}
	return i == 1 || i == 8 || i == 10 || i == 11
}

// TestExternalICRCVectors checks vectors of other projects: the UC SEND ONLY of scapy's contrib/roce.uts, and the CNP
// captured from a ConnectX-4 Lx there. The ICRCs are as on the wire.
func TestExternalICRCVectors(t *testing.T) {
	for _, v := range []struct{ name, packet, icrc string }{
		{"scapy UC_SEND_ONLY",
			"45010040047840004011b4d5" + "c0a80007c0a80007" + "c00012b7002caca2" +
				"2460ffff000000d300cf1710" + "4630818be28935d90e9a95505401be885e500000", "78f353f3"},
		{"ConnectX-4 CNP",
			"45c2003c718c40004011" + "91610a0011010a001201" + "000012b700280000" +
				"8100ffff40000118" + "00000000" + "00000000000000000000000000000000", "82fd002a"},
	} {
		pkt, err := hex.DecodeString(v.packet + v.icrc)
		if err != nil {
			t.Fatal(v.name, err)
		}
		if err := bth.CheckICRC(pkt); err != nil {
			crc, off, _ := bth.ICRC(pkt)
			t.Errorf("%s: %v: computed %08x for %x", v.name, err, crc, pkt[off:])
		}
		var p bth.Packet
		if err := p.Decode(pkt[28:]); err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
	}
}

func TestSetCNPIsTheCapturedOne(t *testing.T) {
	var p bth.Packet
	p.SetCNP(0x118)
	want, _ := hex.DecodeString("8100ffff4000011800000000" + "00000000000000000000000000000000" + "00000000")
	if got := p.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("CNP %x, want %x", got, want)
	}
}
