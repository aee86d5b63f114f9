package memory

import "roced.io/roced/rocev2/object"

// PD is a protection domain: objects of different domains cannot be used together (IBTA vol.1 10.2.3).
type PD struct {
	Ctx any // for the owner

	space *Space // nil when deallocated
	id    uint32
	users int
	named []named
}

// named is a region with a key of its owner's choice.
type named struct {
	key uint32
	mr  *MR
}

// Name gives peers of queue pairs of the domain access to mr, which is in the domain, by a key of the caller's choice too.
// Other domains may use the same key. Such a key protects nothing: anybody can know it.
func (p *PD) Name(key uint32, mr *MR) { p.named = append(p.named, named{key, mr}) }

// namedRegion returns the region that the owner named, else r.
func (p *PD) namedRegion(key uint32, r *Region) *Region {
	for _, n := range p.named {
		if n.key == key && n.mr.space != nil {
			return &n.mr.Region
		}
	}
	return r
}

// PDInfo describes a protection domain.
type PDInfo struct {
	ID    uint32
	Users int // objects in it
	Ctx   any
}

// ID returns the domain's number in this NIC.
func (p *PD) ID() uint32 { return p.id }

// Use counts n more objects in the domain, fewer if n is negative.
func (p *PD) Use(n int) { p.users += n }

// AllocPD creates a protection domain.
func (s *Space) AllocPD(ctx any) (*PD, error) {
	p := &PD{Ctx: ctx, space: s}
	var ok bool
	if p.id, ok = s.pds.Add(p); !ok {
		return nil, object.Fail("alloc_pd", "PDs", object.ErrLimit)
	}
	return p, nil
}

// DeallocPD destroys an empty protection domain.
func (s *Space) DeallocPD(p *PD) error {
	if !s.OwnsPD(p) {
		return object.Fail("dealloc_pd", "pd", object.ErrInvalid)
	}
	if p.users > 0 {
		return object.Fail("dealloc_pd", "pd", object.ErrBusy)
	}
	s.pds.Remove(p.id)
	p.space = nil
	return nil
}

// OwnsPD reports whether p is a domain of this NIC.
func (s *Space) OwnsPD(p *PD) bool { return p != nil && p.space == s }

// PDs describes all protection domains.
func (s *Space) PDs() []PDInfo {
	return object.Describe(&s.pds, func(p *PD) PDInfo { return PDInfo{p.id, p.users, p.Ctx} })
}
