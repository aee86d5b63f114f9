package xdp

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/port/link"
)

// superFrame returns a super-frame of packets with these sizes to one queue pair, each with its ICRC.
func superFrame(src, dst netip.Addr, sizes []int, fill func(packet int, b []byte)) []byte {
	total := 0
	for _, n := range sizes {
		total += n
	}
	f := frame(src, dst, 4791, 500, total).AppendTo(nil)
	l4 := len(f) - total - udpLen
	udp := f[l4 : l4+udpLen]
	at := l4 + udpLen
	for i, n := range sizes {
		p := f[at : at+n]
		fill(i, p)
		copy(p, []byte{7, 0, 0xff, 0xff, 0, 0x12, 0x34, 0x56})
		one := append([]byte(nil), f[:l4+udpLen]...)
		if src.Is4() {
			binary.BigEndian.PutUint16(one[ethLen+2:], uint16(ipv4Len+udpLen+n))
			binary.BigEndian.PutUint16(one[ethLen+4:], uint16(500+i))
		} else {
			binary.BigEndian.PutUint16(one[ethLen+4:], uint16(udpLen+n))
		}
		binary.BigEndian.PutUint16(one[l4+4:], uint16(udpLen+n))
		crc := bth.ICRCStart(one[ethLen:l4], one[l4:], p[:bth.BTHLen])
		bth.PutICRC(p[n-4:], bth.ICRCUpdate(crc, p[bth.BTHLen:n-4]))
		at += n
	}
	addrs := 8
	if !src.Is4() {
		addrs = 32
	}
	sum := uint32(17 + udpLen + total)
	for i := l4 - addrs; i < l4; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(udp[6:], uint16(sum))
	return f
}

// TestSegmentSize draws super-frames and checks the derived segment size.
func TestSegmentSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		family := rapid.IntRange(0, 1).Draw(t, "family")
		size := 4 * rapid.IntRange(minPacket/4, 1040).Draw(t, "size")
		sizes := []int{size}
		for range rapid.IntRange(1, 12).Draw(t, "more") {
			sizes = append(sizes, size)
		}
		sizes[len(sizes)-1] = 4 * rapid.IntRange(minPacket/4, size/4).Draw(t, "last")
		pattern := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "pattern")
		f := superFrame(addrs(0)[family], addrs(1)[family], sizes, func(_ int, b []byte) {
			for len(b) > 0 {
				b = b[copy(b, pattern):]
			}
		})
		if got := segmentSize(f); got != size {
			t.Fatalf("segments of %d bytes, want %d", got, size)
		}
		if n := link.Segments(f, size); n != len(sizes) {
			t.Fatalf("%d segments, want %d", n, len(sizes))
		}
	})
}

// TestSegmentSizeLookalike uses payload that equals the BTH of the next packet.
func TestSegmentSizeLookalike(t *testing.T) {
	lookalike := func(_ int, b []byte) { copy(b[min(100, len(b)):], []byte{7, 0, 0xff, 0xff, 0, 0x12, 0x34, 0x56}) }
	f := superFrame(addrs(0)[0], addrs(1)[0], []int{1040, 1040, 16}, lookalike)
	if got := segmentSize(f); got != 1040 {
		t.Errorf("segments of %d bytes, want 1040", got)
	}
	many := func(_ int, b []byte) {
		for i := 16; i+8 < len(b); i += 8 {
			copy(b[i:], []byte{7, 0, 0xff, 0xff, 0, 0x12, 0x34, 0x56})
		}
	}
	if got := segmentSize(superFrame(addrs(0)[0], addrs(1)[0], []int{1040, 1040}, many)); got != 0 {
		t.Errorf("segments of %d bytes though it would take too long to find them", got)
	}
}

// TestSegmentSizeSingle checks frames that are not super-frames.
func TestSegmentSizeSingle(t *testing.T) {
	none := func(int, []byte) {}
	whole := superFrame(addrs(0)[1], addrs(1)[1], []int{1040, 1040}, none)
	finished := append([]byte(nil), whole...)
	finished[ethLen+ipv6Len+6] ^= 1 // an invalid checksum
	for name, f := range map[string][]byte{
		"single":            superFrame(addrs(0)[0], addrs(1)[0], []int{1040}, none),
		"with its checksum": finished,
		"cut short":         whole[:len(whole)-1],
		"header alone":      whole[:ethLen+ipv6Len+udpLen-1],
		"nearly nothing":    whole[:ethLen],
	} {
		if got := segmentSize(f); got != 0 {
			t.Errorf("%s: segments of %d bytes", name, got)
		}
	}
}

// FuzzSegmentSize checks that the segment size never exceeds the frame.
func FuzzSegmentSize(f *testing.F) {
	none := func(int, []byte) {}
	f.Add(superFrame(addrs(0)[0], addrs(1)[0], []int{1040, 1040, 16}, none))
	f.Add(superFrame(addrs(0)[1], addrs(1)[1], []int{1040, 16}, none))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := segmentSize(b); s != 0 && (s < minPacket || ethLen+ipv4Len+udpLen+s+minPacket > len(b)) {
			t.Errorf("segments of %d bytes in %d", s, len(b))
		}
	})
}
