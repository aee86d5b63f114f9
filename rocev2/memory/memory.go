// Package memory decides which memory an access of a queue pair may reach: protection domains, memory regions, memory
// windows and their keys. It also defines how a NIC reads and writes that memory.
//
// Keys, addresses and lengths come from clients and peers. Local and Remote check them for every packet.
//
// No promise: this package may change between releases.
package memory

import (
	"math/rand/v2"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/object"
)

// Memory is the memory behind a region. Offsets count from the region's first byte; the caller has checked them
// against its length.
type Memory interface {
	// View returns n bytes at off, to be read before the next frame is polled.
	View(off uint64, n int) ([]byte, bool)
	// Write places p at off.
	Write(off uint64, p []byte) bool
	// CompareSwap and FetchAdd act on 8 aligned bytes in host byte order.
	CompareSwap(off uint64, compare, swap uint64) (orig uint64, ok bool)
	FetchAdd(off uint64, add uint64) (orig uint64, ok bool)
}

// Distant is Memory that this process can only copy, at a cost for each access: the memory of another process, for
// instance. The NIC reads it in large pieces and gathers writes. It does not call View.
type Distant interface {
	Memory
	// Read fills p with the data at off.
	Read(off uint64, p []byte) bool
}

// Deferred is Memory whose accesses take time: another thread carries them out while the NIC continues. Examples are
// the memory of a process that may be stopped, and pages that must be fetched. Only the queue pair that needs an
// access waits for it (qp.Host.Later). The NIC calls no method of Memory.
//
// The accesses of a queue pair to one memory must take effect in the order of Start. At most one of them is a read,
// and at most one an atomic operation. While too many writes are in progress, the queue pair gets no packets.
//
// A region or queue pair may be destroyed meanwhile. The NIC does not wait for its accesses then, and ignores their
// results. The caller that returns memory to a client must first wait until all started accesses have ended.
type Deferred interface {
	Memory
	// Start begins a. When it has ended, with a.OK set, the goroutine of the NIC calls NIC.Accessed, not from
	// within Start. Until then a belongs to the Deferred.
	Start(a *Access)
}

// AccessKind is the operation of an Access.
type AccessKind uint8

// Kinds of accesses.
const (
	AccessRead        AccessKind = iota // fill Buf with the data at Off
	AccessWrite                         // place Buf at Off
	AccessCompareSwap                   // as in Memory, with Operands
	AccessFetchAdd
)

// Access is an access to Deferred memory.
type Access struct {
	Kind     AccessKind
	Mem      Deferred
	Off      uint64
	Buf      []byte
	Operands [2]uint64 // compare and swap, or the number to add
	Orig     uint64    // atomic operations: the value found
	OK       bool      // success
	Owner    any       // belongs to the NIC
}

// Run carries out a on m and blocks until it has ended. Any goroutine may call it.
func (a *Access) Run(m Distant) {
	switch a.Kind {
	case AccessRead:
		a.OK = m.Read(a.Off, a.Buf)
	case AccessWrite:
		a.OK = m.Write(a.Off, a.Buf)
	case AccessCompareSwap:
		a.Orig, a.OK = m.CompareSwap(a.Off, a.Operands[0], a.Operands[1])
	case AccessFetchAdd:
		a.Orig, a.OK = m.FetchAdd(a.Off, a.Operands[0])
	}
}

// Limits bound the objects of a Space.
type Limits struct{ PDs, MRs, MWs int }

// Space holds the protection domains, regions and windows of a NIC.
type Space struct {
	keys   keyTable
	pds    object.Table[PD]
	mrs    object.Table[MR]
	mws    object.Table[MW]
	detach func()
}

// NewSpace returns an empty Space. It draws keys from rng. It calls detach before memory goes away that views of the
// NIC may refer to.
func NewSpace(rng *rand.ChaCha8, l Limits, detach func()) *Space {
	s := &Space{detach: detach}
	s.keys.Init(rng)
	s.pds.Limit, s.mrs.Limit, s.mws.Limit = l.PDs, l.MRs, l.MWs
	return s
}

// NumPDs returns the number of protection domains.
func (s *Space) NumPDs() int { return s.pds.Live }

// NumMRs returns the number of memory regions.
func (s *Space) NumMRs() int { return s.mrs.Live }

// Keys returns the number of keys in use.
func (s *Space) Keys() int { return s.keys.Used }

// Local returns the memory region of lkey and the offset of n bytes at va in it, nil unless a queue pair or an SRQ of pd
// may access them.
func (s *Space) Local(pd *PD, lkey uint32, va, n uint64, need qp.Access) (r *Region, off uint64) {
	r = s.keys.lookup(lkey)
	if r == nil || r.kind != kindMR || r.pd != pd || r.access&need != need {
		return nil, 0 // IBTA vol.1 10.6.3; a window has no L_Key
	}
	return r.locate(va, n)
}

// Remote returns the region or bound window of rkey and the offset of n bytes at va in it, nil unless a peer of the
// queue pair that b belongs to may access them (IBTA vol.1 9.7.4.1, 10.6.3; for windows 10.6.7).
func (s *Space) Remote(pd *PD, b *Bindings, rkey uint32, va, n uint64, need qp.Access) (r *Region, off uint64) {
	r = s.keys.lookup(rkey)
	if len(pd.named) > 0 {
		r = pd.namedRegion(rkey, r)
	}
	if r == nil || r.pd != pd || r.access&need != need || r.kind == kindMW2 && r.owner != b {
		return nil, 0
	}
	return r.locate(va, n)
}

// Permits reports whether rkey gives peers of queue pairs of pd the access need to all of its memory.
func (s *Space) Permits(pd *PD, rkey uint32, need qp.Access) bool {
	r := s.keys.lookup(rkey)
	return r != nil && r.pd == pd && r.access&need == need
}
