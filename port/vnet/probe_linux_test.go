package vnet

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// TestProbe simulates the results of different kernels.
func TestProbe(t *testing.T) {
	best := link.Offload{MaxSegments: MaxSegments, MaxBytes: MaxBytes}
	for _, c := range []struct {
		name string
		max  int // maximum number of segments without EINVAL
		err  error
		want link.Offload
	}{
		{"taken", 128, nil, best},
		{"64 taken", 64, nil, link.Offload{MaxSegments: MaxSegmentsOld, MaxBytes: MaxBytes}},
		{"none taken", 0, nil, link.Offload{}},
		{"loopback is down", 128, unix.ENETDOWN, best},
		{"no room", 128, fmt.Errorf("write: %w", unix.ENOBUFS), best},
		{"64 known, device is down", 64, unix.EIO, link.Offload{MaxSegments: MaxSegmentsOld, MaxBytes: MaxBytes}},
	} {
		got := Probe(func(b []byte) error {
			h := (*header)(b)
			if len(b) != HeaderLen+MaxBytes || link.Segments(b[HeaderLen:], h.segmentSize()) > c.max {
				return unix.EINVAL
			}
			return c.err
		})
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// TestProbeFrame checks that the frame satisfies the requirements of the kernel.
func TestProbeFrame(t *testing.T) {
	for _, segments := range []int{MaxSegments, MaxSegmentsOld} {
		b := probeFrame(segments)
		h, eth := (*header)(b), b[HeaderLen:]
		if n := link.Segments(eth, h.segmentSize()); n != segments || len(eth) != MaxBytes {
			t.Errorf("%d segments in %d bytes, want %d", n, len(eth), segments)
		}
		start, csum := binary.NativeEndian.Uint16(h[6:]), binary.NativeEndian.Uint16(h[8:])
		if h[0] != flagNeedsCsum || start != port.EthLen+20 || csum != udpCsumOffset || eth[port.EthLen+9] != unix.IPPROTO_UDP {
			t.Errorf("virtio header %x", h)
		}
	}
}
