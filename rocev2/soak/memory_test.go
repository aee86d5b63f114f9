package soak

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// arena is memory of one end. Places are reserved with gaps of random length between them. Memory must change only
// where a change is expected.
type arena struct {
	buf   *nictest.Buffer
	size  int
	img   []byte // the expected content
	maybe []patch
}

// A place is a piece of an arena, a list is a scatter/gather list of places.
type (
	place struct{ off, n int }
	list  []place
)

// patch is data that may have arrived, completely or in part.
type patch struct {
	off  int
	data []byte
}

// reserve returns a place of n bytes, aligned if align is more than 1.
func (a *arena) reserve(rng *rand.Rand, n, align int) place {
	a.size += 1 + rng.IntN(64)
	if align > 1 {
		a.size = (a.size + align - 1) / align * align
	}
	p := place{a.size, n}
	a.size += n
	return p
}

// list reserves n bytes in several pieces, some of them empty.
func (a *arena) list(rng *rand.Rand, n, pieces int) list {
	var l list
	for i := range pieces {
		k := n
		if i < pieces-1 {
			k = rng.IntN(n + 1)
		}
		l = append(l, a.reserve(rng, k, 1))
		n -= k
	}
	return l
}

// open registers the memory.
func (a *arena) open(n *nictest.Node, seed uint64) {
	a.buf = n.Buffer(a.size + 64)
	b := a.buf.B
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range min(len(b), 8191) { // a prime length, so that a shift by a power of two is noticed
		b[i] = byte(rng.Uint32())
	}
	for n := 8191; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
	a.img = bytes.Clone(b)
}

// sges returns the elements of l.
func (a *arena) sges(l list) []qp.SGE {
	out := make([]qp.SGE, 0, len(l))
	for _, p := range l {
		out = append(out, a.buf.Part(p.off, p.n))
	}
	return out
}

// each calls f for the pieces of l with the matching parts of data.
func (l list) each(data []byte, f func(off int, part []byte)) {
	for _, p := range l {
		n := min(p.n, len(data))
		if n > 0 {
			f(p.off, data[:n])
		}
		data = data[n:]
	}
}

// put writes data to l before the run.
func (a *arena) put(l list, data []byte) {
	l.each(data, func(off int, part []byte) { copy(a.buf.B[off:], part) })
	a.expect(l, data)
}

// expect records that l must contain data from now on.
func (a *arena) expect(l list, data []byte) {
	l.each(data, func(off int, part []byte) { copy(a.img[off:], part) })
}

// allow records that each byte of l may become that of data.
func (a *arena) allow(l list, data []byte) {
	l.each(data, func(off int, part []byte) { a.maybe = append(a.maybe, patch{off, part}) })
}

// ignore accepts the current content of l.
func (a *arena) ignore(l list) {
	for _, p := range l {
		copy(a.img[p.off:p.off+p.n], a.buf.B[p.off:])
	}
}

// holds reports whether data is in l.
func (a *arena) holds(l list, data []byte) bool {
	ok := true
	l.each(data, func(off int, part []byte) { ok = ok && bytes.Equal(a.buf.B[off:off+len(part)], part) })
	return ok
}

// check compares the memory with the expected content.
func (a *arena) check() error {
	for _, m := range a.maybe {
		for i, v := range m.data {
			if a.buf.B[m.off+i] == v {
				a.img[m.off+i] = v
			}
		}
	}
	if bytes.Equal(a.buf.B, a.img) {
		return nil
	}
	i := 0
	for a.buf.B[i] == a.img[i] {
		i++
	}
	return fmt.Errorf("memory at %#x, offset %d: %#02x, want %#02x", a.buf.VA, i, a.buf.B[i], a.img[i])
}
