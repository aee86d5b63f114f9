package rocev2

// PD is a protection domain: what belongs to different ones cannot be used
// together (IBTA vol.1 10.2.3).
type PD struct {
	Ctx any // the owner's

	nic   *NIC // nil when deallocated
	id    uint32
	users int
}

// PDInfo describes a protection domain.
type PDInfo struct {
	ID    uint32
	Users int // objects in it
	Ctx   any
}

// ID returns the domain's number in this NIC.
func (p *PD) ID() uint32 { return p.id }

// AllocPD makes a protection domain.
func (n *NIC) AllocPD(ctx any) (*PD, error) {
	p := &PD{Ctx: ctx, nic: n}
	var ok bool
	if p.id, ok = n.obj.pds.add(p); !ok {
		return nil, fail("alloc_pd", "PDs", ErrLimit)
	}
	return p, nil
}

// DeallocPD ends a protection domain that nothing belongs to.
func (n *NIC) DeallocPD(p *PD) error {
	if !n.ownsPD(p) {
		return fail("dealloc_pd", "pd", ErrInvalid)
	}
	if p.users > 0 {
		return fail("dealloc_pd", "pd", ErrBusy)
	}
	n.obj.pds.remove(p.id)
	p.nic = nil
	return nil
}

func (n *NIC) ownsPD(p *PD) bool { return p != nil && p.nic == n }

// PDs describes all protection domains.
func (n *NIC) PDs() []PDInfo {
	out := make([]PDInfo, 0, n.obj.pds.live)
	for p := range n.obj.pds.all {
		out = append(out, PDInfo{ID: p.id, Users: p.users, Ctx: p.Ctx})
	}
	return out
}
