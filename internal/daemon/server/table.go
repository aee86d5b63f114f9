package server

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/quota"
)

// table assigns numbers to one client's objects of one kind. Only the running command may use it.
type table[T any] struct {
	slots   []*T
	limit   int
	kind    quota.Kind
	account *quota.Account // of the client; if nil, only limit applies
	live    int
	hint    int // all lower numbers are in use
}

// newTable makes a table for at most limit objects.
func newTable[T any](limit int) table[T] { return table[T]{limit: limit} }

// newCounted makes a table for at most limit objects, which a counts as kind. Users that open many connections at
// once can exceed their quota by one object per connection.
func newCounted[T any](limit int, kind quota.Kind, a *quota.Account) table[T] {
	return table[T]{limit: limit, kind: kind, account: a}
}

// full reports whether no object can be added.
func (t *table[T]) full() bool {
	return t.live >= t.limit || t.account != nil && t.account.Full(t.kind)
}

// add stores v under the lowest free number. Call full first.
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

// get returns the object with number i, or ENOENT, as in Linux 6.12.
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

// all iterates over the objects in order of their numbers.
func (t *table[T]) all(yield func(uint32, *T) bool) {
	for i, v := range t.slots {
		if v != nil && !yield(uint32(i), v) {
			return
		}
	}
}
