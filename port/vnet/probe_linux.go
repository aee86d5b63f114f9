package vnet

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// Probe returns the super-frames that the kernel accepts. It passes super-frames with virtio headers to send, which
// writes them where they do no harm. A kernel refuses with EINVAL a kind of super-frame that it does not know (UDP
// before Linux 6.2) and a super-frame with too many segments. After any other result Probe assumes support.
func Probe(send func(b []byte) error) link.Offload {
	for _, segments := range []int{MaxSegments, MaxSegmentsOld} {
		if err := send(probeFrame(segments)); !errors.Is(err, unix.EINVAL) {
			return link.Offload{MaxSegments: segments, MaxBytes: MaxBytes}
		}
	}
	return link.Offload{}
}

// probeFrame returns a super-frame of MaxBytes behind its virtio header. Its addresses are the loopback address and
// an unused Ethernet address, and its port is the discard port, so that every receiver drops it silently.
func probeFrame(segments int) []byte {
	const hdrLen = port.EthLen + 20 + udpLen
	b := make([]byte, HeaderLen+MaxBytes)
	size := MaxBytes - hdrLen
	(*header)(b).set(hdrLen, (size+segments-1)/segments)
	eth := b[HeaderLen:]
	copy(eth, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x01\x08\x00")
	ip := eth[port.EthLen:]
	copy(ip, "\x45\x00\x00\x00\x00\x00\x40\x00\x01\x11\x00\x00\x7f\x00\x00\x01\x7f\x00\x00\x01")
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp[2:], discardPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	return b
}

// discardPort is the port of the discard protocol (RFC 863).
const discardPort = 9

// Reduce returns the super-frames that the kernel still accepts after it has refused one with this number of
// segments: the limit of older kernels, or none.
func Reduce(o link.Offload, refused int) link.Offload {
	if refused > MaxSegmentsOld {
		o.MaxSegments = min(o.MaxSegments, MaxSegmentsOld)
		return o
	}
	return link.Offload{}
}
