package bth_test

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"roced.io/roced/bth"
)

// noise returns n bytes, the same in every run.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// sameCRC compares ICRCUpdate with hash/crc32.
func sameCRC(t testing.TB, crc uint32, p []byte) {
	t.Helper()
	if got, want := bth.ICRCUpdate(crc, p), crc32.Update(crc, crc32.IEEETable, p); got != want {
		t.Fatalf("%d bytes from state %08x: %08x, want %08x", len(p), crc, got, want)
	}
}

func TestICRCUpdateLengthsAndAlignments(t *testing.T) {
	const lengths, alignments = 4200, 64
	b := noise(lengths + alignments)
	crc := uint32(0)
	for n := range lengths + 1 {
		for a := range alignments {
			sameCRC(t, crc, b[a:a+n])
			crc = crc*0x9e3779b1 + 1
		}
	}
}

func TestICRCUpdateInPieces(t *testing.T) {
	b := noise(70000)
	rapid.Check(t, func(rt *rapid.T) {
		p := b[:rapid.IntRange(0, len(b)).Draw(rt, "length")]
		want := crc32.ChecksumIEEE(p)
		crc := uint32(0)
		for len(p) > 0 {
			n := min(len(p), rapid.SampledFrom([]int{1, 7, 64, 127, 128, 129, 255, 256, 300, 1024, 4096, 65536}).Draw(rt, "piece"))
			crc = bth.ICRCUpdate(crc, p[:n])
			p = p[n:]
		}
		if crc != want {
			rt.Fatalf("%08x, want %08x", crc, want)
		}
	})
}

func TestICRCUpdateOnCaptures(t *testing.T) {
	long := 0
	forEachRoCE(t, func(_ string, _ int, l3 []byte, udp int) {
		sameCRC(t, 0, l3)
		if len(l3)-udp > 1024 {
			long++
		}
	})
	if long < 100 {
		t.Errorf("captures hold %d packets of more than 1024 bytes", long)
	}
}

func FuzzICRCUpdate(f *testing.F) {
	for _, n := range []int{0, 1, 127, 128, 129, 271, 384, 4111} {
		f.Add(uint32(n), noise(n), uint16(n/3))
	}
	f.Fuzz(func(t *testing.T, crc uint32, p []byte, cut uint16) {
		sameCRC(t, crc, p)
		n := min(len(p), int(cut))
		if got := bth.ICRCUpdate(bth.ICRCUpdate(crc, p[:n]), p[n:]); got != bth.ICRCUpdate(crc, p) {
			t.Fatalf("%d bytes cut at %d: %08x", len(p), n, got)
		}
	})
}

// BenchmarkICRCUpdate compares ICRCUpdate with hash/crc32.
func BenchmarkICRCUpdate(b *testing.B) {
	for _, n := range []int{16, 32, 33, 47, 48, 63, 64, 80, 95, 128, 1 << 10, 4 << 10, 64 << 10} {
		p := noise(n)
		for _, v := range []struct {
			name   string
			update func(uint32, []byte) uint32
		}{
			{"ours", bth.ICRCUpdate},
			{"hash-crc32", func(crc uint32, p []byte) uint32 { return crc32.Update(crc, crc32.IEEETable, p) }},
		} {
			b.Run(fmt.Sprintf("%d/%s", n, v.name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					v.update(0, p)
				}
			})
		}
	}
}
