package rocev2

import "roced.io/roced/qp"

// region is memory that a key gives access to: a memory region, or the part of
// one that a window opens. One that is not bound has a key, but no length and no
// rights.
type region struct {
	key    uint32
	kind   regionKind
	access qp.Access
	pd     *PD
	owner  *QueuePair // type 2 window: the queue pair it is bound through
	base   uint64     // address of the first byte
	length uint64
	off    uint64 // of the first byte in mem
	backing
	mr *MR // the region itself, or what the window is bound to; nil for one that is not bound
	mw *MW // nil for a memory region
}

// backing is the memory behind a region, nil if there is none.
type backing struct {
	mem      Memory
	distant  Distant  // mem, if it is that
	deferred Deferred // likewise
}

type regionKind uint8

const (
	kindMR regionKind = iota
	kindMW1
	kindMW2
)

// locate turns n bytes at va into an offset in the region's memory. Neither sum
// is computed that could wrap: registration has ensured that base+length does not
// pass 2^64, so an address below base becomes an offset beyond length.
func (r *region) locate(va, n uint64) (off uint64, ok bool) {
	off = va - r.base
	return r.off + off, off <= r.length && n <= r.length-off
}

// MR is a memory region (IBTA vol.1 10.6.2).
type MR struct {
	LKey, RKey uint32 // the same number
	Ctx        any    // the owner's

	region
	nic     *NIC // nil when deregistered
	id      uint32
	windows int // bound to it
}

// MRAttr describes a memory region.
type MRAttr struct {
	VA     uint64
	Length uint64
	Access qp.Access
	// Mem may have a method Len() uint64, against which Length is checked. It
	// may be nil when Length is zero. It may be Distant or Deferred.
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

// ReregFlags say what ReregMR changes, as ibv_rereg_mr_flags.
type ReregFlags uint32

// Flags of ReregMR.
const (
	ReregTranslation ReregFlags = 1 << 0 // VA, Length and Mem
	ReregPD          ReregFlags = 1 << 1
	ReregAccess      ReregFlags = 1 << 2
)

const (
	accessLocalOnly = qp.AccessLocalWrite | qp.AccessMWBind | qp.AccessZeroBased
	accessRemote    = qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic
	accessKnown     = accessLocalOnly | accessRemote | qp.AccessFlushGlobal
	// accessFlush permit FLUSH (IBTA vol.1 annex A19). librdmacm sets them for every queue
	// pair; of regions only the global one is allowed, since no memory here is persistent.
	accessFlush = qp.AccessFlushGlobal | qp.AccessFlushPersistent
	// accessOptional are flags that a device may ignore (IB_ACCESS_OPTIONAL).
	accessOptional qp.Access = 0x3ff00000
)

// checkAccess returns the access flags without the optional ones. Rights that
// modify memory from remote need the local right (IBTA vol.1 10.6.3, register memory region).
func checkAccess(verb string, a qp.Access) (qp.Access, error) {
	a &^= accessOptional
	if a&^accessKnown != 0 {
		return 0, fail(verb, "access", ErrInvalid)
	}
	if a&(qp.AccessRemoteWrite|qp.AccessRemoteAtomic) != 0 && a&qp.AccessLocalWrite == 0 {
		return 0, fail(verb, "access: remote write without local write", ErrInvalid)
	}
	return a, nil
}

// checkTranslation checks the range of a.
func checkTranslation(verb string, a *MRAttr) error {
	if a.Length == 0 {
		return nil
	}
	if a.VA+(a.Length-1) < a.VA {
		return fail(verb, "length: beyond the end of the address space", ErrInvalid)
	}
	if a.Mem == nil {
		return fail(verb, "memory", ErrInvalid)
	}
	if m, ok := a.Mem.(interface{ Len() uint64 }); ok && a.Length > m.Len() {
		return fail(verb, "length: beyond the end of the memory", ErrInvalid)
	}
	return nil
}

// RegMR registers memory (IBTA vol.1 10.6.2).
func (n *NIC) RegMR(pd *PD, a MRAttr) (*MR, error) {
	const verb = "reg_mr"
	if !n.ownsPD(pd) {
		return nil, fail(verb, "pd", ErrInvalid)
	}
	access, err := checkAccess(verb, a.Access)
	if err != nil {
		return nil, err
	}
	if err := checkTranslation(verb, &a); err != nil {
		return nil, err
	}
	mr := &MR{Ctx: a.Ctx, nic: n, region: region{kind: kindMR, pd: pd}}
	mr.mr = mr
	mr.set(a.VA, a.Length, access, a.Mem)
	var ok bool
	if mr.id, ok = n.obj.mrs.add(mr); !ok {
		return nil, fail(verb, "MRs", ErrLimit)
	}
	if err := n.obj.keys.add(&mr.region); err != nil {
		n.obj.mrs.remove(mr.id)
		return nil, fail(verb, "key", err)
	}
	mr.LKey, mr.RKey = mr.key, mr.key
	pd.users++
	return mr, nil
}

// set stores what has been checked. Addresses in a zero-based region count from
// its first byte.
func (mr *MR) set(va, length uint64, access qp.Access, mem Memory) {
	mr.base, mr.length, mr.access, mr.mem = va, length, access, mem
	mr.distant, _ = mem.(Distant)
	mr.deferred, _ = mem.(Deferred)
	if access&qp.AccessZeroBased != 0 {
		mr.base = 0
	}
}

func (n *NIC) ownsMR(mr *MR) bool { return mr != nil && mr.nic == n }

// DeregMR ends a memory region that no window is bound to (IBTA vol.1 10.6.7).
func (n *NIC) DeregMR(mr *MR) error {
	if !n.ownsMR(mr) {
		return fail("dereg_mr", "mr", ErrInvalid)
	}
	if mr.windows > 0 {
		return fail("dereg_mr", "memory windows", ErrBusy)
	}
	n.flushRun()
	n.detachViews()
	n.obj.keys.remove(&mr.region)
	n.obj.mrs.remove(mr.id)
	mr.pd.users--
	mr.nic, mr.backing = nil, backing{}
	return nil
}

// ReregMR changes translation, protection domain or access rights of a memory
// region. Its key stays the same, as with rxe, so peers that
// know it need not be told. On error nothing has changed.
func (n *NIC) ReregMR(mr *MR, flags ReregFlags, pd *PD, a MRAttr) error {
	const verb = "rereg_mr"
	if !n.ownsMR(mr) {
		return fail(verb, "mr", ErrInvalid)
	}
	if flags == 0 || flags&^(ReregTranslation|ReregPD|ReregAccess) != 0 {
		return fail(verb, "flags", ErrInvalid)
	}
	if flags&ReregPD == 0 {
		pd = mr.pd
	} else if !n.ownsPD(pd) {
		return fail(verb, "pd", ErrInvalid)
	}
	if flags&ReregAccess == 0 {
		a.Access = mr.access
	}
	access, err := checkAccess(verb, a.Access)
	if err != nil {
		return err
	}
	if flags&ReregTranslation == 0 {
		a.VA, a.Length, a.Mem = mr.base, mr.length, mr.mem
		if (access^mr.access)&qp.AccessZeroBased != 0 {
			return fail(verb, "access: zero based without translation", ErrInvalid)
		}
	}
	if err := checkTranslation(verb, &a); err != nil {
		return err
	}
	if mr.windows > 0 {
		return fail(verb, "memory windows", ErrBusy)
	}
	n.flushRun()
	n.detachViews()
	mr.pd.users--
	mr.pd = pd
	pd.users++
	mr.set(a.VA, a.Length, access, a.Mem)
	return nil
}

// MRs describes all memory regions.
func (n *NIC) MRs() []MRInfo {
	out := make([]MRInfo, 0, n.obj.mrs.live)
	for mr := range n.obj.mrs.all {
		out = append(out, MRInfo{ID: mr.id, PD: mr.pd.id, LKey: mr.LKey, RKey: mr.RKey, VA: mr.base,
			Length: mr.length, Access: mr.access, Windows: mr.windows, Ctx: mr.Ctx})
	}
	return out
}
