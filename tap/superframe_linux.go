package tap

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"roced.io/roced/rocev2"
)

// probeOffload finds out what the kernel takes by offering it super-frames, which send
// writes to where they do no harm. Kernels refuse with EINVAL what they do not know (UDP
// super-frames before Linux 6.2) and what has too many segments; any other answer says
// nothing of that, and the best is hoped for.
func probeOffload(send func(b []byte) error) rocev2.Offload {
	for _, segments := range []int{usoMaxSegments, usoMaxSegmentsOld} {
		if err := send(probeFrame(segments)); !errors.Is(err, unix.EINVAL) {
			return rocev2.Offload{MaxSegments: segments, MaxBytes: usoMaxBytes}
		}
	}
	return rocev2.Offload{}
}

// probeFrame is a super-frame of that many segments and of usoMaxBytes behind its virtio
// header. It goes from the host to its own discard port, by an Ethernet address that no
// station has: who receives it drops it in silence.
func probeFrame(segments int) []byte {
	const hdr = ethLen + 20 + udpLen
	b := make([]byte, vnetHdrLen+usoMaxBytes)
	size := usoMaxBytes - hdr
	putVnetHdr((*[vnetHdrLen]byte)(b), hdr, (size+segments-1)/segments)
	eth := b[vnetHdrLen:]
	copy(eth, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x01\x08\x00")
	ip := eth[ethLen:]
	copy(ip, "\x45\x00\x00\x00\x00\x00\x40\x00\x01\x11\x00\x00\x7f\x00\x00\x01\x7f\x00\x00\x01")
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	udp := ip[20:]
	binary.BigEndian.PutUint16(udp[2:], discardPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	return b
}

// discardPort is that of the discard protocol (RFC 863).
const discardPort = 9

// less is what the kernel takes if it has refused a super-frame of that many segments: as
// many as older kernels do, or none.
func less(o rocev2.Offload, refused int) rocev2.Offload {
	if refused > usoMaxSegmentsOld {
		o.MaxSegments = min(o.MaxSegments, usoMaxSegmentsOld)
		return o
	}
	return rocev2.Offload{}
}
