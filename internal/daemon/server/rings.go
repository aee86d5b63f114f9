package server

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/rxering"
)

// ring is a ring under construction. The zero value is a ring of size zero.
type ring struct {
	m       *mapping
	info    uverbs.MMInfo // location for the client
	entries uint32        // capacity: at least the requested number
}

// context returns the client's space. The first call creates it.
func (c *client) context() (*space, error) {
	if c.space != nil {
		return c.space, nil
	}
	if !c.account.Take(quota.Descriptors, 1) {
		return nil, unix.EMFILE
	}
	s, err := newSpace(min(c.limits.Memory, maxSpace) &^ int64(page-1))
	c.space = s
	return s, err
}

// newShared allocates memory that the daemon and the client share, and returns its offset in the client's space.
func (c *client) newShared(size int) (m *mapping, offset uint64, err error) {
	s, err := c.context()
	if err != nil {
		return nil, 0, err
	}
	n := int64(whole(uint64(size)))
	if !c.charge(n) {
		return nil, 0, unix.ENOMEM
	}
	e, ok := s.take(size)
	if !ok {
		c.discharge(n)
		return nil, 0, unix.ENOMEM
	}
	data := s.data[e.offset:][:size:size]
	return c.newMapping(0, data, n, func() { s.give(e) }), e.offset, nil
}

func (c *client) newRing(s rxe.Shape, err error) (ring, error) {
	if err != nil {
		return ring{}, unix.EINVAL
	}
	m, offset, err := c.newShared(s.Size())
	if err != nil {
		return ring{}, err
	}
	return ring{m: m, info: uverbs.MMInfo{Offset: offset, Size: uint32(s.Size())}, entries: s.Entries()}, nil
}

// newSendRing makes a send ring for wr work requests. The shape determines the capacity of its elements.
func (c *client) newSendRing(wr, sge, inline uint32) (ring, *rxering.SendRing, error) {
	s, err := rxe.SendShape(wr, sge, inline)
	r, err := c.newRing(s, err)
	if err != nil {
		return r, nil, err
	}
	q, err := rxering.NewSendRing(r.m.data, s)
	return r, q, r.check(err)
}

// newRecvRing makes a receive ring for wr work requests.
func (c *client) newRecvRing(wr, sge uint32) (ring, *rxering.RecvRing, error) {
	s, err := rxe.RecvShape(wr, sge)
	r, err := c.newRing(s, err)
	if err != nil {
		return r, nil, err
	}
	q, err := rxering.NewRecvRing(r.m.data, s)
	return r, q, r.check(err)
}

// newCQRing makes a ring for cqe completions.
func (c *client) newCQRing(cqe uint32) (ring, *rxering.CQRing, error) {
	s, err := rxe.CQShape(cqe)
	r, err := c.newRing(s, err)
	if err != nil {
		return r, nil, err
	}
	q, err := rxering.NewCQRing(r.m.data, s)
	return r, q, r.check(err)
}

// check frees the memory after an error.
func (r ring) check(err error) error {
	if err != nil {
		r.discard()
	}
	return err
}

// discard frees a ring that is not in use yet.
func (r ring) discard() {
	if r.m != nil {
		r.m.release()
	}
}
