package xsk

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Desc is struct xdp_desc of linux/if_xdp.h: one buffer of a frame.
type Desc struct {
	Addr    uint64 // offset of the first byte in the UMEM
	Len     uint32 // bytes
	Options uint32 // Continued or 0
}

// Continued in Desc.Options means that the frame continues in the next descriptor (XDP_PKT_CONTD).
const Continued = unix.XDP_PKT_CONTD

// ring is the common part of both ends of a ring: memory shared with the kernel. Indices are free-running; their low bits
// select the entry.
type ring[T any] struct {
	mem      []byte
	producer *atomic.Uint32
	consumer *atomic.Uint32
	flags    *atomic.Uint32
	entries  []T
	mask     uint32
	// own is the local index, which Publish stores in shared memory. other is a cached copy of the kernel's index.
	own, other uint32
}

// mapAt maps a ring of a socket whose size has been set. It does nothing if size is 0.
func (r *ring[T]) mapAt(fd int, pgoff int64, off unix.XDPRingOffset, size uint32) error {
	if size == 0 {
		return nil
	}
	var one T
	length := int(off.Desc) + int(size)*int(unsafe.Sizeof(one))
	mem, err := unix.Mmap(fd, pgoff, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	word := func(off uint64) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&mem[off])) }
	*r = ring[T]{
		mem: mem, producer: word(off.Producer), consumer: word(off.Consumer), flags: word(off.Flags),
		entries: unsafe.Slice((*T)(unsafe.Pointer(&mem[off.Desc])), size), mask: size - 1,
	}
	return nil
}

func (r *ring[T]) unmap() error {
	if r.mem == nil {
		return nil
	}
	mem := r.mem
	*r = ring[T]{}
	return unix.Munmap(mem)
}

// NeedWakeup reports whether the kernel waits for a wakeup after new entries (XDP_RING_NEED_WAKEUP).
func (r *ring[T]) NeedWakeup() bool { return r.flags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 }

// Producer is the producing end of a fill or tx ring.
type Producer[T any] struct{ ring[T] }

// Put adds an entry. The ring must have room for it. The kernel sees the entry after Publish.
func (p *Producer[T]) Put(e T) {
	p.entries[p.own&p.mask] = e
	p.own++
}

// Publish makes new entries visible to the kernel. The store is a release: it orders the entries, and the frames that they
// refer to, before the index.
func (p *Producer[T]) Publish() { p.producer.Store(p.own) }

// Pending returns the number of entries that the kernel has not consumed, including unpublished ones.
func (p *Producer[T]) Pending() uint32 {
	p.other = p.consumer.Load()
	return p.own - p.other
}

// Consumer is the consuming end of a completion or rx ring.
type Consumer[T any] struct{ ring[T] }

// Known returns the number of readable entries as of the last Refresh.
func (c *Consumer[T]) Known() uint32 { return c.other - c.own }

// Refresh reads the index of the kernel and returns the number of readable entries.
func (c *Consumer[T]) Refresh() uint32 {
	c.other = c.producer.Load()
	return c.other - c.own
}

// At returns the i-th readable entry.
func (c *Consumer[T]) At(i uint32) T { return c.entries[(c.own+i)&c.mask] }

// Take consumes the first n entries. The kernel can reuse them after Publish.
func (c *Consumer[T]) Take(n uint32) { c.own += n }

// Publish returns the consumed entries to the kernel.
func (c *Consumer[T]) Publish() { c.consumer.Store(c.own) }

// Unpublished returns the number of consumed entries that Publish has not returned yet.
func (c *Consumer[T]) Unpublished() uint32 { return c.own - c.consumer.Load() }

// Taken is how many entries have been consumed in all, modulo 2^32.
func (c *Consumer[T]) Taken() uint32 { return c.own }
