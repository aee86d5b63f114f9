// Package bitpool implements the shared bits pool of Lu et al., "Memory Efficient Loss Recovery for Hardware-based
// Transport in Datacenter" (MELO), section 3.2.3: one memory for the bitmaps of all connections of a NIC, divided into
// blocks of one byte. A connection holds a linked list of blocks while packets are missing. The bandwidth of a NIC limits
// the packets in flight to it, and therefore the size of the pool, whatever the number of connections.
package bitpool

import (
	"fmt"

	"roced.io/roced/plugin/param"
)

// blockBits is the number of packets per block: "1B as the block size".
const blockBits = 8

// MaxBits is the maximum size of a pool.
const MaxBits = blockBits << 16

// Pool is the memory of one NIC. Only the NIC's goroutine may use it.
type Pool struct {
	bits []uint8  // the blocks
	next []uint16 // next_ptr: the block that follows in the same list
	// avail is the available slots array, a stack: the entries from availPtr on are the free blocks.
	avail    []uint16
	availPtr int

	uses           uint64 // number of uses, see makeRoom
	oldest, newest *List  // swappable lists with blocks, in the order of their last use
}

// New returns a pool of that many bits, a multiple of 8 up to MaxBits.
func New(bits int) (*Pool, error) {
	if bits < blockBits || bits > MaxBits || bits%blockBits != 0 {
		return nil, fmt.Errorf("bit pool of %d bits: must be a multiple of %d up to %d", bits, blockBits, MaxBits)
	}
	n := bits / blockBits
	p := &Pool{bits: make([]uint8, n), next: make([]uint16, n), avail: make([]uint16, n)}
	for i := range p.avail {
		p.avail[i] = uint16(i)
	}
	return p, nil
}

// Read returns a pool of the size that the parameter pool_bits gives, by default 1 Kb (MELO 4).
func Read(r *param.Reader) *Pool {
	p, err := New(r.Int("pool_bits", 1024, blockBits, MaxBits))
	if err != nil {
		r.Fail(err)
	}
	return p
}

// Blocks returns the number of all blocks.
func (p *Pool) Blocks() int { return len(p.bits) }

// Free returns the number of free blocks.
func (p *Pool) Free() int { return len(p.avail) - p.availPtr }

// Footprint returns the size of the pool in bytes as the paper counts it: the blocks, and for each block a next_ptr and an
// entry of the available slots array, of one byte each up to 256 blocks. That is 3 Kb for 1024 bits.
func (p *Pool) Footprint() int {
	pointer := 1
	if len(p.bits) > 1<<8 {
		pointer = 2
	}
	return len(p.bits) * (1 + 2*pointer)
}

// take removes a block from the stack and clears it. The stack must not be empty.
func (p *Pool) take() uint16 {
	b := p.avail[p.availPtr]
	p.availPtr++
	p.bits[b] = 0
	return b
}

// give returns a block to the stack.
func (p *Pool) give(b uint16) {
	p.availPtr--
	p.avail[p.availPtr] = b
}
