package engine

import (
	"math"

	"roced.io/roced/qp"
)

// maxMessage is the longest message, and the length of the memory that each queue pair shows to its peer.
const maxMessage = qp.MaxMessage

// blank is memory without content, for messages of any length: readers get a pattern, and writes vanish.
type blank struct{ pattern []byte }

// blankLen is longer than any packet and its offset in the pattern.
const blankLen = 128 << 10

// memory is the memory of all queue pairs.
var memory = func() *blank {
	b := &blank{make([]byte, blankLen)}
	for i := range b.pattern {
		b.pattern[i] = byte(i)
	}
	return b
}()

// View implements memory.Memory.
func (b *blank) View(off uint64, n int) ([]byte, bool) {
	at := int(off % 4096)
	if n < 0 || n > len(b.pattern)-at {
		return nil, false
	}
	return b.pattern[at : at+n : at+n], true
}

// Write implements memory.Memory.
func (b *blank) Write(uint64, []byte) bool { return true }

// CompareSwap implements memory.Memory. No flow has atomic operations.
func (b *blank) CompareSwap(uint64, uint64, uint64) (uint64, bool) { return 0, false }

// FetchAdd implements memory.Memory.
func (b *blank) FetchAdd(uint64, uint64) (uint64, bool) { return 0, false }

// window returns the length of a queue pair's memory at an address, which may be close to the end of the address space.
func window(va uint64) uint64 {
	if left := math.MaxUint64 - va; left < maxMessage {
		return left
	}
	return maxMessage
}
