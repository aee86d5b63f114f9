package flor

import (
	"context"
	"fmt"
	"math/bits"
	"sync"

	"roced.io/roced/verbs"
)

// memory is registered memory for outgoing messages, in power-of-two pieces. Each slab holds pieces of one size. An
// unused slab is freed to make room for another size.
type memory struct {
	pd    *verbs.PD
	limit int

	mu      sync.Mutex
	used    int // bytes in slabs
	classes [maxClass + 1]class
	waiting []chan struct{}
}

const (
	minClass  = 8 // pieces of 256 bytes
	maxClass  = 30
	slabBytes = 256 << 10
)

type class struct{ slabs []*slab }

type slab struct {
	mr   *verbs.MR
	size int
	free []int // offsets of free pieces
	n    int   // number of pieces
}

func (m *memory) init(pd *verbs.PD, limit int) { m.pd, m.limit = pd, limit }

func classOf(n int) int { return max(bits.Len(uint(max(n, 1)-1)), minClass) }

// take returns a message of n bytes. It blocks until memory is free, ctx ends or quit is closed.
func (m *memory) take(ctx context.Context, quit <-chan struct{}, n int) (*Message, error) {
	for {
		m.mu.Lock()
		s, err := m.slab(classOf(n))
		if s != nil {
			at := s.free[len(s.free)-1]
			s.free = s.free[:len(s.free)-1]
			m.mu.Unlock()
			b := s.mr.Bytes()[at : at+s.size]
			return &Message{Data: b[:n:s.size], memory: m, lkey: s.mr.LKey(), base: s.mr.Addr() + uint64(at), room: s.size,
				free: func() { m.give(s, at) }}, nil
		}
		wait := make(chan struct{})
		m.waiting = append(m.waiting, wait)
		m.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("flor: memory for messages: %w", err)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, fmt.Errorf("flor: memory for messages: %w", ctx.Err())
		case <-quit:
			return nil, ErrClosed
		}
	}
}

// slab returns a slab with a free piece, or nil if there is none now.
func (m *memory) slab(c int) (*slab, error) {
	k := &m.classes[c]
	for i := len(k.slabs) - 1; i >= 0; i-- {
		if s := k.slabs[i]; len(s.free) > 0 {
			return s, nil
		}
	}
	size := 1 << c
	bytes := max(size, slabBytes)
	for m.used+bytes > m.limit {
		if !m.reclaim() {
			return nil, nil
		}
	}
	mr, err := m.pd.AllocMR(bytes, verbs.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	s := &slab{mr: mr, size: size, n: bytes / size}
	for at := bytes - size; at >= 0; at -= size {
		s.free = append(s.free, at)
	}
	m.used += bytes
	k.slabs = append(k.slabs, s)
	return s, nil
}

// reclaim frees one unused slab.
func (m *memory) reclaim() bool {
	for c := range m.classes {
		k := &m.classes[c]
		for i, s := range k.slabs {
			if len(s.free) < s.n {
				continue
			}
			k.slabs = append(k.slabs[:i], k.slabs[i+1:]...)
			m.used -= s.n * s.size
			_ = s.mr.Dereg() // if this fails, it ends with the device
			return true
		}
	}
	return false
}

// give frees a piece.
func (m *memory) give(s *slab, at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.free = append(s.free, at)
	for _, w := range m.waiting {
		close(w)
	}
	m.waiting = nil
}

// inUse returns the number of bytes in use by messages.
func (m *memory) inUse() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.classes {
		for _, s := range m.classes[c].slabs {
			n += (s.n - len(s.free)) * s.size
		}
	}
	return n
}
