package server

import (
	"fmt"
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
	base uint64     // client address of the first byte
	part memoryPart // mapped part of a memfd that the client has sent
	file *shm.File  // the mapped file; nil for a memfd with fixed size
	data []byte
	size int64   // charged bytes
	c    *client // the charged client
	refs atomic.Int32
	end  func() // frees the memory
}

// memoryPart is the start of a mapping in a memfd of the client.
type memoryPart struct {
	memory uint32 // number of the memfd, 0 for memory of another origin
	offset uint64
}

// newMapping makes a mapping with one reference. The caller has charged its memory.
func (c *client) newMapping(base uint64, data []byte, size int64, end func()) *mapping {
	m := &mapping{base: base, data: data, size: size, c: c, end: end}
	m.refs.Store(1)
	return m
}

// release drops a reference. The last one frees the memory.
func (m *mapping) release() {
	if m.refs.Add(-1) == 0 {
		m.c.discharge(m.size)
		m.end()
	}
}

// find returns the part [start, start+length) of the mapping.
func (m *mapping) find(start, length uint64) ([]byte, bool) {
	size := uint64(len(m.data))
	off := start - m.base
	if start < m.base || off > size || length > size-off {
		return nil, false
	}
	return m.data[off : off+length : off+length], true
}

// charge adds n bytes to the client's memory usage, if its quota allows it. Pages that the client has touched in its
// space outside rings count here. Between two calls only the size of the space limits them.
func (c *client) charge(n int64) bool {
	var excess int64
	if c.space != nil {
		excess = c.space.excess()
		if excess > 0 && c.used.Load()+n+excess > c.limits.Memory {
			c.space.cool()
			excess = c.space.excess()
		}
	}
	if c.used.Add(n)+excess > c.limits.Memory || !c.account.Take(quota.Memory, n) {
		c.used.Add(-n)
		return false
	}
	return true
}

// discharge reverses charge.
func (c *client) discharge(n int64) {
	c.used.Add(-n)
	c.account.Add(quota.Memory, -n)
}

// mapFD maps parts of a client's memfd, one behind the other. Its seals prevent the client from truncating it. The NIC
// cannot access its holes.
func (c *client) mapFD(fd int, base uint64, parts []shm.Part) (*mapping, error) {
	length := uint64(0)
	for _, p := range parts {
		if length += p.Length; p.Length > math.MaxInt64 || length > math.MaxInt64 || p.Length%shm.PageSize != 0 {
			return nil, unix.EINVAL
		}
	}
	if base%shm.PageSize != 0 || base+length < base {
		return nil, unix.EINVAL
	}
	if err := shm.Check(fd, parts...); err != nil {
		return nil, err
	}
	maps := int64(len(parts))
	if !c.account.Take(quota.Maps, maps) {
		return nil, unix.ENOMEM
	}
	if !c.charge(int64(length)) {
		c.account.Add(quota.Maps, -maps)
		return nil, unix.ENOMEM
	}
	data, err := c.srv.cfg.Guard.Map(fd, parts...)
	if err != nil {
		c.discharge(int64(length))
		c.account.Add(quota.Maps, -maps)
		return nil, err
	}
	return c.newMapping(base, data, int64(length), func() {
		_ = shm.Unmap(data) // cannot fail for a mapping of our own
		c.account.Add(quota.Maps, -maps)
	}), nil
}

// keep holds the reference to a region's memory: a mapping, or the process that contains it.
type keep struct {
	mapping *mapping
	proc    *process
	remote  *remote // the memory, if a worker accesses it
}

// end waits for accesses in progress and then drops the reference. Afterwards the client may reuse its memory.
func (k keep) end() {
	if k.remote != nil {
		k.remote.wait()
	}
	k.release()
}

// release drops the reference without waiting.
func (k keep) release() {
	if k.mapping != nil {
		k.mapping.release()
	}
	if k.proc != nil {
		k.proc.release()
	}
}

// region returns the memory behind a client's addresses as the NIC uses it, with a new reference: to a mapping, or
// to the passed process. A region has at least one byte, as ib_umem_get() of Linux demands.
func (c *client) region(start, length uint64, access qp.Access, src source) (rocev2.Memory, keep, error) {
	if length == 0 {
		return nil, keep{}, unix.EINVAL
	}
	if src.Kind == uverbs.SourceFile {
		return c.inFile(start, length, access, src)
	}
	m, err := c.mapped(start, length, src.MRSource)
	if err != nil {
		return nil, keep{}, err
	}
	if m != nil {
		data, _ := m.find(start, length)
		m.refs.Add(1)
		mem := rocev2.NewBytes(data)
		mem.Lost = func(off uint64, n int) { c.missing(start+off, n) }
		return mem, keep{mapping: m}, nil
	}
	if c.here != nil {
		return nil, keep{}, unix.EAGAIN // reads of /proc files may block the shard
	}
	return c.distant(start, length, access)
}

// missing logs the reason of the failure of a request.
func (c *client) missing(addr uint64, n int) {
	_ = c.advise(unix.EFAULT, fmt.Sprintf("%d bytes at %#x of a region are a hole of the program's memfd: the program has not "+
		"allocated these pages, or has freed them", n, addr)) // the completion reports the error to the program
}

// mapped returns the mapping that contains the region, nil if there is none.
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
