package memory

import (
	"roced.io/roced/internal/base/list"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/object"
)

// MWType is the type of a memory window, numbered as ibv_mw_type.
type MWType uint8

// Types of memory windows (IBTA vol.1 10.6.7). Those of type 2 are of kind 2B: bound to a queue pair and a protection
// domain.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// MW is a memory window: a part of a memory region with its own key, opened and closed by work requests.
type MW struct {
	RKey uint32 // its tag changes with every bind
	Ctx  any    // for the owner

	Region
	space *Space // nil when deallocated
	id    uint32
	node  list.Node[*MW] // in the bindings of owner
}

// MWInfo describes a memory window.
type MWInfo struct {
	ID, PD, RKey uint32
	Type         MWType
	Bound        bool
	MR           uint32 // when bound
	QPN          uint32 // type 2, when bound
	VA, Length   uint64
	Access       qp.Access
	Ctx          any
}

// Bindings lists the type 2 windows that are bound through one queue pair.
type Bindings struct {
	QPN  uint32
	list list.List[*MW]
}

// Empty reports whether no window is bound.
func (l *Bindings) Empty() bool { return l.list.First() == nil }

// Unbind closes all windows.
func (l *Bindings) Unbind() {
	for n := l.list.First(); n != nil; n = l.list.First() {
		n.Item.unbind()
	}
}

// AllocMW creates an unbound memory window.
func (s *Space) AllocMW(pd *PD, typ MWType, ctx any) (*MW, error) {
	const verb = "alloc_mw"
	if !s.OwnsPD(pd) {
		return nil, object.Fail(verb, "pd", object.ErrInvalid)
	}
	if typ != MWType1 && typ != MWType2 {
		return nil, object.Fail(verb, "type", object.ErrInvalid)
	}
	mw := &MW{Ctx: ctx, space: s, Region: Region{kind: regionKind(typ), pd: pd}}
	mw.mw, mw.node.Item = mw, mw
	var ok bool
	if mw.id, ok = s.mws.Add(mw); !ok {
		return nil, object.Fail(verb, "MWs", object.ErrLimit)
	}
	if err := s.keys.add(&mw.Region); err != nil {
		s.mws.Remove(mw.id)
		return nil, object.Fail(verb, "key", err)
	}
	mw.RKey = mw.key
	pd.users++
	return mw, nil
}

// DeallocMW destroys a memory window, bound or not.
func (s *Space) DeallocMW(mw *MW) error {
	if mw == nil || mw.space != s {
		return object.Fail("dealloc_mw", "mw", object.ErrInvalid)
	}
	mw.unbind()
	s.keys.remove(&mw.Region)
	s.mws.Remove(mw.id)
	mw.pd.users--
	mw.space = nil
	return nil
}

// unbind closes the window. It keeps its key, which the next bind names.
func (mw *MW) unbind() {
	if mw.mr != nil {
		mw.mr.windows--
	}
	mw.node.Remove()
	mw.owner, mw.mr, mw.backing = nil, nil, backing{}
	mw.base, mw.length, mw.off, mw.access = 0, 0, 0, 0
}

// open binds the window, which is not bound, to the range of mr at offset off.
func (mw *MW) open(owner *Bindings, mr *MR, b *qp.BindWR, off uint64) {
	mw.mr, mw.backing, mw.off, mw.length = mr, mr.backing, off, b.Length
	mw.access = windowAccess(b)
	if mw.access&qp.AccessZeroBased == 0 {
		mw.base = b.Addr
	}
	mr.windows++
	if mw.kind == kindMW2 {
		mw.owner = owner
		owner.list.PushBack(&mw.node)
	}
}

// rekey gives the window the tag of key. It ignores the index of key, as rxe does (rxe_do_bind_mw): a client chooses
// only the tag (IBTA vol.1 10.6.7), and programs pass any number.
func (mw *MW) rekey(key uint32) {
	mw.key = mw.key&^tagMask | key&tagMask
	mw.RKey = mw.key
}

// Bind carries out the work request b of the queue pair that owner belongs to (IBTA vol.1 10.6.7; the comments have the
// rule numbers of rxe_check_bind_mw). It reports success; on failure nothing has changed.
func (s *Space) Bind(pd *PD, owner *Bindings, b *qp.BindWR) bool {
	r := s.keys.lookup(b.MWRKey)
	if r == nil || r.mw == nil || r.pd != pd { // C10-72
		return false
	}
	mw := r.mw
	if mw.kind == kindMW1 && b.Length == 0 { // unbinds
		mw.unbind()
		mw.rekey(b.RKey)
		return true
	}
	if b.Length == 0 || mw.kind == kindMW2 && mw.mr != nil { // o10-37.2.30, o10-37.2.40
		return false
	}
	r = s.keys.lookup(b.MRLKey)
	if r == nil || r.kind != kindMR || r.pd != pd || !bindable(r, mw.kind, windowAccess(b)) {
		return false
	}
	r, off := r.locate(b.Addr, b.Length)
	if r == nil { // C10-75
		return false
	}
	mw.unbind()
	mw.rekey(b.RKey)
	mw.open(owner, r.mr, b, off)
	return true
}

// windowAccess returns the rights that a bind requests. Local rights have no meaning for a window; programs pass them,
// as they do for its region.
func windowAccess(b *qp.BindWR) qp.Access {
	return b.Access &^ (AccessOptional | qp.AccessLocalWrite | qp.AccessMWBind)
}

// bindable reports whether a window with these rights may be bound to memory region r.
func bindable(r *Region, kind regionKind, access qp.Access) bool {
	switch {
	case access&^(AccessRemote|qp.AccessZeroBased) != 0:
		return false
	case access&qp.AccessZeroBased != 0 && kind == kindMW1: // o10-36.2.2
		return false
	case r.access&qp.AccessZeroBased != 0 || r.access&qp.AccessMWBind == 0: // C10-73
		return false
	}
	// C10-74
	return access&(qp.AccessRemoteWrite|qp.AccessRemoteAtomic) == 0 || r.access&qp.AccessLocalWrite != 0
}

// Invalidate closes the window of key rkey for the queue pair that owner belongs to. Its client and its peer may
// invalidate only type 2 windows that are bound through this queue pair (IBTA vol.1 10.6.7, o10-37.2.26). They cannot
// invalidate memory regions: that requires registration by work requests, which this NIC does not support.
func (s *Space) Invalidate(pd *PD, owner *Bindings, rkey uint32) bool {
	r := s.keys.lookup(rkey)
	if r == nil || r.kind != kindMW2 || r.owner != owner || r.pd != pd {
		return false
	}
	r.mw.unbind()
	return true
}

// MWs describes all memory windows.
func (s *Space) MWs() []MWInfo {
	return object.Describe(&s.mws, func(mw *MW) MWInfo {
		i := MWInfo{ID: mw.id, PD: mw.pd.id, RKey: mw.RKey, Type: MWType(mw.kind), Bound: mw.mr != nil,
			VA: mw.base, Length: mw.length, Access: mw.access, Ctx: mw.Ctx}
		if mw.mr != nil {
			i.MR = mw.mr.id
		}
		if mw.owner != nil {
			i.QPN = mw.owner.QPN
		}
		return i
	})
}
