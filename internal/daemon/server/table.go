package server

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/quota"
)

// table numbers the objects of one kind of one client. It belongs to the
// connection's goroutine.
type table[T any] struct {
	slots   []*T
	limit   int
	kind    quota.Kind
	account *quota.Account // of the client; nil: only limit counts
	live    int
	hint    int // no lower number is free
}

// newTable makes a table for at most limit objects.
func newTable[T any](limit int) table[T] { return table[T]{limit: limit} }

// newCounted makes a table for at most limit objects, for which a accounts as kind. Users who
// open many connections at once can exceed what they may have by one object each.
func newCounted[T any](limit int, kind quota.Kind, a *quota.Account) table[T] {
	return table[T]{limit: limit, kind: kind, account: a}
}

// full reports whether no object can be added.
func (t *table[T]) full() bool {
	return t.live >= t.limit || t.account != nil && t.account.Full(t.kind)
}

// add numbers v with the lowest free number. The caller has asked full.
func (t *table[T]) add(v *T) uint32 {
	t.live++
	if t.account != nil {
		t.account.Add(t.kind, 1)
	}
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
	if t.account != nil {
		t.account.Add(t.kind, -1)
	}
}

// all yields the objects.
func (t *table[T]) all(yield func(uint32, *T) bool) {
	for i, v := range t.slots {
		if v != nil && !yield(uint32(i), v) {
			return
		}
	}
}
