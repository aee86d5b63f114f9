package rocev2

import "encoding/binary"

// AppendTo appends the pieces of f to b, for those who need it contiguous.
func (f *Frame) AppendTo(b []byte) []byte {
	for _, p := range f.Bufs {
		b = append(b, p...)
	}
	return b
}

// udpBody returns where the IP header of a UDP frame ends and its UDP payload
// begins and ends; ok is false when it is not a whole UDP datagram in IPv4 or
// IPv6 without extension headers.
func udpBody(frame []byte) (l4, body, end int, ok bool) {
	typ, l2, _ := etherType(frame)
	ip := frame[l2:]
	if len(ip) < ipv4Len+udpLen {
		return 0, 0, 0, false
	}
	switch typ {
	case ethTypeIPv4:
		l4, ok = l2+int(ip[0]&0xf)*4, ip[0]>>4 == 4 && ip[9] == protoUDP
	case ethTypeIPv6:
		l4, ok = l2+ipv6Len, ip[0]>>4 == 6 && ip[6] == protoUDP
	}
	if !ok || l4 < l2+ipv4Len || l4+udpLen > len(frame) {
		return 0, 0, 0, false
	}
	end = l4 + int(binary.BigEndian.Uint16(frame[l4+4:]))
	return l4, l4 + udpLen, end, end >= l4+udpLen && end <= len(frame)
}

// Segments returns the number of datagrams in a contiguous frame whose segments
// have segSize bytes of UDP payload: 1 when it is a single frame.
func Segments(frame []byte, segSize int) int {
	_, body, end, ok := udpBody(frame)
	if segSize <= 0 || !ok || end-body <= segSize {
		return 1
	}
	return (end - body + segSize - 1) / segSize
}

// Segment appends segment i of a contiguous super-frame to dst as the frame that
// the link would make of it: IP ID of the header plus i, lengths and IP checksum
// its own, UDP checksum zero. A single frame is appended unchanged. There is no
// segment i >= Segments(frame, segSize): dst is returned.
func Segment(dst, frame []byte, segSize, i int) []byte {
	l4, body, end, ok := udpBody(frame)
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
	_, l2, _ := etherType(frame)
	ip, udp := dst[start+l2:start+l4], dst[start+l4:start+body]
	id := uint16(0)
	if ip[0]>>4 == 4 {
		id = binary.BigEndian.Uint16(ip[4:]) + uint16(i)
	}
	setLengths(ip, udp, id, to-from)
	udp[6], udp[7] = 0, 0
	if ip[0]>>4 == 4 {
		sealIPv4(ip)
	}
	return append(dst, frame[from:to]...)
}
