package tap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/netlab"
	"roced.io/roced/rocev2"
)

// TestProbeOffload answers as kernels do.
func TestProbeOffload(t *testing.T) {
	best := rocev2.Offload{MaxSegments: usoMaxSegments, MaxBytes: usoMaxBytes}
	for _, c := range []struct {
		name string
		max  int // segments that are not refused with EINVAL
		err  error
		want rocev2.Offload
	}{
		{"taken", 128, nil, best},
		{"64 taken", 64, nil, rocev2.Offload{MaxSegments: usoMaxSegmentsOld, MaxBytes: usoMaxBytes}},
		{"none taken", 0, nil, rocev2.Offload{}},
		{"loopback is down", 128, unix.ENETDOWN, best},
		{"no room", 128, fmt.Errorf("write: %w", unix.ENOBUFS), best},
		{"64 known, device is down", 64, unix.EIO, rocev2.Offload{MaxSegments: usoMaxSegmentsOld, MaxBytes: usoMaxBytes}},
	} {
		got := probeOffload(func(b []byte) error {
			h := (*[vnetHdrLen]byte)(b)
			if len(b) != vnetHdrLen+usoMaxBytes || rocev2.Segments(b[vnetHdrLen:], segmentSize(h)) > c.max {
				return unix.EINVAL
			}
			return c.err
		})
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestProbePacket opens a port where the loopback interface is up and where it is down. The
// port knows afterwards what the kernel takes, and the frame that told it has gone nowhere
// else.
func TestProbePacket(t *testing.T) {
	for _, up := range []bool{true, false} {
		b := directBed(t, [2]bool{true, true})
		if !up {
			changeLink(t, b.NS[0], "lo", netlink.LinkSetDown)
		}
		lo, v := sent(t, b.NS[0], "lo"), sent(t, b.NS[0], netlab.Veth)
		p := openPacket(t, b.NS[0], addr4[0])
		want := uint64(0)
		if up {
			want = 1
		}
		if n := sent(t, b.NS[0], "lo").TxPackets - lo.TxPackets; n != want {
			t.Errorf("loopback up %v: %d frames sent, want %d", up, n, want)
		}
		if n := sent(t, b.NS[0], netlab.Veth).TxBytes - v.TxBytes; n >= usoMaxBytes {
			t.Errorf("loopback up %v: %d bytes sent on the interface", up, n)
		}
		if err := p.sendLoopback(probeFrame(2 * usoMaxSegments)); up != errors.Is(err, unix.EINVAL) {
			t.Errorf("loopback up %v: too many segments: %v", up, err)
		}
	}
}

// sent is what an interface has sent.
func sent(t *testing.T, n *netlab.Namespace, name string) (s netlink.LinkStatistics) {
	t.Helper()
	changeLink(t, n, name, func(l netlink.Link) error {
		s = *l.Attrs().Statistics
		return nil
	})
	return s
}

// TestProbeFrame checks the frame against what the kernel expects of one.
func TestProbeFrame(t *testing.T) {
	for _, segments := range []int{usoMaxSegments, usoMaxSegmentsOld} {
		b := probeFrame(segments)
		h, eth := (*[vnetHdrLen]byte)(b), b[vnetHdrLen:]
		if n := rocev2.Segments(eth, segmentSize(h)); n != segments || len(eth) != usoMaxBytes {
			t.Errorf("%d segments in %d bytes, want %d", n, len(eth), segments)
		}
		start, csum := binary.NativeEndian.Uint16(h[6:]), binary.NativeEndian.Uint16(h[8:])
		if h[0] != vnetNeedsCsum || start != ethLen+20 || csum != udpCsumOffset || eth[ethLen+9] != unix.IPPROTO_UDP {
			t.Errorf("virtio header %x", h)
		}
	}
}
