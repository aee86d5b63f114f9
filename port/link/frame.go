package link

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/mapped"
)

// Frame is one Ethernet frame to send, or a super-frame: several datagrams with one set of headers, which the link
// segments (UDP segmentation offload). It is valid until the next call that returns a Frame.
type Frame struct {
	// Bufs are the pieces, from the Ethernet header on: views of headers, client memory and ICRCs.
	Bufs [][]byte
	// Len is the sum of the pieces' lengths.
	Len int
	// HdrLen is the length of the Ethernet, IP and UDP headers, which are all in Bufs[0]. It is zero for frames
	// other than UDP.
	HdrLen int
	// SegSize is the UDP payload of every segment but the last, which may be shorter; zero for a single frame. The
	// IP ID of segment i is that of the header plus i. IP and UDP lengths are the segment's.
	SegSize int
	// Apart: a NIC on sockets must send the datagrams of this super-frame one by one, because the peer may not
	// accept the IP IDs that segmentation gives (package stack).
	Apart bool
	// Begun is the number of datagrams of a super-frame that the port has sent. The port sets it when it cannot send the rest.
	Begun int
	// Forwarded: another NIC of the switch has got the packets. There are no Bufs, and nothing is left to send.
	Forwarded bool
	// Across is the port of the receiver if that is another NIC of the switch (Switch.Join). The port passes the frame to
	// it, because one of them has fault rules, or their owners differ.
	Across any
	// Unseen: the observer has not seen the frame, because the port shows it (Offload.Faults).
	Unseen bool
	// Unsealed: the frame has no ICRCs, because its receiver is in this process (Offload.Unsealed).
	Unsealed bool
}

// Copy is AppendTo for a frame without ICRCs. whole is false if client memory has gone.
func (f *Frame) Copy(b []byte) (out []byte, whole bool) {
	whole = true
	for _, p := range f.Bufs {
		n := len(b)
		b = slices.Grow(b, len(p))[:n+len(p)]
		whole = mapped.Copy(b[n:], p) && whole
	}
	return b, whole
}

// Seal computes the ICRCs of a frame or super-frame that has none. It returns scratch, which it may have enlarged.
func Seal(frame []byte, segSize int, scratch []byte) []byte {
	_, body, end, _ := inet.UDPBody(frame)
	for i := range Segments(frame, segSize) {
		scratch = Segment(scratch[:0], frame, segSize, i)
		_, l2, _ := inet.EtherType(scratch)
		crc, _, err := bth.ICRC(scratch[l2:])
		if err != nil {
			continue // too short for an ICRC
		}
		at := end
		if segSize > 0 {
			at = min(body+(i+1)*segSize, end)
		}
		bth.PutICRC(frame[at-bth.ICRCLen:], crc)
	}
	return scratch
}

// AppendTo appends the pieces of f to b. Zeros replace client memory that has gone, so that the ICRC is wrong.
func (f *Frame) AppendTo(b []byte) []byte {
	for _, p := range f.Bufs {
		b = mapped.Append(b, p)
	}
	return b
}

// WireLen returns the bytes of f on the wire as segs frames, with preamble, frame check sequence and gap.
func (f *Frame) WireLen(segs int) int { return f.Len + (segs-1)*f.HdrLen + segs*Overhead }

// SkipSegment counts a datagram of a super-frame as sent, and reports whether others remain.
func (f *Frame) SkipSegment() bool {
	f.Begun++
	return f.Begun*f.SegSize < f.Len-f.HdrLen
}

// Segments returns the number of datagrams in a contiguous frame whose segments have segSize bytes of UDP payload,
// 1 for a single frame.
func Segments(frame []byte, segSize int) int {
	_, body, end, ok := inet.UDPBody(frame)
	if segSize <= 0 || !ok || end-body <= segSize {
		return 1
	}
	return (end - body + segSize - 1) / segSize
}

// Segment appends segment i of a contiguous super-frame to dst, as the link would send it: IP ID of the header plus
// i, its own lengths and IP checksum, UDP checksum zero. It appends a single frame unchanged, and nothing for
// i >= Segments(frame, segSize).
func Segment(dst, frame []byte, segSize, i int) []byte {
	l4, body, end, ok := inet.UDPBody(frame)
	if segSize <= 0 || !ok || end-body <= segSize {
		if i != 0 {
			return dst
		}
		return append(dst, frame...)
	}
	if i < 0 || i > (end-body-1)/segSize {
		return dst
	}
	from := body + i*segSize
	to := min(from+segSize, end)
	start := len(dst)
	dst = append(dst, frame[:body]...)
	_, l2, _ := inet.EtherType(frame)
	ip, udp := dst[start+l2:start+l4], dst[start+l4:start+body]
	v4, id := ip[0]>>4 == 4, uint16(0)
	if v4 {
		id = binary.BigEndian.Uint16(ip[4:]) + uint16(i)
	}
	inet.SetLengths(ip, udp, id, to-from)
	udp[6], udp[7] = 0, 0
	if v4 {
		inet.SealIPv4(ip)
	}
	return append(dst, frame[from:to]...)
}

// Destination returns address, VLAN and queue pair that a frame of RoCEv2 goes to. ok is false for other frames.
func Destination(frame []byte) (dst inet.GID, vlan uint16, qpn bth.QPN, ok bool) {
	l4, body, end, ok := inet.UDPBody(frame)
	if !ok || end-body < bth.BTHLen || !bth.IsUDPPort(binary.BigEndian.Uint16(frame[l4+2:])) {
		return dst, 0, 0, false
	}
	typ, l2, t := inet.EtherType(frame)
	if typ == inet.TypeIPv4 {
		dst = inet.GIDOf(netip.AddrFrom4([4]byte(frame[l2+16:])))
	} else {
		dst = inet.GID(frame[l2+24:])
	}
	return dst, t.VLAN(), bth.QPN(binary.BigEndian.Uint32(frame[body+4:])) & bth.MaxQPN, true
}
