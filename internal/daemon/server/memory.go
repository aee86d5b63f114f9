package server

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// mapping is memory of a client that the daemon has mapped.
type mapping struct {
	base uint64     // address of the first byte in the client
	part memoryPart // that is mapped, of a memfd that the client has sent
	data []byte
	size int64   // what it counts for
	c    *client // that has been charged for it
	refs atomic.Int32
	end  func() // gives the memory up
}

// memoryPart is where a mapping begins in a memfd of the client.
type memoryPart struct {
	memory uint32 // the memfd's number, 0 for another one
	offset uint64
}

// newMapping makes a mapping with one reference, of memory that has been charged for.
func (c *client) newMapping(base uint64, data []byte, size int64, end func()) *mapping {
	m := &mapping{base: base, data: data, size: size, c: c, end: end}
	m.refs.Store(1)
	return m
}

// release gives one reference back; the last one gives up the memory.
func (m *mapping) release() {
	if m.refs.Add(-1) == 0 {
		m.c.discharge(m.size)
		m.end()
	}
}

// find returns the part of the mapping that is [start, start+length).
func (m *mapping) find(start, length uint64) ([]byte, bool) {
	size := uint64(len(m.data))
	off := start - m.base
	if start < m.base || off > size || length > size-off {
		return nil, false
	}
	return m.data[off : off+length : off+length], true
}

// charge accounts for n more bytes of memory if the client may have them. What it has
// touched in its space outside of rings counts now; until it asks for more, only the size
// of the space bounds that.
func (c *client) charge(n int64) bool {
	var excess int64
	if c.space != nil {
		excess = c.space.excess()
		if excess > 0 && c.used.Load()+n+excess > c.srv.cfg.Limits.Memory {
			c.space.cool()
			excess = c.space.excess()
		}
	}
	if c.used.Add(n)+excess > c.srv.cfg.Limits.Memory || !c.account.Take(quota.Memory, n) {
		c.used.Add(-n)
		return false
	}
	return true
}

// discharge ends what charge has begun.
func (c *client) discharge(n int64) {
	c.used.Add(-n)
	c.account.Add(quota.Memory, -n)
}

// mapFD maps a client's memfd, sealed so that it cannot be shortened under us.
func (c *client) mapFD(fd int, base, length, offset uint64) (*mapping, error) {
	if base%shm.PageSize != 0 || length%shm.PageSize != 0 || base+length < base {
		return nil, unix.EINVAL
	}
	if err := shm.Check(fd, offset, length); err != nil {
		return nil, err
	}
	if !c.account.Take(quota.Maps, 1) {
		return nil, unix.ENOMEM
	}
	if length > math.MaxInt64 || !c.charge(int64(length)) {
		c.account.Add(quota.Maps, -1)
		return nil, unix.ENOMEM
	}
	data, err := shm.Map(fd, offset, length)
	if err != nil {
		c.discharge(int64(length))
		c.account.Add(quota.Maps, -1)
		return nil, err
	}
	return c.newMapping(base, data, int64(length), func() {
		_ = shm.Unmap(data) // cannot fail for a mapping that we made
		c.account.Add(quota.Maps, -1)
	}), nil
}

// keep is what a region's memory is kept by: a mapping, the process that it is in, or
// nothing, for a region of no length.
type keep struct {
	mapping *mapping
	proc    *process
	remote  *remote // the memory, if a worker accesses it
}

// end gives the reference back once no access is under way: the client may do with its memory
// what it likes then.
func (k keep) end() {
	if k.remote != nil {
		k.remote.wait()
	}
	k.release()
}

// release gives the reference back.
func (k keep) release() {
	if k.mapping != nil {
		k.mapping.release()
	}
	if k.proc != nil {
		k.proc.release()
	}
}

// region returns the memory behind a client's addresses as the NIC takes it, and what
// keeps it, with one reference more: a mapping, or the process that has been passed. Length
// zero needs no memory.
func (c *client) region(start, length uint64, access qp.Access, src uverbs.MRSource) (rocev2.Memory, keep, error) {
	if length == 0 {
		return nil, keep{}, nil
	}
	m, err := c.mapped(start, length, src)
	if err != nil {
		return nil, keep{}, err
	}
	if m != nil {
		data, _ := m.find(start, length)
		m.refs.Add(1)
		return rocev2.NewBytes(data), keep{mapping: m}, nil
	}
	if c.here != nil {
		return nil, keep{}, unix.EAGAIN // the shard does not wait for files of /proc
	}
	return c.distant(start, length, access)
}

// mapped returns the mapping that a region is to be in, nil if in none.
func (c *client) mapped(start, length uint64, src uverbs.MRSource) (*mapping, error) {
	switch src.Kind {
	case uverbs.SourceAny:
		for _, m := range c.maps.all {
			if _, ok := m.find(start, length); ok {
				return m, nil
			}
		}
		return nil, nil
	case uverbs.SourceMapped:
		m, err := c.maps.get(src.Handle)
		if err != nil {
			return nil, err
		}
		if _, ok := m.find(start, length); !ok {
			return nil, unix.EFAULT
		}
		return m, nil
	case uverbs.SourceCopied:
		return nil, nil
	}
	return nil, unix.EINVAL
}
