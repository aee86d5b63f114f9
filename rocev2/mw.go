package rocev2

import "roced.io/roced/qp"

// MWType is the type of a memory window, numbered as ibv_mw_type.
type MWType uint8

// Types of memory windows (IBTA vol.1 10.6.7). Those of type 2 are of kind 2B:
// bound to a queue pair and a protection domain.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// MW is a memory window: a part of a memory region with a key of its own, opened
// and closed by work requests.
type MW struct {
	RKey uint32 // its tag changes with every bind
	Ctx  any    // the owner's

	region
	nic *NIC // nil when deallocated
	id  uint32
	// The other windows that are bound through owner.
	next, prev *MW
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

// AllocMW makes a memory window that is not bound.
func (n *NIC) AllocMW(pd *PD, typ MWType, ctx any) (*MW, error) {
	const verb = "alloc_mw"
	if !n.ownsPD(pd) {
		return nil, fail(verb, "pd", ErrInvalid)
	}
	kind := kindMW2
	switch typ {
	case MWType1:
		kind = kindMW1
	case MWType2:
	default:
		return nil, fail(verb, "type", ErrInvalid)
	}
	mw := &MW{Ctx: ctx, nic: n, region: region{kind: kind, pd: pd}}
	mw.mw = mw
	var ok bool
	if mw.id, ok = n.obj.mws.add(mw); !ok {
		return nil, fail(verb, "MWs", ErrLimit)
	}
	if err := n.obj.keys.add(&mw.region); err != nil {
		n.obj.mws.remove(mw.id)
		return nil, fail(verb, "key", err)
	}
	mw.RKey = mw.key
	pd.users++
	return mw, nil
}

// DeallocMW ends a memory window, bound or not.
func (n *NIC) DeallocMW(mw *MW) error {
	if mw == nil || mw.nic != n {
		return fail("dealloc_mw", "mw", ErrInvalid)
	}
	mw.unbind()
	n.obj.keys.remove(&mw.region)
	n.obj.mws.remove(mw.id)
	mw.pd.users--
	mw.nic = nil
	return nil
}

// unbind closes the window; it keeps its key, with which it can be bound again.
func (mw *MW) unbind() {
	if mw.mr != nil {
		mw.mr.windows--
	}
	if mw.owner != nil {
		mw.owner.windows.remove(mw)
	}
	mw.owner, mw.mr, mw.backing = nil, nil, backing{}
	mw.base, mw.length, mw.off, mw.access = 0, 0, 0, 0
}

// open binds the window, which is not bound, to the range of mr at offset off.
func (mw *MW) open(q *QueuePair, mr *MR, b *qp.BindWR, off uint64) {
	mw.mr, mw.backing, mw.off, mw.length = mr, mr.backing, off, b.Length
	mw.access = windowAccess(b)
	if mw.access&qp.AccessZeroBased == 0 {
		mw.base = b.Addr
	}
	mr.windows++
	if mw.kind == kindMW2 {
		mw.owner = q
		q.windows.add(mw)
	}
}

// windowList are the type 2 windows that are bound through one queue pair.
type windowList struct{ first *MW }

func (l *windowList) add(mw *MW) {
	if mw.next = l.first; l.first != nil {
		l.first.prev = mw
	}
	l.first = mw
}

func (l *windowList) remove(mw *MW) {
	if mw.next != nil {
		mw.next.prev = mw.prev
	}
	if mw.prev != nil {
		mw.prev.next = mw.next
	} else {
		l.first = mw.next
	}
	mw.next, mw.prev = nil, nil
}

// rekey gives the window the tag of key.
func (mw *MW) rekey(key uint32) { mw.key, mw.RKey = key, key }

// bind carries out the work request b of q (IBTA vol.1 10.6.7; the rules are those
// which rxe_check_bind_mw names by their numbers). It reports whether it could; if
// not, nothing has changed.
func (n *NIC) bind(q *QueuePair, b *qp.BindWR) bool {
	r := n.obj.keys.lookup(b.MWRKey)
	if r == nil || r.mw == nil || r.pd != q.pd || b.RKey>>tagBits != b.MWRKey>>tagBits { // C10-72
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
	r = n.obj.keys.lookup(b.MRLKey)
	if r == nil || r.kind != kindMR || r.pd != q.pd || !bindable(r, mw.kind, windowAccess(b)) {
		return false
	}
	off, ok := r.locate(b.Addr, b.Length)
	if !ok { // C10-75
		return false
	}
	mw.unbind()
	mw.rekey(b.RKey)
	mw.open(q, r.mr, b, off)
	return true
}

// windowAccess returns the rights that a bind asks for. Local rights mean nothing for
// a window, and programs give them, as they do for its region.
func windowAccess(b *qp.BindWR) qp.Access {
	return b.Access &^ (accessOptional | qp.AccessLocalWrite | qp.AccessMWBind)
}

// bindable reports whether a window with these rights may be bound to memory
// region r.
func bindable(r *region, kind regionKind, access qp.Access) bool {
	if access&^(accessRemote|qp.AccessZeroBased) != 0 {
		return false
	}
	if access&qp.AccessZeroBased != 0 && kind == kindMW1 { // o10-36.2.2
		return false
	}
	if r.access&qp.AccessZeroBased != 0 || r.access&qp.AccessMWBind == 0 { // C10-73
		return false
	}
	// C10-74
	return access&(qp.AccessRemoteWrite|qp.AccessRemoteAtomic) == 0 || r.access&qp.AccessLocalWrite != 0
}

// invalidate closes the window of key rkey for q: only a type 2 window that is
// bound through this very queue pair can be invalidated, by its owner or by a
// peer (IBTA vol.1 10.6.7, o10-37.2.26). A memory region cannot: those that
// can are registered through work requests, which this NIC does not have.
func (n *NIC) invalidate(q *QueuePair, rkey uint32) bool {
	r := n.obj.keys.lookup(rkey)
	if r == nil || r.kind != kindMW2 || r.owner != q || r.pd != q.pd {
		return false
	}
	r.mw.unbind()
	return true
}

// MWs describes all memory windows.
func (n *NIC) MWs() []MWInfo {
	out := make([]MWInfo, 0, n.obj.mws.live)
	for mw := range n.obj.mws.all {
		i := MWInfo{ID: mw.id, PD: mw.pd.id, RKey: mw.RKey, Type: MWType(mw.kind), Bound: mw.mr != nil,
			VA: mw.base, Length: mw.length, Access: mw.access, Ctx: mw.Ctx}
		if mw.mr != nil {
			i.MR = mw.mr.id
		}
		if mw.owner != nil {
			i.QPN = uint32(mw.owner.num)
		}
		out = append(out, i)
	}
	return out
}
