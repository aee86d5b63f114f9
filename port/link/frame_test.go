package link

import (
	"encoding/binary"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
)

// TestSeal: each datagram of a super-frame has the right ICRC, also the last one, which is shorter. So has a single frame.
func TestSeal(t *testing.T) {
	const seg, last = 64, 40
	for _, v4 := range []bool{true, false} {
		for _, segments := range []int{1, 3} {
			frame, size := unsealed(v4, (segments-1)*seg+last), 0
			if segments > 1 {
				size = seg
			}
			scratch := Seal(frame, size, nil)
			for i := range segments {
				scratch = Segment(scratch[:0], frame, size, i)
				if err := bth.CheckICRC(scratch[14:]); err != nil {
					t.Errorf("IPv4 %v, datagram %d of %d: %v", v4, i, segments, err)
				}
			}
		}
	}
}

// unsealed returns a frame of RoCE with n bytes of UDP payload.
func unsealed(v4 bool, n int) []byte {
	b := make([]byte, 14, 14+inet.IPv6Len+inet.UDPLen+n)
	typ := uint16(inet.TypeIPv6)
	ip := append([]byte{0x60, 0, 0, 0, 0, 0, 17, 64}, make([]byte, 32)...)
	if v4 {
		typ = inet.TypeIPv4
		ip = append([]byte{0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17}, make([]byte, 10)...)
	}
	binary.BigEndian.PutUint16(b[12:], typ)
	udp := make([]byte, inet.UDPLen)
	binary.BigEndian.PutUint16(udp[2:], bth.UDPPort)
	inet.SetLengths(ip, udp, 7, n)
	if v4 {
		inet.SealIPv4(ip)
	}
	b = append(append(b, ip...), udp...)
	for i := range n {
		b = append(b, byte(i*7))
	}
	return b
}
