package stack

// The ICRC is linear. If two packets of one length should have equal ICRCs and do not, the difference of the ICRCs
// gives the bits in which they differ, provided that these lie in one 32-bit word at a known place. Ports that do not
// see the IP header use that (sockets.go).

// maxUnwind is the largest distance in bytes that unwinder supports: an IP packet.
const maxUnwind = 1 << 16

// crcPolynomial is that of CRC-32, reflected: the coefficient of x^0 is bit 31.
const crcPolynomial = 0xedb88320

// unwinder finds the word in which packets differ. It takes 64 KiB.
type unwinder struct {
	// back[i] is x^(-32*i) modulo the CRC's polynomial.
	back [maxUnwind / 4]uint32
}

func newUnwinder() *unwinder {
	u := &unwinder{}
	power := uint32(1) << 31
	for i := range u.back {
		u.back[i] = power
		for range 32 {
			power = divideX(power)
		}
	}
	return u
}

// divideX divides by x. The polynomial has a coefficient of x^0, so every remainder is divisible.
func divideX(a uint32) uint32 {
	if a>>31 != 0 {
		return (a^crcPolynomial)<<1 | 1
	}
	return a << 1
}

// Word returns the difference of two packets in the word dist bytes before the ICRC, first byte least significant.
// diff is the difference of their ICRCs. The time does not depend on dist. ok is false unless dist is a multiple of 4
// that a packet can have.
func (u *unwinder) Word(diff uint32, dist int) (word uint32, ok bool) {
	if dist < 4 || dist >= maxUnwind || dist&3 != 0 {
		return 0, false
	}
	return multiplyCRC(diff, u.back[dist/4]), true
}

// multiplyCRC multiplies remainders modulo the CRC's polynomial.
func multiplyCRC(a, b uint32) (product uint32) {
	for range 32 {
		product ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crcPolynomial&-(b&1)
	}
	return product
}
