package tap

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/lab/porttest"
	"roced.io/roced/port/vnet"
)

// TestSuperFrameLimits measures the limits of super-frames between two TAPs: vnet.MaxBytes and vnet.MaxSegments.
func TestSuperFrameLimits(t *testing.T) {
	_, tx, rx := pair(t, true, true)
	max := tx.Offload()
	t.Logf("Offload %+v", max)
	if max.MaxSegments < vnet.MaxSegmentsOld || max.MaxBytes != vnet.MaxBytes {
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
		{"smallest segments", porttest.Addr4, 20, 20 * max.MaxSegments, true},
		{"96-byte segments", porttest.Addr4, 96, 96 * max.MaxSegments, true},
		{"96-byte segments IPv6", porttest.Addr6, 96, 96 * max.MaxSegments, true},
		{"path MTU 1024", porttest.Addr4, 1080, max.MaxBytes - hdr4, true},
		{"path MTU 1024 IPv6", porttest.Addr6, 1080, max.MaxBytes - hdr6, true},
		{"path MTU 4096", porttest.Addr4, 4152, max.MaxBytes - hdr4, true},
		{"path MTU 4096, a byte too long", porttest.Addr4, 4152, max.MaxBytes - hdr4 + 1, false},
		{"path MTU 4096 IPv6, a byte too long", porttest.Addr6, 4152, max.MaxBytes - hdr6 + 1, false},
		{"longest IPv4 packet", porttest.Addr4, 4152, 65535 - 28, false},
	} {
		want := (c.n + c.seg - 1) / c.seg
		porttest.MustSend(t, tx, porttest.Frame(c.addr[0], c.addr[1], 7, c.seg, c.n))
		frames, segs := porttest.Count(t, rx)
		if segs != want || (frames == 1) != c.whole {
			t.Errorf("%s: %d segments arrive in %d frames, want %d, unsplit: %v", c.name, segs, frames, want, c.whole)
		}
		t.Logf("%s: %d segments, %d bytes of payload: received as %d frames", c.name, segs, c.n, frames)
	}
	over := vnet.MaxSegments + 1
	if err := tx.Send(porttest.Clock(), porttest.Frame(porttest.Addr4[0], porttest.Addr4[1], 7, 96, 96*over)); !errors.Is(err, unix.EINVAL) {
		t.Errorf("%d segments: %v, want EINVAL", over, err)
	}
	if tx.Stats().SendDropped != 1 {
		t.Errorf("stats %+v", tx.Stats())
	}
}
