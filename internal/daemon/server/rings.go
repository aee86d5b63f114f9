package server

import (
	"golang.org/x/sys/unix"

	"roced/internal/abi/rxe"
	"roced/internal/abi/shm"
	"roced/internal/abi/uverbs"
)

// ring is the memory of a ring that is being made: mapped here, and as a
// descriptor for the client. The zero ring is of size zero.
type ring struct {
	c       *client
	m       *mapping
	fd      int
	entries uint32 // what it holds: as much as asked for, or more
}

// newShared makes memory that the daemon and a client share, whose size nobody
// can change, and the client's descriptor of it.
func (c *client) newShared(name string, size int) (m *mapping, fd int, err error) {
	if !c.charge(int64(size)) {
		return nil, -1, unix.ENOMEM
	}
	fd, data, err := shm.New("roced-"+name, int64(size), shm.SealSize)
	if err != nil {
		c.used.Add(-int64(size))
		return nil, -1, err
	}
	m = &mapping{data: data, used: &c.used}
	m.refs.Store(1)
	return m, fd, nil
}

func (c *client) newRing(name string, s rxe.Shape, err error) (ring, error) {
	if err != nil {
		return ring{}, unix.EINVAL
	}
	m, fd, err := c.newShared(name, s.Size())
	if err != nil {
		return ring{}, err
	}
	return ring{c: c, m: m, fd: fd, entries: s.Entries()}, nil
}

// newSendRing makes a send ring for wr work requests. The shape says what its
// elements have room for.
func (c *client) newSendRing(wr, sge, inline uint32) (ring, *rxe.SendRing, error) {
	s, err := rxe.SendShape(wr, sge, inline)
	r, err := c.newRing("sq", s, err)
	if err != nil {
		return r, nil, err
	}
	q, err := rxe.NewSendRing(r.m.data, s)
	return r, q, r.check(err)
}

// newRecvRing makes a receive ring for wr work requests.
func (c *client) newRecvRing(wr, sge uint32) (ring, *rxe.RecvRing, error) {
	s, err := rxe.RecvShape(wr, sge)
	r, err := c.newRing("rq", s, err)
	if err != nil {
		return r, nil, err
	}
	q, err := rxe.NewRecvRing(r.m.data, s)
	return r, q, r.check(err)
}

// newCQRing makes a ring for cqe completions.
func (c *client) newCQRing(cqe uint32) (ring, *rxe.CQRing, error) {
	s, err := rxe.CQShape(cqe)
	r, err := c.newRing("cq", s, err)
	if err != nil {
		return r, nil, err
	}
	q, err := rxe.NewCQRing(r.m.data, s)
	return r, q, r.check(err)
}

// check gives the memory back after an error.
func (r ring) check(err error) error {
	if err != nil {
		r.discard()
	}
	return err
}

// discard gives up a ring that nobody has heard of.
func (r ring) discard() {
	if r.m != nil {
		unix.Close(r.fd)
		r.m.release()
	}
}

// publish hands the ring to the client with the answer to q.
func (r ring) publish(q *request) uverbs.MMInfo {
	if r.m == nil {
		return uverbs.MMInfo{}
	}
	size := uint32(len(r.m.data))
	info := uverbs.MMInfo{Offset: r.c.offset, Size: size}
	r.c.offset += (uint64(size) + shm.PageSize - 1) &^ (shm.PageSize - 1)
	q.attach(uverbs.FD{FD: r.fd, Kind: uverbs.FDMmap, Arg: info.Offset, Size: size})
	return info
}
