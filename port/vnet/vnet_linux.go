// Package vnet exchanges frames and UDP super-frames with descriptors of the kernel that put a virtio header before
// each frame: TAP devices with IFF_VNET_HDR and AF_PACKET sockets with PACKET_VNET_HDR.
//
// No promise: this package may change between releases.
package vnet

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"roced.io/roced/port"
	"roced.io/roced/port/link"
)

// HeaderLen is the size of struct virtio_net_hdr without the field num_buffers.
const HeaderLen = 10

// Limits of Linux on a UDP super-frame. TestSuperFrameLimits measures them on TAP - bridge - veth - bridge - TAP
// (Linux 6.18).
const (
	// MaxBytes is the length of the longest super-frame that passes unsplit, including its Ethernet header. A device
	// forwards a super-frame unsplit only if that is shorter than its gso_max_size, 65536. The kernel accepts up
	// to the longest IP packet, and the first such device segments it in software.
	MaxBytes = 65535
	// MaxSegments is UDP_MAX_SEGMENTS in newer kernels, MaxSegmentsOld in older ones. A write with more segments
	// fails with EINVAL and sends nothing.
	MaxSegments    = 128
	MaxSegmentsOld = 64
)

// Fields of struct virtio_net_hdr.
const (
	flagNeedsCsum = 1
	gsoUDPL4      = 5
	gsoECN        = 0x80

	udpLen        = 8
	udpCsumOffset = 6
)

// header is the virtio header of a frame (virtio 1.2, 5.1.6).
type header [HeaderLen]byte

// set describes a super-frame to the kernel. The UDP checksum is left to the kernel, which computes it only if the
// super-frame leaves the machine or is segmented. A single frame has no UDP checksum.
func (h *header) set(hdrLen, segSize int) {
	h[0], h[1] = flagNeedsCsum, gsoUDPL4
	binary.NativeEndian.PutUint16(h[2:], uint16(hdrLen))
	binary.NativeEndian.PutUint16(h[4:], uint16(segSize))
	binary.NativeEndian.PutUint16(h[6:], uint16(hdrLen-udpLen))
	binary.NativeEndian.PutUint16(h[8:], udpCsumOffset)
}

// segmentSize returns the segment size of a UDP super-frame, 0 for other frames.
func (h *header) segmentSize() int {
	if h[1]&^gsoECN != gsoUDPL4 {
		return 0
	}
	return int(binary.NativeEndian.Uint16(h[4:]))
}

// SegmentSize returns the segment size of a UDP super-frame with this virtio header, 0 for other frames.
func SegmentSize(h *[HeaderLen]byte) int { return (*header)(h).segmentSize() }

// Queue sends and receives frames with their virtio headers. The zero value is ready to use.
type Queue struct {
	// Refuse, if not nil, returns the error of a write before the kernel sees it. Tests set it.
	Refuse func(f *link.Frame) unix.Errno

	tx, rx header
	vector port.Vector
}

// Send writes a frame or super-frame.
func (q *Queue) Send(fd int, f *link.Frame) unix.Errno {
	if q.Refuse != nil {
		if e := q.Refuse(f); e != 0 {
			return e
		}
	}
	q.tx = header{}
	if f.SegSize != 0 {
		q.tx.set(f.HdrLen, f.SegSize)
	}
	q.vector.Set(0, q.tx[:])
	_, e := port.RawVector(unix.SYS_WRITEV, fd, q.vector.Gather(1, f))
	return e
}

// Recv reads a frame or super-frame for the port with the given base. It drops frames that are too short. kind and
// poll are as in port.Base.SendFailed. The segment size of a TCP super-frame is 0; the NIC ignores such a frame.
func (q *Queue) Recv(b *port.Base, kind string, buf []byte, poll func()) (frame []byte, segSize int, err error) {
	if b.FD() < 0 {
		return nil, 0, port.ErrDown
	}
	if len(buf) == 0 {
		return nil, 0, errors.New(kind + ": empty buffer")
	}
	q.vector.Set(0, q.rx[:])
	q.vector.Set(1, buf)
	for {
		n, e := port.RawVector(unix.SYS_READV, b.FD(), q.vector.Entries(2))
		if e != 0 {
			return nil, 0, b.RecvFailed(kind, e, poll)
		}
		if n -= HeaderLen; n >= port.EthLen {
			return buf[:n], q.rx.segmentSize(), nil
		}
		b.Counters.RecvDropped++
	}
}
