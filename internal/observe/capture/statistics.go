package capture

import (
	"encoding/binary"
	"fmt"
)

// The interface statistics block of pcapng (draft-ietf-opsawg-pcapng 4.6).
const (
	blockStatistics = 5
	optEnd          = 0
	optComment      = 1
	optReceived     = 4 // isb_ifrecv
	optDropped      = 5 // isb_ifdrop
)

// appendStatistics appends the statistics of interface 0. now is in nanoseconds since the Unix epoch.
func appendStatistics(b []byte, now int64, s Stats) []byte {
	le := binary.LittleEndian
	start := len(b)
	b = le.AppendUint32(b, blockStatistics)
	b = le.AppendUint32(b, 0) // length, see below
	b = le.AppendUint32(b, 0) // interface
	b = le.AppendUint32(b, uint32(uint64(now)>>32))
	b = le.AppendUint32(b, uint32(now))
	for _, o := range [][2]uint64{{optReceived, s.Written + s.Lost}, {optDropped, s.Lost}} {
		b = le.AppendUint16(b, uint16(o[0]))
		b = le.AppendUint16(b, 8)
		b = le.AppendUint64(b, o[1])
	}
	if s.Lost > 0 {
		text := fmt.Sprintf("%d of %d frames were lost by the capture", s.Lost, s.Written+s.Lost)
		b = le.AppendUint16(b, optComment)
		b = le.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	b = le.AppendUint32(b, optEnd)
	n := uint32(len(b) - start + 4)
	le.PutUint32(b[start+4:], n)
	return le.AppendUint32(b, n)
}
