// Package bitpool is the shared bits pool of Lu et al., "Memory Efficient Loss Recovery
// for Hardware-based Transport in Datacenter" (MELO), section 3.2.3: one memory for the
// bitmaps of all connections of a NIC, cut into blocks of a byte, of which each
// connection holds a linked list while packets are missing. The packets that are on
// their way to a NIC are bounded by its bandwidth, however many connections there are,
// and so is what has to be known of them.
package bitpool

import (
	"fmt"

	"roced.io/roced/plugin/param"
)

// blockBits is how many packets a block follows: "1B as the block size".
const blockBits = 8

// MaxBits bounds the size of a pool.
const MaxBits = blockBits << 16

// Pool is the memory. It belongs to one NIC's thread.
type Pool struct {
	bits []uint8  // the blocks
	next []uint16 // next_ptr: the block that follows in the same list
	// avail is the available slots array, a stack: the entries from availPtr on are
	// blocks that nobody has.
	avail    []uint16
	availPtr int

	uses           uint64 // counts packets, see makeRoom
	oldest, newest *List  // swappable lists that hold blocks, in the order of their last use
}

// New returns a pool of that many bits, a multiple of 8 up to MaxBits.
func New(bits int) (*Pool, error) {
	if bits < blockBits || bits > MaxBits || bits%blockBits != 0 {
		return nil, fmt.Errorf("bits pool: %d bits, it must be a multiple of %d up to %d", bits, blockBits, MaxBits)
	}
	n := bits / blockBits
	p := &Pool{bits: make([]uint8, n), next: make([]uint16, n), avail: make([]uint16, n)}
	for i := range p.avail {
		p.avail[i] = uint16(i)
	}
	return p, nil
}

// Read returns a pool of the size that the parameter pool_bits gives, by default 1 Kb (MELO 4).
func Read(r *param.Reader) (*Pool, error) { return New(r.Int("pool_bits", 1024, blockBits, MaxBits)) }

// Blocks returns the number of all blocks.
func (p *Pool) Blocks() int { return len(p.bits) }

// Free is the number of blocks that nobody has.
func (p *Pool) Free() int { return len(p.avail) - p.availPtr }

// Footprint is the size of the pool in bytes as the paper counts it: the blocks, and a
// next_ptr and an entry of the available slots array for each, of a byte while that
// can name all blocks. That makes 3 Kb for 1024 bits.
func (p *Pool) Footprint() int {
	pointer := 1
	if len(p.bits) > 1<<8 {
		pointer = 2
	}
	return len(p.bits) * (1 + 2*pointer)
}

// take removes a block from the stack and clears it. There must be one.
func (p *Pool) take() uint16 {
	b := p.avail[p.availPtr]
	p.availPtr++
	p.bits[b] = 0
	return b
}

// give puts a block back onto the stack.
func (p *Pool) give(b uint16) {
	p.availPtr--
	p.avail[p.availPtr] = b
}
