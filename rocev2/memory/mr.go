package memory

import (
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/object"
)

// Region is the memory that a key gives access to: a memory region, or the part of one that a window opens. An unbound
// window has a key, but no length and no rights.
type Region struct {
	backing
	key    uint32
	kind   regionKind
	access qp.Access
	pd     *PD
	owner  *Bindings // bound type 2 window: of its queue pair
	base   uint64    // address of the first byte
	length uint64
	off    uint64 // of the first byte in Mem
	mr     *MR    // the region itself, or that of a bound window
	mw     *MW    // nil for a memory region
}

// backing is the memory behind a region, nil if there is none.
type backing struct {
	Mem      Memory
	Distant  Distant  // Mem, if it is Distant
	Deferred Deferred // likewise
}

type regionKind uint8

const (
	kindMR regionKind = iota
	kindMW1
	kindMW2
)

// locate returns r and the offset in r.Mem of n bytes at va, nil unless r contains them. Neither sum can wrap:
// registration has ensured that base+length does not exceed 2^64, so an address below base becomes an offset beyond
// length.
func (r *Region) locate(va, n uint64) (*Region, uint64) {
	off := va - r.base
	if off > r.length || n > r.length-off {
		return nil, 0
	}
	return r, r.off + off
}

// Extent returns the number of bytes of r that begin at off in r.Mem.
func (r *Region) Extent(off uint64) uint64 { return r.length - (off - r.off) }

// MR is a memory region (IBTA vol.1 10.6.2).
type MR struct {
	LKey, RKey uint32 // the same number
	Ctx        any    // for the owner

	Region
	space   *Space // nil when deregistered
	id      uint32
	windows int // bound to it
}

// MRAttr describes a memory region.
type MRAttr struct {
	VA     uint64
	Length uint64
	Access qp.Access
	// Mem may be nil when Length is zero. It may be Distant or Deferred. If it has a method Len() uint64, that bounds
	// Length.
	Mem Memory
	Ctx any
}

// MRInfo describes a memory region.
type MRInfo struct {
	ID, PD, LKey, RKey uint32
	VA, Length         uint64
	Access             qp.Access
	Windows            int
	Ctx                any
}

// ReregFlags select the changes of ReregMR, as ibv_rereg_mr_flags.
type ReregFlags uint32

// Flags of ReregMR.
const (
	ReregTranslation ReregFlags = 1 << 0 // VA, Length and Mem
	ReregPD          ReregFlags = 1 << 1
	ReregAccess      ReregFlags = 1 << 2
)

// Access rights.
const (
	AccessLocal  = qp.AccessLocalWrite | qp.AccessMWBind | qp.AccessZeroBased
	AccessRemote = qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic
	// AccessFlush permits FLUSH (IBTA vol.1 annex A19). librdmacm sets both flags for every queue pair. A region may
	// have only the global one, because no memory here is persistent.
	AccessFlush = qp.AccessFlushGlobal | qp.AccessFlushPersistent
	// AccessOptional are flags that a device may ignore (IB_ACCESS_OPTIONAL).
	AccessOptional qp.Access = 0x3ff00000
)

// checkAccess returns the access flags without the optional ones. Remote rights that modify memory need the local
// right (IBTA vol.1 10.6.3, register memory region).
func checkAccess(verb string, a qp.Access) (qp.Access, error) {
	a &^= AccessOptional
	if a&^(AccessLocal|AccessRemote|qp.AccessFlushGlobal) != 0 {
		return 0, object.Fail(verb, "access", object.ErrInvalid)
	}
	if a&(qp.AccessRemoteWrite|qp.AccessRemoteAtomic) != 0 && a&qp.AccessLocalWrite == 0 {
		return 0, object.Fail(verb, "access: remote write without local write", object.ErrInvalid)
	}
	return a, nil
}

// checkTranslation checks the range of a.
func checkTranslation(verb string, a *MRAttr) error {
	if a.Length == 0 {
		return nil
	}
	attr := ""
	if a.VA+(a.Length-1) < a.VA {
		attr = "length: beyond the end of the address space"
	} else if a.Mem == nil {
		attr = "memory"
	} else if m, ok := a.Mem.(interface{ Len() uint64 }); ok && a.Length > m.Len() {
		attr = "length: beyond the end of the memory"
	}
	if attr != "" {
		return object.Fail(verb, attr, object.ErrInvalid)
	}
	return nil
}

// RegMR registers memory (IBTA vol.1 10.6.2).
func (s *Space) RegMR(pd *PD, a MRAttr) (*MR, error) {
	const verb = "reg_mr"
	if !s.OwnsPD(pd) {
		return nil, object.Fail(verb, "pd", object.ErrInvalid)
	}
	access, err := checkAccess(verb, a.Access)
	if err != nil {
		return nil, err
	}
	if err := checkTranslation(verb, &a); err != nil {
		return nil, err
	}
	mr := &MR{Ctx: a.Ctx, space: s, Region: Region{kind: kindMR, pd: pd}}
	mr.mr = mr
	mr.set(a.VA, a.Length, access, a.Mem)
	var ok bool
	if mr.id, ok = s.mrs.Add(mr); !ok {
		return nil, object.Fail(verb, "MRs", object.ErrLimit)
	}
	if err := s.keys.add(&mr.Region); err != nil {
		s.mrs.Remove(mr.id)
		return nil, object.Fail(verb, "key", err)
	}
	mr.LKey, mr.RKey = mr.key, mr.key
	pd.users++
	return mr, nil
}

// set stores checked values. Addresses in a zero-based region count from its first byte.
func (mr *MR) set(va, length uint64, access qp.Access, mem Memory) {
	mr.base, mr.length, mr.access, mr.Mem = va, length, access, mem
	mr.Distant, _ = mem.(Distant)
	mr.Deferred, _ = mem.(Deferred)
	if access&qp.AccessZeroBased != 0 {
		mr.base = 0
	}
}

func (s *Space) ownsMR(mr *MR) bool { return mr != nil && mr.space == s }

// DeregMR ends a memory region without bound windows (IBTA vol.1 10.6.7).
func (s *Space) DeregMR(mr *MR) error {
	if !s.ownsMR(mr) {
		return object.Fail("dereg_mr", "mr", object.ErrInvalid)
	}
	if mr.windows > 0 {
		return object.Fail("dereg_mr", "memory windows", object.ErrBusy)
	}
	s.detach()
	s.keys.remove(&mr.Region)
	s.mrs.Remove(mr.id)
	mr.pd.users--
	mr.space, mr.backing = nil, backing{}
	return nil
}

// ReregMR changes translation, protection domain or access rights of a memory region. Its key stays the same, as with
// rxe, so that peers need not be informed. On error nothing has changed.
func (s *Space) ReregMR(mr *MR, flags ReregFlags, pd *PD, a MRAttr) error {
	const verb = "rereg_mr"
	if !s.ownsMR(mr) {
		return object.Fail(verb, "mr", object.ErrInvalid)
	}
	if flags == 0 || flags&^(ReregTranslation|ReregPD|ReregAccess) != 0 {
		return object.Fail(verb, "flags", object.ErrInvalid)
	}
	if flags&ReregPD == 0 {
		pd = mr.pd
	} else if !s.OwnsPD(pd) {
		return object.Fail(verb, "pd", object.ErrInvalid)
	}
	if flags&ReregAccess == 0 {
		a.Access = mr.access
	}
	access, err := checkAccess(verb, a.Access)
	if err != nil {
		return err
	}
	if flags&ReregTranslation == 0 {
		a.VA, a.Length, a.Mem = mr.base, mr.length, mr.Mem
		if (access^mr.access)&qp.AccessZeroBased != 0 {
			return object.Fail(verb, "access: zero based without translation", object.ErrInvalid)
		}
	}
	if err := checkTranslation(verb, &a); err != nil {
		return err
	}
	if mr.windows > 0 {
		return object.Fail(verb, "memory windows", object.ErrBusy)
	}
	s.detach()
	mr.pd.users--
	mr.pd = pd
	pd.users++
	mr.set(a.VA, a.Length, access, a.Mem)
	return nil
}

// MRs describes all memory regions.
func (s *Space) MRs() []MRInfo {
	return object.Describe(&s.mrs, func(mr *MR) MRInfo {
		return MRInfo{ID: mr.id, PD: mr.pd.id, LKey: mr.LKey, RKey: mr.RKey, VA: mr.base,
			Length: mr.length, Access: mr.access, Windows: mr.windows, Ctx: mr.Ctx}
	})
}
