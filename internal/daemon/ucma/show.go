package ucma

import (
	"cmp"
	"net/netip"
	"slices"
)

// Info describes an identifier.
type Info struct {
	NIC      string
	ID       uint32
	State    string // name in iproute2's rdma
	PS       string
	Src, Dst netip.AddrPort
	QPN      uint32
	PID      int32
	UID      uint32
}

// IDs describes the identifiers that use a NIC. A listener that is not bound to a NIC appears once for each NIC on
// which it listens.
func (s *Server) IDs() []Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Info
	for _, i := range s.ids {
		for _, name := range i.on() {
			out = append(out, Info{NIC: name, ID: i.num, State: i.state.String(), PS: i.ps.String(), Src: i.src.AddrPort,
				Dst: i.dst.AddrPort, QPN: i.qpn, PID: i.ctx.cred.Pid, UID: i.ctx.cred.Uid})
		}
	}
	slices.SortFunc(out, func(a, b Info) int { return cmp.Or(cmp.Compare(a.NIC, b.NIC), cmp.Compare(a.ID, b.ID)) })
	return out
}

// on returns the names of the NICs that i uses.
func (i *id) on() (names []string) {
	if i.nic != nil {
		return []string{i.nic.Name}
	}
	for _, l := range i.listeners {
		if !slices.Contains(names, l.nic.Name) {
			names = append(names, l.nic.Name)
		}
	}
	return names
}
