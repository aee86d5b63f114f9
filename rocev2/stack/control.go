package stack

import (
	"roced.io/roced/bth/inet"
	"roced.io/roced/port/link"
)

// controlSlots is the number of ARP, ND, ICMP, IGMP, MLD and management frames that may wait.
const controlSlots = 64

// controlRing holds frames that belong to no queue pair. Its buffers grow to the largest frame and are reused.
type controlRing struct {
	slots [controlSlots][]byte
	head  int
	len   int
	bufs  [1][]byte
	frame link.Frame
}

// alloc appends a frame of size bytes for the caller to fill. When the ring is full it counts the frame as dropped and
// returns nil.
func (s *Stack) alloc(size int) []byte {
	r := &s.ctl
	if r.len == controlSlots {
		s.Counters.TxDroppedControl++
		return nil
	}
	b := &r.slots[(r.head+r.len)%controlSlots]
	if cap(*b) < size {
		*b = make([]byte, max(size, 128))
	}
	*b = (*b)[:size]
	r.len++
	return *b
}

// control appends a frame with size bytes behind its Ethernet header and returns those, nil when the ring is full.
func (s *Stack) control(dst *inet.MAC, t inet.Tag, typ uint16, size int) []byte {
	b := s.alloc(t.Len() + size)
	if b == nil {
		return nil
	}
	return inet.PutEthernet(b, dst, &s.cfg.MAC, t, typ)
}

// SendControl queues a copy of a complete frame. It returns false when too many frames wait.
func (s *Stack) SendControl(frame []byte) bool {
	b := s.alloc(len(frame))
	copy(b, frame)
	return b != nil
}

// NextControl returns the oldest control frame, nil if there is none. PopControl removes it.
func (s *Stack) NextControl() *link.Frame {
	if s.ctl.len == 0 {
		return nil
	}
	return s.ctl.single(s.ctl.slots[s.ctl.head])
}

// PopControl removes the oldest control frame, which has been sent.
func (s *Stack) PopControl() {
	s.ctl.head = (s.ctl.head + 1) % controlSlots
	s.ctl.len--
}

// NextHeld removes and returns the oldest frame whose neighbour has answered, nil if there is none.
func (s *Stack) NextHeld() *link.Frame {
	t := &s.neigh
	if len(t.ready) == 0 {
		return nil
	}
	b := t.ready[0]
	t.ready[0] = nil
	t.ready = t.ready[1:]
	t.held--
	return s.ctl.single(b)
}

// single returns a frame of one piece.
func (r *controlRing) single(b []byte) *link.Frame {
	_, body, _, _ := inet.UDPBody(b)
	r.bufs[0] = b
	r.frame = link.Frame{Bufs: r.bufs[:], Len: len(b), HdrLen: body}
	return &r.frame
}
