package xsk

import (
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// ringOf returns a ring with this many entries whose indices start at start.
func ringOf[T any](size, start uint32) ring[T] {
	r := ring[T]{
		producer: new(atomic.Uint32), consumer: new(atomic.Uint32), flags: new(atomic.Uint32),
		entries: make([]T, size), mask: size - 1, own: start, other: start,
	}
	r.producer.Store(start)
	r.consumer.Store(start)
	return r
}

// TestRing connects a producer and a consumer, each in the role of the kernel, and compares them with a queue. The indices
// wrap around.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := uint32(1) << rapid.IntRange(0, 6).Draw(t, "size")
		start := -rapid.Uint32Range(0, 200).Draw(t, "start")
		shared := ringOf[uint64](size, start)
		p, c := &Producer[uint64]{shared}, &Consumer[uint64]{shared}
		var put, published, taken []uint64 // put by the producer and not published, published, taken and not returned
		next := uint64(0)
		check := func(what string, got, want uint32) {
			if got != want {
				t.Fatalf("%s: %d, want %d", what, got, want)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n := rapid.Uint32Range(1, size).Draw(t, "n")
				room := p.mask + 1 - p.Pending()
				if free := size - uint32(len(put)+len(published)+len(taken)); room < n && room != free || room > free {
					t.Fatalf("room for %d, %d places are free", room, free)
				}
				for range min(n, room) {
					p.Put(next)
					put = append(put, next)
					next++
				}
			},
			"publish": func(*rapid.T) {
				p.Publish()
				published, put = append(published, put...), nil
			},
			"take": func(t *rapid.T) {
				if c.Known() == 0 {
					check("there", c.Refresh(), uint32(len(published)))
				}
				n := rapid.Uint32Range(0, c.Known()).Draw(t, "n")
				for i := range n {
					if got := c.At(i); got != published[i] {
						t.Fatalf("entry %d is %d, want %d", i, got, published[i])
					}
				}
				c.Take(n)
				taken, published = append(taken, published[:n]...), published[n:]
			},
			"give back": func(*rapid.T) {
				check("unpublished", c.Unpublished(), uint32(len(taken)))
				c.Publish()
				taken = nil
			},
			"": func(*rapid.T) {
				check("pending", p.Pending(), uint32(len(put)+len(published)+len(taken)))
			},
		})
	})
}

func TestNeedWakeup(t *testing.T) {
	r := ringOf[Desc](4, 0)
	if r.NeedWakeup() {
		t.Error("set")
	}
	r.flags.Store(unix.XDP_RING_NEED_WAKEUP | 2)
	if !r.NeedWakeup() {
		t.Error("not set")
	}
}

// umem returns a UMEM with two chunks.
func umem(t testing.TB) *UMEM {
	t.Helper()
	u, err := NewUMEM(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := u.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return u
}

// TestBytes checks that Bytes refuses descriptors that exceed the memory or their chunk.
func TestBytes(t *testing.T) {
	u := umem(t)
	if len(u.mem)/ChunkSize != 2 {
		t.Errorf("%d chunks", len(u.mem)/ChunkSize)
	}
	for _, c := range []struct {
		d  Desc
		ok bool
	}{
		{Desc{Addr: 0, Len: ChunkSize}, true},
		{Desc{Addr: ChunkSize, Len: ChunkSize}, true},
		{Desc{Addr: 2*ChunkSize - 1, Len: 1}, true},
		{Desc{Addr: 300, Len: 0}, true},
		{Desc{Addr: 1, Len: ChunkSize}, false},
		{Desc{Addr: 0, Len: ChunkSize + 1}, false},
		{Desc{Addr: 0, Len: 1<<32 - 1}, false},
		{Desc{Addr: 2 * ChunkSize, Len: 0}, false},
		{Desc{Addr: 1<<64 - 1, Len: 1}, false},
		{Desc{Addr: 1<<64 - ChunkSize, Len: ChunkSize}, false},
	} {
		b, ok := u.Bytes(c.d)
		if ok != c.ok || ok && len(b) != int(c.d.Len) {
			t.Errorf("%+v: %d bytes, %v", c.d, len(b), ok)
		}
	}
}

// FuzzBytes writes to all accepted ranges. A range outside the memory would cause a fault.
func FuzzBytes(f *testing.F) {
	u := umem(f)
	f.Add(uint64(4000), uint32(96))
	f.Fuzz(func(t *testing.T, addr uint64, length uint32) {
		b, ok := u.Bytes(Desc{Addr: addr, Len: length})
		if !ok {
			return
		}
		if addr/ChunkSize != (addr+max(uint64(length), 1)-1)/ChunkSize {
			t.Errorf("%d bytes at %d span chunks", length, addr)
		}
		for i := range b {
			b[i] = 1
		}
	})
}

// TestOpenRefused opens sockets with invalid options. No descriptor may remain open.
func TestOpenRefused(t *testing.T) {
	u := umem(t)
	before := len(openFiles(t))
	for _, c := range []Config{
		{Ifindex: 1, Fill: 3, Completion: 4, Rx: 4},       // not a power of two
		{Ifindex: 1, Fill: 4, Completion: 4},              // neither rx nor tx
		{Ifindex: 1 << 30, Fill: 4, Completion: 4, Rx: 4}, // no such interface
	} {
		if s, err := Open(u, c); err == nil {
			s.Close()
			t.Errorf("%+v: no error", c)
		}
	}
	if after := len(openFiles(t)); after != before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
}

func openFiles(t *testing.T) []os.DirEntry {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return files
}
