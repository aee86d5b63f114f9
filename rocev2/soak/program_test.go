package soak

import "encoding/binary"

// program interprets the bytes of a fuzzer as decisions. After its end all decisions are zero.
type program struct{ b []byte }

func (p *program) more() bool { return len(p.b) > 0 }

func (p *program) byte() byte {
	if len(p.b) == 0 {
		return 0
	}
	v := p.b[0]
	p.b = p.b[1:]
	return v
}

func (p *program) u16() int { return int(p.byte())<<8 | int(p.byte()) }

func (p *program) u32() uint32 { return uint32(p.u16())<<16 | uint32(p.u16()) }

func (p *program) u64() uint64 { return uint64(p.u32())<<32 | uint64(p.u32()) }

// below returns a number from 0 to n-1.
func (p *program) below(n int) int {
	if n <= 256 {
		return int(p.byte()) % n
	}
	return p.u16() % n
}

// bytes returns n bytes.
func (p *program) bytes(n int) []byte {
	out := make([]byte, n)
	k := copy(out, p.b)
	p.b = p.b[k:]
	return out
}

// size draws a length, usually an interesting one.
func (p *program) size(mtu int) int {
	switch k := p.below(12); k {
	case 0, 1, 2, 3, 4:
		return k
	case 5:
		return mtu - 1
	case 6, 7:
		return mtu
	case 8:
		return mtu + 1
	case 9:
		return p.below(3 * mtu)
	case 10:
		return 8
	}
	return int(p.byte())
}

// wide draws a number of 32 bits that is interesting as a length.
func (p *program) wide(most int) uint32 {
	switch p.below(8) {
	case 0:
		return 0
	case 1:
		return 1
	case 2, 3, 4:
		return uint32(p.below(most + 1))
	case 5:
		return uint32(most + 1)
	case 6:
		return 1<<31 + uint32(p.below(3)) - 1
	}
	return p.u32()
}

// canary fills memory that is closed to all peers.
var canary = []byte{0xc5, 0x1a, 0x96, 0xe3, 0x78, 0x2d, 0xb1, 0x4f}

func fillCanary(b []byte) {
	for i := range b {
		b[i] = canary[i%len(canary)]
	}
}

// plain fills memory with bytes that do not contain the canary.
func plain(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i)&0x3f
	}
}

func be16(b []byte, v int) { binary.BigEndian.PutUint16(b, uint16(v)) }
