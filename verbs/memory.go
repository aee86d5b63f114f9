package verbs

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// PD is a protection domain (ibv_pd).
type PD struct {
	ctx    *Context
	handle uint32
}

// AllocPD creates a protection domain.
func (c *Context) AllocPD() (*PD, error) {
	r, err := ask[uverbs.AllocPDResp](c, "alloc_pd", uverbs.CmdAllocPD, uverbs.AllocPD{})
	if err != nil {
		return nil, err
	}
	return &PD{ctx: c, handle: r.PDHandle}, nil
}

// Dealloc destroys a protection domain, which no other object may use.
func (p *PD) Dealloc() error {
	return p.ctx.run("dealloc_pd", uverbs.CmdDeallocPD, uverbs.DeallocPD{PDHandle: p.handle})
}

// Buffer is memory that the device can access. Regions are registered in it. It is
// aligned to pages and outside of the Go heap.
type Buffer struct {
	ctx    *Context
	handle uint32
	mu     sync.Mutex // guards mem
	mem    []byte
}

// AllocBuffer allocates a buffer of at least size bytes: whole pages. All of it counts as memory of this process at
// once.
func (c *Context) AllocBuffer(size int) (*Buffer, error) {
	const verb = "alloc_buffer"
	if size <= 0 {
		return nil, fail(verb, strconv.Itoa(size)+" bytes", unix.EINVAL)
	}
	pages := (int64(size) + shm.PageSize - 1) &^ (shm.PageSize - 1)
	fd, mem, err := shm.New("roced-memory", pages, shm.SealSize)
	if err != nil {
		return nil, fail(verb, strconv.Itoa(size)+" bytes", err)
	}
	defer unix.Close(fd) // the mappings keep the memory
	b := &Buffer{ctx: c, mem: mem}
	if err := shm.Allocate(fd, 0, pages); err != nil {
		b.release()
		return nil, fail(verb, strconv.Itoa(size)+" bytes", err)
	}
	if b.handle, err = c.dev.share(fd, b.Addr(), uint64(len(mem))); err != nil {
		b.release()
		return nil, explain(err, strconv.Itoa(size)+" bytes")
	}
	if err := c.hold(b); err != nil {
		return nil, fail(verb, "", err)
	}
	return b, nil
}

// Bytes returns the memory.
func (b *Buffer) Bytes() []byte { return b.mem }

// Addr returns the address of the first byte.
func (b *Buffer) Addr() uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b.mem)))) }

// Free unmaps the memory: do not access slices of it afterwards. Regions that are
// registered in it remain valid for the device.
func (b *Buffer) Free() error {
	err := b.ctx.dev.unshare(b.handle)
	b.ctx.drop(b)
	return err
}

func (b *Buffer) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mem != nil {
		_ = shm.Unmap(b.mem) // cannot fail for a mapping that we made
		b.mem = nil
	}
}

// MR is a memory region (ibv_mr).
type MR struct {
	pd     *PD
	handle uint32
	buf    *Buffer
	own    bool // buf is freed with the region
	mem    []byte
	addr   uint64
	lkey   uint32
	rkey   uint32
}

// AllocMR allocates memory of size bytes and registers it.
func (p *PD) AllocMR(size int, access Access) (*MR, error) {
	b, err := p.ctx.AllocBuffer(size)
	if err != nil {
		return nil, err
	}
	m, err := p.RegMR(b, 0, size, access)
	if err != nil {
		_ = b.Free()
		return nil, err
	}
	m.own = true
	return m, nil
}

// RegMR registers length bytes of a buffer, starting at offset.
func (p *PD) RegMR(b *Buffer, offset, length int, access Access) (*MR, error) {
	const verb = "reg_mr"
	mem, addr, err := b.part(verb, offset, length)
	if err != nil {
		return nil, err
	}
	r, err := ask[uverbs.RegMRResp](p.ctx, verb, uverbs.CmdRegMR, uverbs.RegMR{
		Start: addr, Length: uint64(length), HCAVA: addr, PDHandle: p.handle, AccessFlags: uint32(access)})
	if err != nil {
		return nil, explain(err, fmt.Sprintf("%d bytes at %d, access %#x", length, offset, access))
	}
	return &MR{pd: p, handle: r.MRHandle, buf: b, mem: mem, addr: addr, lkey: r.LKey, rkey: r.RKey}, nil
}

// part returns a part of the buffer and its address.
func (b *Buffer) part(verb string, offset, length int) ([]byte, uint64, error) {
	if offset < 0 || length < 0 || offset > len(b.mem) || length > len(b.mem)-offset {
		return nil, 0, fail(verb, fmt.Sprintf("%d bytes at %d of %d", length, offset, len(b.mem)), ErrRange)
	}
	return b.mem[offset : offset+length : offset+length], b.Addr() + uint64(offset), nil
}

// Bytes returns the memory of the region. Peers and the daemon may write it at any
// time.
func (m *MR) Bytes() []byte { return m.mem }

// Addr returns the address of the first byte, for work requests.
func (m *MR) Addr() uint64 { return m.addr }

// LKey returns the key for the SGEs of work requests.
func (m *MR) LKey() uint32 { return m.lkey }

// RKey returns the key for work requests of a peer.
func (m *MR) RKey() uint32 { return m.rkey }

// SGE returns the element of a scatter/gather list for length bytes from offset. It
// checks no bounds: the daemon does.
func (m *MR) SGE(offset, length int) SGE {
	return SGE{Addr: m.addr + uint64(offset), Length: uint32(length), LKey: m.lkey}
}

// LoadUint64 atomically reads 8 aligned bytes in the byte order of this machine: for instance the result of an atomic
// operation, or a flag written by a peer. It panics if the offset is not aligned or out of range.
func (m *MR) LoadUint64(offset int) uint64 { return atomic.LoadUint64(m.word(offset)) }

// StoreUint64 atomically writes 8 aligned bytes. It panics like LoadUint64.
func (m *MR) StoreUint64(offset int, v uint64) { atomic.StoreUint64(m.word(offset), v) }

func (m *MR) word(offset int) *uint64 {
	p := unsafe.Pointer(unsafe.SliceData(m.mem[offset : offset+8]))
	if uintptr(p)%8 != 0 {
		panic(fmt.Sprintf("verbs: offset %d is not aligned", offset))
	}
	return (*uint64)(p)
}

// ReregFlags select the attributes that Rereg changes (ibv_rereg_mr_flags).
type ReregFlags uint32

// Flags of Rereg.
const (
	ReregMemory ReregFlags = 1 << 0 // Buffer, Offset and Length
	ReregPD     ReregFlags = 1 << 1
	ReregAccess ReregFlags = 1 << 2
)

// ReregAttr are the new attributes of a region.
type ReregAttr struct {
	Buffer         *Buffer // nil: the region's own
	Offset, Length int
	PD             *PD
	Access         Access
}

// Rereg changes a region (ibv_rereg_mr); its keys may change. Neither the device nor
// this process may use the region meanwhile.
func (m *MR) Rereg(flags ReregFlags, attr ReregAttr) error {
	const verb = "rereg_mr"
	cmd := uverbs.ReregMR{MRHandle: m.handle, Flags: uint32(flags), PDHandle: m.pd.handle, AccessFlags: uint32(attr.Access)}
	buf, mem, addr := m.buf, m.mem, m.addr
	if flags&ReregMemory != 0 {
		if attr.Buffer != nil {
			buf = attr.Buffer
		}
		var err error
		if mem, addr, err = buf.part(verb, attr.Offset, attr.Length); err != nil {
			return err
		}
		cmd.Start, cmd.Length, cmd.HCAVA = addr, uint64(attr.Length), addr
	}
	if flags&ReregPD != 0 {
		if attr.PD == nil {
			return fail(verb, "pd", unix.EINVAL)
		}
		cmd.PDHandle = attr.PD.handle
	}
	r, err := ask[uverbs.ReregMRResp](m.pd.ctx, verb, uverbs.CmdReregMR, cmd)
	if err != nil {
		return err
	}
	m.lkey, m.rkey, m.mem, m.addr = r.LKey, r.RKey, mem, addr
	if flags&ReregPD != 0 {
		m.pd = attr.PD
	}
	if old := m.buf; m.own && buf != old {
		m.buf, m.own = buf, false
		return old.Free()
	}
	m.buf = buf
	return nil
}

// Dereg destroys the region. It frees memory of AllocMR: do not access slices of it
// afterwards.
func (m *MR) Dereg() error {
	err := m.pd.ctx.run("dereg_mr", uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: m.handle})
	if err == nil && m.own {
		return m.buf.Free()
	}
	return err
}
