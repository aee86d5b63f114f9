package server

import "golang.org/x/sys/unix"

// table numbers the objects of one kind of one client. It belongs to the
// connection's goroutine.
type table[T any] struct {
	slots []*T
	limit int
	live  int
	hint  int // no lower number is free
}

// newTable makes a table for at most limit objects.
func newTable[T any](limit int) table[T] { return table[T]{limit: limit} }

// full reports whether no object can be added.
func (t *table[T]) full() bool { return t.live >= t.limit }

// add numbers v with the lowest free number. The caller has asked full.
func (t *table[T]) add(v *T) uint32 {
	t.live++
	for t.hint < len(t.slots) && t.slots[t.hint] != nil {
		t.hint++
	}
	if t.hint == len(t.slots) {
		t.slots = append(t.slots, nil)
	}
	t.slots[t.hint] = v
	return uint32(t.hint)
}

// get returns the object of a number. There being none is ENOENT, as of Linux 6.12.
func (t *table[T]) get(i uint32) (*T, error) {
	if i >= uint32(len(t.slots)) || t.slots[i] == nil {
		return nil, unix.ENOENT
	}
	return t.slots[i], nil
}

// remove frees a number that is in use.
func (t *table[T]) remove(i uint32) {
	t.slots[i] = nil
	t.hint = min(t.hint, int(i))
	t.live--
}

// all yields the objects.
func (t *table[T]) all(yield func(uint32, *T) bool) {
	for i, v := range t.slots {
		if v != nil && !yield(uint32(i), v) {
			return
		}
	}
}
