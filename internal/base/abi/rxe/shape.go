package rxe

import (
	"errors"
	"fmt"
	"math/bits"
)

const (
	minElem  = 64 // a cache line
	pageSize = 4096
	// maxRing limits the size of a ring: struct mminfo has 32 bits for it.
	maxRing = 1 << 30
)

// Errors of creating a ring.
var (
	ErrTooLarge = errors.New("rxe: ring too large")
	ErrMemory   = errors.New("rxe: memory does not hold the ring")
)

// Shape is the geometry of a ring.
type Shape struct {
	// Log2Elem is the binary logarithm of the size of an element in bytes.
	Log2Elem uint32
	// Mask is the number of elements minus one: the capacity of the ring.
	Mask uint32
	// MaxSGE and MaxInline are the capacities of an element: the number of SGEs, and the number of bytes of inline
	// data.
	MaxSGE    uint32
	MaxInline uint32
}

// SendShape returns the geometry of a send ring for wr work requests. MaxInline
// may exceed the argument, because SGEs and inline data share their memory.
func SendShape(wr, sge, inline uint32) (Shape, error) {
	s, err := shape(wr, sendElem(sge, inline))
	s.MaxSGE, s.MaxInline = sge, max(inline, sge*uint32(sgeLen))
	return s, err
}

// RecvShape returns the geometry of a receive ring for wr work requests.
func RecvShape(wr, sge uint32) (Shape, error) {
	s, err := shape(wr, recvElem(sge))
	s.MaxSGE = sge
	return s, err
}

// CQShape returns the geometry of a ring for cqe completions.
func CQShape(cqe uint32) (Shape, error) { return shape(cqe, wcLen) }

func sendElem(sge, inline uint32) uint64 { return sendLen + max(uint64(inline), uint64(sge)*sgeLen) }

func recvElem(sge uint32) uint64 { return recvLen + uint64(sge)*sgeLen }

// shape rounds up as rxe_queue_init does: a ring has one element more than it can
// hold.
func shape(n uint32, elem uint64) (Shape, error) {
	if elem > maxRing || n > maxRing {
		return Shape{}, fmt.Errorf("%w: %d elements of %d bytes", ErrTooLarge, n, elem)
	}
	s := Shape{
		Log2Elem: uint32(bits.Len64(max(elem, minElem) - 1)),
		Mask:     1<<bits.Len32(n) - 1,
	}
	if s.size() > maxRing {
		return Shape{}, fmt.Errorf("%w: %d elements of %d bytes", ErrTooLarge, n, elem)
	}
	return s, nil
}

// Entries returns the number of elements that the ring can hold.
func (s Shape) Entries() uint32 { return s.Mask }

// Size returns the size of the ring's memory in bytes: whole pages.
func (s Shape) Size() int { return int(s.size()) }

func (s Shape) size() uint64 {
	return (offData + (uint64(s.Mask)+1)<<s.Log2Elem + pageSize - 1) &^ (pageSize - 1)
}
