package nic

import (
	"unsafe"

	"roced.io/roced/internal/sim/prefetch"
)

// slab allocates the packets in flight. Their addresses do not change.
type slab struct {
	chunks [][]parcel
	unused uint32 // first of the free list, plus one
	used   int

	rests      []rest
	unusedRest uint32
}

const chunkShift = 10

func (s *slab) at(ref uint32) *parcel {
	return &s.chunks[ref>>chunkShift][ref&(1<<chunkShift-1)]
}

// soon prefetches a parcel, which has left the caches while it was in flight.
func (s *slab) soon(ref uint32) {
	p := unsafe.Pointer(s.at(ref))
	for line := uintptr(0); line < unsafe.Sizeof(parcel{}); line += 64 {
		prefetch.Line(unsafe.Add(p, line))
	}
}

// take allocates a parcel.
func (s *slab) take() (uint32, *parcel) {
	if s.unused == 0 {
		s.grow()
	}
	ref := s.unused - 1
	p := s.at(ref)
	s.unused = p.next
	s.used++
	return ref, p
}

func (s *slab) grow() {
	first := uint32(len(s.chunks)) << chunkShift
	chunk := make([]parcel, 1<<chunkShift)
	for i := range chunk {
		chunk[i].next = first + uint32(i) + 2
	}
	chunk[len(chunk)-1].next = 0
	s.chunks = append(s.chunks, chunk)
	s.unused = first + 1
}

func (s *slab) free(ref uint32) {
	p := s.at(ref)
	if p.rest != 0 {
		s.freeRest(p)
	}
	p.next, s.unused = s.unused, ref+1
	s.used--
}
