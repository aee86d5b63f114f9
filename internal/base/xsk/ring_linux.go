package xsk

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Desc is struct xdp_desc: one buffer of a frame that was received or is to be
// sent (linux/if_xdp.h).
type Desc struct {
	Addr    uint64 // of its first byte, from the beginning of the UMEM
	Len     uint32 // bytes
	Options uint32 // Continued or 0
}

// Continued in Desc.Options says that the frame goes on in the next descriptor
// (XDP_PKT_CONTD).
const Continued = unix.XDP_PKT_CONTD

// ring is the part of a ring that both its ends have: memory shared with the
// kernel. Indices run freely; their lowest bits are places.
type ring[T any] struct {
	mem      []byte
	producer *atomic.Uint32
	consumer *atomic.Uint32
	flags    *atomic.Uint32
	entries  []T
	mask     uint32
	// Our own index as the next call needs it, and the other end's as it was
	// seen last: shared words are only touched when they have to be.
	own, other uint32
}

// mapAt maps a ring of a socket that has been given its size; there is none of
// size 0.
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

// NeedWakeup reports whether the kernel waits to be told of new entries
// (XDP_RING_NEED_WAKEUP).
func (r *ring[T]) NeedWakeup() bool { return r.flags.Load()&unix.XDP_RING_NEED_WAKEUP != 0 }

// Producer is the filling end of a ring: of the fill and the tx ring.
type Producer[T any] struct{ ring[T] }

// Room is how many entries can be put. The kernel's progress is looked up only if
// fewer than n places are known to be free.
func (p *Producer[T]) Room(n uint32) uint32 {
	size := p.mask + 1
	if free := size - (p.own - p.other); free >= n {
		return free
	}
	p.other = p.consumer.Load()
	return size - (p.own - p.other)
}

// Put adds an entry, which there must be room for. The kernel sees it after
// Publish.
func (p *Producer[T]) Put(e T) {
	p.entries[p.own&p.mask] = e
	p.own++
}

// Publish lets the kernel see what was put. The store releases: whoever sees the
// index sees the entries, and the bytes that they tell of.
func (p *Producer[T]) Publish() { p.producer.Store(p.own) }

// Pending is how many published or put entries the kernel has not taken.
func (p *Producer[T]) Pending() uint32 {
	p.other = p.consumer.Load()
	return p.own - p.other
}

// Consumer is the emptying end of a ring: of the completion and the rx ring.
type Consumer[T any] struct{ ring[T] }

// Known is how many entries can be read, as far as is known.
func (c *Consumer[T]) Known() uint32 { return c.other - c.own }

// Refresh looks the kernel's progress up and returns how many entries can be read.
func (c *Consumer[T]) Refresh() uint32 {
	c.other = c.producer.Load()
	return c.other - c.own
}

// At is entry i of those available.
func (c *Consumer[T]) At(i uint32) T { return c.entries[(c.own+i)&c.mask] }

// Take consumes the first n entries. Their places are the kernel's after Publish.
func (c *Consumer[T]) Take(n uint32) { c.own += n }

// Publish gives the places of the entries that were taken back to the kernel.
func (c *Consumer[T]) Publish() { c.consumer.Store(c.own) }

// Unpublished is how many entries have been taken whose places are not the kernel's yet.
func (c *Consumer[T]) Unpublished() uint32 { return c.own - c.consumer.Load() }

// Taken is how many entries have been consumed in all, modulo 2^32.
func (c *Consumer[T]) Taken() uint32 { return c.own }
