package rocev2

import "roced.io/roced/plugin/mono"

// AH is an address handle: the way to a destination of UD sends (IBTA vol.1 11.2.2).
type AH struct {
	Ctx any // the owner's

	nic  *NIC // nil when destroyed
	id   uint32
	pd   *PD
	av   AddressVector
	path path
}

// AHInfo describes an address handle.
type AHInfo struct {
	Handle, PD uint32
	AV         AddressVector
	Ctx        any
}

// Handle returns the number by which send work requests name the address handle.
// It is never zero.
func (a *AH) Handle() uint32 { return a.id }

// AV returns the address vector.
func (a *AH) AV() AddressVector { return a.av }

// CreateAH makes an address handle and starts to resolve the address.
func (n *NIC) CreateAH(now mono.Time, pd *PD, av AddressVector, ctx any) (*AH, error) {
	const verb = "create_ah"
	if !n.ownsPD(pd) {
		return nil, fail(verb, "pd", ErrInvalid)
	}
	p, err := n.pathOf(now, av)
	if err != nil {
		return nil, failPath(verb, err)
	}
	a := &AH{Ctx: ctx, nic: n, pd: pd, av: av, path: p}
	var ok bool
	if a.id, ok = n.obj.ahs.add(a); !ok {
		n.releasePath(&a.path)
		return nil, fail(verb, "AHs", ErrLimit)
	}
	pd.users++
	return a, nil
}

// pathOf is newPath for datagrams, which may go to a group.
func (n *NIC) pathOf(now mono.Time, av AddressVector) (path, error) {
	if av.DGID.multicast() {
		return n.groupPath(av)
	}
	return n.newPath(now, av)
}

// DestroyAH ends an address handle. Sends that name it afterwards are lost.
func (n *NIC) DestroyAH(a *AH) error {
	if a == nil || a.nic != n {
		return fail("destroy_ah", "ah", ErrInvalid)
	}
	n.releasePath(&a.path)
	n.obj.ahs.remove(a.id)
	a.pd.users--
	a.nic = nil
	return nil
}

// lookupAH returns the path of an address handle of q's protection domain, nil if
// there is none of this number (IBTA vol.1 10.2.3).
func (n *NIC) lookupAH(q *QueuePair, ah uint32) *path {
	a := n.obj.ahs.get(ah)
	if a == nil || a.pd != q.pd {
		return nil
	}
	return &a.path
}

// AHs describes all address handles.
func (n *NIC) AHs() []AHInfo {
	out := make([]AHInfo, 0, n.obj.ahs.live)
	for a := range n.obj.ahs.all {
		out = append(out, AHInfo{Handle: a.id, PD: a.pd.id, AV: a.av, Ctx: a.Ctx})
	}
	return out
}
