package server

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// pinned lists the exporters of dma-bufs whose pages never move: /dev/udmabuf and the heaps of /dev/dma_heap. A page
// fault on another one can wait for a device, as long as its user wants.
var pinned = []string{"udmabuf", "system", "reserved", "linux,cma", "default_cma_region"}

// inFile returns memory of a file that programs share, mapped for this region only. The descriptor is not kept, so the
// last region frees the memory of a deleted file.
func (c *client) inFile(start, length uint64, access qp.Access, src source) (rocev2.Memory, keep, error) {
	if len(src.fds) != 1 || (start^src.file.Offset)&pageMask != 0 {
		return nil, keep{}, unix.EINVAL
	}
	f, err := shm.Inspect(src.fds[0])
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, keep{}, c.advise(unix.EOPNOTSUPP, "the NIC can map files of tmpfs and hugetlbfs and dma-bufs only, and the descriptor of a "+
			"memory region is of none of them: register other memory")
	case err != nil:
		return nil, keep{}, err
	case f.Inode != src.file.Inode || f.Device != unix.Mkdev(src.file.Major, src.file.Minor):
		return nil, keep{}, unix.ESTALE
	case !c.mayWait(&f):
		return nil, keep{}, c.advise(unix.EOPNOTSUPP, fmt.Sprintf("dma-bufs of %q may make the NIC wait for a device, so only root and the "+
			"daemon's user may register them: register other memory", f.Exporter))
	}
	m, data, err := c.mapFile(src.fds[0], &f, start, length, src.file.Offset)
	if err != nil {
		return nil, keep{}, err
	}
	if err := m.permits(access); err != nil {
		m.release()
		return nil, keep{}, err
	}
	mem := rocev2.NewBytes(data)
	mem.Lost = func(off uint64, n int) { c.truncated(&f, src.file.Offset+off, n) }
	return mem, keep{mapping: m}, nil
}

// mayWait reports whether the client may register a file. Accesses to dma-bufs of some exporters wait.
func (c *client) mayWait(f *shm.File) bool {
	return f.Kind != shm.DMABuf || c.trusted() || slices.Contains(pinned, f.Exporter)
}

// mapFile maps the part of a file that contains a region, and charges it. data is the region.
func (c *client) mapFile(fd int, f *shm.File, start, length, offset uint64) (m *mapping, data []byte, err error) {
	if !c.account.Take(quota.Maps, 1) {
		return nil, nil, unix.ENOMEM
	}
	uncount := func() { c.account.Add(quota.Maps, -1) }
	whole, lead, err := c.srv.cfg.Guard.MapFile(fd, *f, offset, length)
	if err != nil {
		uncount()
		if f.Kind == shm.DMABuf && !errors.Is(err, shm.ErrRange) {
			err = c.advise(unix.EOPNOTSUPP, fmt.Sprintf("a dma-buf of %q cannot be mapped (%v), so the NIC cannot access it: register memory of the host", f.Exporter, err))
		}
		return nil, nil, err
	}
	size := int64(length) // huge pages may contain more regions
	unmap := func() {
		_ = shm.Unmap(whole) // cannot fail for a mapping of our own
		uncount()
	}
	if !c.charge(size) {
		unmap()
		return nil, nil, unix.ENOMEM
	}
	m = c.newMapping(start-lead, whole, size, unmap)
	m.file = f
	return m, whole[lead:][:length:length], nil
}

// permits returns an error if the mapping does not allow the accesses of a region.
func (m *mapping) permits(access qp.Access) error {
	if m.file != nil && !m.file.Writable && access&qp.AccessLocalWrite != 0 {
		return unix.EACCES
	}
	return nil
}

// truncated logs the reason of the failure of a request.
func (c *client) truncated(f *shm.File, offset uint64, n int) {
	_ = c.advise(unix.EFAULT, fmt.Sprintf("%d bytes at %#x of a %v file are missing: a program has truncated it, or has freed its pages", n, offset, f.Kind))
}
