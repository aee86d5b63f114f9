package tap

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/rocev2"
)

// TestSuperFrameLimits finds the limits of super-frames between two TAPs that
// usoMaxBytes and usoMaxSegments tell.
func TestSuperFrameLimits(t *testing.T) {
	_, tx, rx := tapPair(t, true, true)
	max := tx.Offload()
	t.Logf("Offload %+v", max)
	if max.MaxSegments < usoMaxSegmentsOld || max.MaxBytes != usoMaxBytes {
		t.Skipf("the kernel does not offer UDP segmentation offload: %s", tx.OffloadNote())
	}
	const hdr4, hdr6 = 42, 62
	for _, c := range []struct {
		name  string
		addr  [2]netip.Addr
		seg   int
		n     int
		whole bool
	}{
		{"smallest segments", addr4, 20, 20 * max.MaxSegments, true},
		{"96-byte segments", addr4, 96, 96 * max.MaxSegments, true},
		{"96-byte segments IPv6", addr6, 96, 96 * max.MaxSegments, true},
		{"path MTU 1024", addr4, 1080, max.MaxBytes - hdr4, true},
		{"path MTU 1024 IPv6", addr6, 1080, max.MaxBytes - hdr6, true},
		{"path MTU 4096", addr4, 4152, max.MaxBytes - hdr4, true},
		{"path MTU 4096, a byte too long", addr4, 4152, max.MaxBytes - hdr4 + 1, false},
		{"path MTU 4096 IPv6, a byte too long", addr6, 4152, max.MaxBytes - hdr6 + 1, false},
		{"longest IPv4 packet", addr4, 4152, 65535 - 28, false},
	} {
		want := (c.n + c.seg - 1) / c.seg
		mustSend(t, tx, frame(c.addr[0], c.addr[1], 7, c.seg, c.n))
		frames, segs := count(t, rx)
		if segs != want || (frames == 1) != c.whole {
			t.Errorf("%s: %d segments arrive in %d frames, want %d, unsplit: %v", c.name, segs, frames, want, c.whole)
		}
		t.Logf("%s: %d segments, %d bytes of payload: received as %d frames", c.name, segs, c.n, frames)
	}
	over := usoMaxSegments + 1
	if err := tx.Send(clock(), frame(addr4[0], addr4[1], 7, 96, 96*over)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%d segments: %v, want EINVAL", over, err)
	}
	if tx.Stats().SendDropped != 1 {
		t.Errorf("stats %+v", tx.Stats())
	}
}

// count receives what is there and counts frames and segments.
func count(t *testing.T, p Port) (frames, segments int) {
	buf := make([]byte, 1<<17)
	for {
		n, seg, ok := recv(t, p, buf, 50*time.Millisecond)
		if !ok {
			return frames, segments
		}
		frames++
		segments += rocev2.Segments(buf[:n], seg)
	}
}
