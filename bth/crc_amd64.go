package bth

import "hash/crc32"

// foldMin is the minimum length for which folding is faster than hash/crc32, and the minimum length of foldAVX2.
const foldMin = 32

// foldTable holds the factors with which foldAVX2 moves 16 bytes over a distance of d bits. They are remainders by
// the CRC's polynomial: of x^(d+63) for the first half and of x^(d-1) for the second. Words are bit-reflected: bit 63
// is the coefficient of x^0, and a product is multiplied by x.
var foldTable = [3][2]uint64{
	{0x7d657a1000000000, 0x7406fa9500000000}, // 128 bytes
	{0x9570d49500000000, 0x01b5fd1d00000000}, // 32 bytes
	{0x65673b4600000000, 0x9ba54c6f00000000}, // 16 bytes
}

// canFold reports whether the processor and the operating system support foldAVX2.
var canFold = detectFold()

// crcUpdate continues the CRC-32 crc over p.
func crcUpdate(crc uint32, p []byte) uint32 {
	if canFold && len(p) >= foldMin {
		return crcFold(crc, p)
	}
	return crc32.Update(crc, crc32.IEEETable, p)
}

// crcFold is crcUpdate for p of foldMin bytes or more.
func crcFold(crc uint32, p []byte) uint32 {
	whole := len(p) &^ 15
	lo, hi := foldAVX2(^crc, p[:whole])
	return ^icrcBytes(icrcStep8(icrcStep8(0, lo), hi), p[whole:])
}

// foldAVX2 returns 16 bytes, lo first, that change the CRC state 0 to the state
// to which p changes the state c. The length of p is a multiple of 16 from 32 on. The
// method is that of Gopal et al., "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction" (Intel, 2009), with two lanes per register.
//
//go:noescape
func foldAVX2(c uint32, p []byte) (lo, hi uint64)

// detectFold reports whether the processor has AVX2 and VPCLMULQDQ, and the operating system saves the YMM registers
// (Intel SDM vol. 1, 14.3 and 14.7.1).
func detectFold() bool {
	const (
		osxsave    = 1 << 27 // leaf 1, ECX
		avx        = 1 << 28
		avx2       = 1 << 5  // leaf 7, EBX
		vpclmulqdq = 1 << 10 // leaf 7, ECX
		ymmState   = 1<<1 | 1<<2
	)
	if last, _, _, _ := cpuid(0, 0); last < 7 {
		return false
	}
	_, _, ecx, _ := cpuid(1, 0)
	if ecx&osxsave == 0 || ecx&avx == 0 || xgetbv()&ymmState != ymmState {
		return false
	}
	_, ebx, ecx, _ := cpuid(7, 0)
	return ebx&avx2 != 0 && ecx&vpclmulqdq != 0
}

// cpuid returns the result of CPUID for leaf and subleaf.
func cpuid(leaf, subleaf uint32) (eax, ebx, ecx, edx uint32)

// xgetbv returns the low half of XCR0, the register state that the operating system saves. It needs osxsave.
func xgetbv() uint32
