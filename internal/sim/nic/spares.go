package nic

// Spares has closed queue pairs of one kind: making a queue pair costs as much as sending hundreds of packets.
// Users must not use a queue pair after closing it. The zero value is empty.
type Spares struct{ hosts map[*NIC][]*QP }

// give adds q, which is in RESET. It keeps its allocated memory.
func (s *Spares) give(q *QP) {
	if s == nil {
		return
	}
	if s.hosts == nil {
		s.hosts = map[*NIC][]*QP{}
	}
	s.hosts[q.nic] = append(s.hosts[q.nic], q)
}

// take returns a queue pair of n, nil if there is none.
func (s *Spares) take(n *NIC) *QP {
	if s == nil {
		return nil
	}
	all := s.hosts[n]
	last := len(all) - 1
	if last < 0 {
		return nil
	}
	s.hosts[n] = all[:last]
	return all[last]
}

// reopen reinitializes q, which was made for a similar configuration, as newQP would.
func (n *NIC) reopen(q *QP, c *QPConfig) error {
	q.sends.clear()
	if !q.shared {
		q.recvs = nil
	}
	q.Ctx, q.user, q.closed = c.Ctx, c.User, 0
	if err := n.number(q); err != nil {
		return err
	}
	q.core.Renumber(q.num, q.pathSeed(c))
	q.traffic = q.trafficClass(c)
	return nil
}
