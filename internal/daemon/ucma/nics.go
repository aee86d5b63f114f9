package ucma

import (
	"io/fs"
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Add adds a NIC. Programs see it when they open rdma_cm the next time.
func (s *Server) Add(c NIC) error {
	n := &nic{NIC: c, srv: s}
	if err := n.attach(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nics = append(slices.Clip(s.nics), n)
	return nil
}

// Uses returns the number of identifiers that use a NIC.
func (s *Server) Uses(name string) (ids int) {
	for _, i := range s.IDs() {
		if i.NIC == name {
			ids++
		}
	}
	return ids
}

// Remove removes a NIC, whose shard must still run. Its identifiers get DEVICE_REMOVAL.
func (s *Server) Remove(name string) {
	s.mu.Lock()
	i := slices.IndexFunc(s.nics, func(n *nic) bool { return n.Name == name })
	if i < 0 {
		s.mu.Unlock()
		return
	}
	n := s.nics[i]
	s.nics = slices.Delete(slices.Clone(s.nics), i, i+1)
	isIt := func(o *nic) bool { return o == n }
	for c := range s.ctxs {
		c.nics = slices.DeleteFunc(slices.Clone(c.nics), isIt)
	}
	s.mu.Unlock()
	s.removeDevices(isIt)
	_ = n.do(func(_ mono.Time, core *rocev2.NIC) error { core.SetGSI(nil); return nil })
}

// Permit changes the mode of the socket.
func (s *Server) Permit(mode fs.FileMode) error { return s.listener.Permit(mode, nil, nil) }
