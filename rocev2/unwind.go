package rocev2

// The ICRC is linear: two packets of one length whose ICRCs ought to be equal, and are not, differ
// by bits that the difference of the ICRCs tells, if they all lie in one word of 32 bits whose place
// is known. Ports that do not see the IP header use that (package rocev2, sockets.go).

// maxUnwind is the largest distance over which unwinder goes back, in bytes: that of an IP packet.
const maxUnwind = 1 << 16

// crcPolynomial is that of CRC-32, reflected: the coefficient of x^0 is bit 31.
const crcPolynomial = 0xedb88320

// unwinder finds the word by which packets differ. It takes 64 KiB.
type unwinder struct {
	// back[i] is x to the power of -32*i, by the CRC's polynomial.
	back [maxUnwind / 4]uint32
}

// newUnwinder makes the tables.
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

// divideX divides by x: the polynomial has a coefficient of x^0, so each remainder can be divided.
func divideX(a uint32) uint32 {
	if a>>31 != 0 {
		return (a^crcPolynomial)<<1 | 1
	}
	return a << 1
}

// Word returns the difference of two packets in the word that begins dist bytes before the
// ICRC, whose first byte is the least significant one; diff is the difference of their ICRCs.
// It takes the same time for each length. ok is false when dist is not a multiple of 4 that a
// packet can have.
func (u *unwinder) Word(diff uint32, dist int) (word uint32, ok bool) {
	if dist < 4 || dist >= maxUnwind || dist&3 != 0 {
		return 0, false
	}
	return multiplyCRC(diff, u.back[dist/4]), true
}

// multiplyCRC multiplies remainders by the CRC's polynomial.
func multiplyCRC(a, b uint32) (product uint32) {
	for range 32 {
		product ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crcPolynomial&-(b&1)
	}
	return product
}
