package frame

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// icrc returns the invariant CRC of the frame from its IP header to the ICRC (IBTA vol.1 7.8.1, annex A17.3.3): a CRC-32 over
// eight bytes of ones in place of the local route header, and over the packet, with ones in place of bits that may change on
// the way.
func (f *Frame) icrc() uint32 {
	b := slices.Concat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, f.Bytes[f.l3():f.off[hdrICRC]])
	for _, name := range []string{"ip.dscp", "ip.ecn", "ip.ttl", "ip.csum", "ip.flow", "udp.csum", "fecn", "becn", "bth.res6"} {
		if x := f.field(name); x != nil {
			x.put(b[8+f.off[x.hdr]-f.l3():], ^uint64(0))
		}
	}
	return crc32.ChecksumIEEE(b)
}

// wireICRC returns the ICRC in the frame. On the wire, its least significant byte comes first.
func (f *Frame) wireICRC() uint32 { return binary.LittleEndian.Uint32(f.Bytes[f.off[hdrICRC]:]) }

// l3 returns the offset of the IP header.
func (f *Frame) l3() int { return f.off[hdrIPv4] + f.off[hdrIPv6] }
