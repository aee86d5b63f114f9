// Package psnring implements bitmaps with one bit per PSN, for windows that slide along the PSN space.
package psnring

import (
	"math/bits"

	"roced.io/roced/bth"
)

// wordBits is the number of PSNs per word.
const wordBits = 64

// Bits holds one bit for each of Len() consecutive PSNs. Which ones is up to the caller: PSNs whose distance is a
// multiple of Len share a bit. Len is a power of two, so that the ring continues across the wrap of the PSNs.
type Bits []uint64

// Make returns cleared bits for a window of at least n PSNs.
func Make(n int) Bits {
	return make(Bits, 1<<bits.Len(uint(max(n, wordBits)-1))/wordBits)
}

// Len returns the number of PSNs that have a bit of their own.
func (b Bits) Len() uint32 { return uint32(len(b)) * wordBits }

// Set sets the bit of psn.
func (b Bits) Set(psn bth.PSN) { i := b.index(psn); b[i/wordBits] |= 1 << (i % wordBits) }

// Clear clears the bit of psn.
func (b Bits) Clear(psn bth.PSN) { i := b.index(psn); b[i/wordBits] &^= 1 << (i % wordBits) }

// Has reports whether the bit of psn is set.
func (b Bits) Has(psn bth.PSN) bool { i := b.index(psn); return b[i/wordBits]>>(i%wordBits)&1 != 0 }

func (b Bits) index(psn bth.PSN) uint32 { return psn.Uint32() & (b.Len() - 1) }

// Count returns the number of set bits among n PSNs from psn on; n is at most Len.
func (b Bits) Count(psn bth.PSN, n uint32) (set uint32) {
	for i := b.index(psn); n > 0; {
		k := min(wordBits-i%wordBits, n)
		word := b[i/wordBits] >> (i % wordBits)
		set += uint32(bits.OnesCount64(word & (1<<k - 1)))
		i, n = (i+k)&(b.Len()-1), n-k
	}
	return set
}
