package rocev2

import (
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2/object"
	"roced.io/roced/rocev2/stack"
)

// AH is an address handle: the route of UD sends (IBTA vol.1 11.2.2).
type AH struct {
	Ctx any // for the owner

	nic  *NIC // nil when destroyed
	id   uint32
	pd   *PD
	av   AddressVector
	path stack.Path
}

// AHInfo describes an address handle.
type AHInfo struct {
	Handle, PD uint32
	AV         AddressVector
	Ctx        any
}

// Handle returns the number of the address handle in send work requests. It is never zero.
func (a *AH) Handle() uint32 { return a.id }

// AV returns the address vector.
func (a *AH) AV() AddressVector { return a.av }

// CreateAH creates an address handle and starts its address resolution.
func (n *NIC) CreateAH(now mono.Time, pd *PD, av AddressVector, ctx any) (*AH, error) {
	const verb = "create_ah"
	if !n.mem.OwnsPD(pd) {
		return nil, fail(verb, "pd", ErrInvalid)
	}
	p, err := n.datagramPath(now, av, holderOf(ctx))
	if err != nil {
		return nil, failPath(verb, err)
	}
	a := &AH{Ctx: ctx, nic: n, pd: pd, av: av, path: p}
	var ok bool
	if a.id, ok = n.obj.ahs.Add(a); !ok {
		n.releasePath(&a.path)
		return nil, fail(verb, "AHs", ErrLimit)
	}
	pd.Use(1)
	return a, nil
}

// datagramPath returns a path for datagrams, which may go to a group.
func (n *NIC) datagramPath(now mono.Time, av AddressVector, h Holder) (stack.Path, error) {
	if av.DGID.Multicast() {
		return n.net.NewGroupPath(av)
	}
	return n.net.NewPathOf(now, av, h)
}

// Held is implemented by the Ctx of a queue pair or an address handle that belongs to a Holder.
type Held interface{ Holder() Holder }

func holderOf(ctx any) Holder {
	if h, ok := ctx.(Held); ok {
		return h.Holder()
	}
	return stack.Unlimited
}

// DestroyAH destroys an address handle. Later sends that name it are lost.
func (n *NIC) DestroyAH(a *AH) error {
	if a == nil || a.nic != n {
		return fail("destroy_ah", "ah", ErrInvalid)
	}
	n.releasePath(&a.path)
	n.obj.ahs.Remove(a.id)
	a.pd.Use(-1)
	a.nic = nil
	return nil
}

// lookupAH returns the path of an address handle of q's protection domain, nil if there is none of this number (IBTA
// vol.1 10.2.3).
func (n *NIC) lookupAH(q *QueuePair, ah uint32) *stack.Path {
	a := n.obj.ahs.Get(ah)
	if a == nil || a.pd != q.pd {
		return nil
	}
	return &a.path
}

// AHs describes all address handles.
func (n *NIC) AHs() []AHInfo {
	return object.Describe(&n.obj.ahs, func(a *AH) AHInfo { return AHInfo{a.id, a.pd.ID(), a.av, a.Ctx} })
}
