package nic

import (
	"unsafe"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/sim/prefetch"
)

// slab allocates the packets in flight. Their addresses do not change.
//
// Slabs of several parts share their chunks, so that each part can read all packets. A chunk belongs to the part that
// made it; other parts collect its free packets until the part takes them back.
type slab struct {
	chunks [][]parcel
	unused uint32 // first of the free list, plus one
	used   int
	own    uint32     // number of the next own chunk
	parts  uint32     // zero: one part
	id     uint32     // of this part
	others [2][]chain // by window and part: its packets that this part has freed
	window int        // index of this window

	telemetry [][]ccalgo.Telemetry // by chunk; nil: no packet has any

	rests      []rest
	unusedRest uint32
}

const chunkShift = 10

func (s *slab) at(ref uint32) *parcel {
	return &s.chunks[ref>>chunkShift][ref&(1<<chunkShift-1)]
}

// telemetryOf returns the telemetry of a packet.
func (s *slab) telemetryOf(ref uint32) *ccalgo.Telemetry {
	return &s.telemetry[ref>>chunkShift][ref&(1<<chunkShift-1)]
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

// mostChunks limits the packets in flight if several parts share chunks: to 67 million.
const mostChunks = 1 << 16

// chain is a list of free packets: the first and the last one, each plus one.
type chain struct{ first, last uint32 }

// share makes s the slab of one of several parts. Chunk i belongs to part i modulo parts.
func (s *slab) share(chunks [][]parcel, id, parts int) {
	*s = slab{chunks: chunks, own: uint32(id), id: uint32(id), parts: uint32(parts), others: [2][]chain{make([]chain, parts), make([]chain, parts)}}
}

// grow makes a chunk.
func (s *slab) grow() {
	number := s.own
	if s.parts == 0 {
		s.chunks = append(s.chunks, nil)
		if s.telemetry != nil {
			s.telemetry = append(s.telemetry, nil)
		}
	}
	s.own += max(s.parts, 1)
	first := number << chunkShift
	chunk := make([]parcel, 1<<chunkShift)
	for i := range chunk {
		chunk[i].next = first + uint32(i) + 2
	}
	chunk[len(chunk)-1].next = 0
	s.chunks[number] = chunk
	if s.telemetry != nil {
		s.telemetry[number] = make([]ccalgo.Telemetry, 1<<chunkShift)
	}
	s.unused = first + 1
}

func (s *slab) free(ref uint32) {
	p := s.at(ref)
	if p.rest != 0 {
		s.freeRest(p)
	}
	s.used--
	if s.parts > 0 {
		if owner := ref >> chunkShift % s.parts; owner != s.id {
			s.others[s.window][owner].add(p, ref)
			return
		}
	}
	p.next, s.unused = s.unused, ref+1
}

// add puts p at the beginning of c.
func (c *chain) add(p *parcel, ref uint32) {
	if p.next = c.first; c.first == 0 {
		c.last = ref + 1
	}
	c.first = ref + 1
}

// reclaim takes back the packets that another part freed in the previous window.
func (s *slab) reclaim(from *slab) {
	if c := &from.others[s.window^1][s.id]; c.first != 0 {
		s.at(c.last-1).next, s.unused = s.unused, c.first
		*c = chain{}
	}
}
