// Package object has the parts that all objects of a NIC share: tables of their numbers and the errors of the verbs.
//
// No promise: this package may change between releases.
package object

import (
	"errors"
	"fmt"
)

// Errors of the control verbs. Each corresponds to one errno of the verbs API. A verb returns an error that wraps one
// of them and names the verb and the attribute.
var (
	ErrInvalid = errors.New("rocev2: invalid argument")     // EINVAL
	ErrNoMem   = errors.New("rocev2: no room")              // ENOMEM
	ErrBusy    = errors.New("rocev2: object is in use")     // EBUSY
	ErrLimit   = errors.New("rocev2: limit of the device")  // ENOMEM: too many objects
	ErrAccess  = errors.New("rocev2: access not permitted") // EACCES
)

// Fail returns err with the verb and the attribute at fault.
func Fail(verb, attr string, err error) error { return fmt.Errorf("%s: %s: %w", verb, attr, err) }

// Table holds the objects of one kind at places counted from 1. It reuses the place of a removed object as late as is
// reasonable.
type Table[T any] struct {
	Limit int
	Live  int // number of objects

	slots      []slot[T] // the first one is not used
	head, tail uint32    // free places, first freed first
	free       int
}

type slot[T any] struct {
	v    *T
	next uint32 // when free
}

// tableRest is the number of free places that a table which may grow holds back.
const tableRest = 256

// Add returns the place of v; ok is false when there are Limit objects.
func (t *Table[T]) Add(v *T) (i uint32, ok bool) {
	if t.Live >= t.Limit {
		return 0, false
	}
	if len(t.slots) == 0 {
		t.slots = make([]slot[T], 1, 8)
	}
	t.Live++
	if t.free > tableRest || len(t.slots) > t.Limit {
		i = t.head
		t.head = t.slots[i].next
		t.free--
		t.slots[i] = slot[T]{v: v}
		return i, true
	}
	t.slots = append(t.slots, slot[T]{v: v})
	return uint32(len(t.slots) - 1), true
}

// Remove frees place i.
func (t *Table[T]) Remove(i uint32) {
	t.slots[i] = slot[T]{}
	if t.free == 0 {
		t.head = i
	} else {
		t.slots[t.tail].next = i
	}
	t.tail = i
	t.free++
	t.Live--
}

// Get returns the object at place i, nil if there is none.
func (t *Table[T]) Get(i uint32) *T {
	if i < uint32(len(t.slots)) {
		return t.slots[i].v
	}
	return nil
}

// All yields the objects in the order of their places.
func (t *Table[T]) All(yield func(*T) bool) {
	for i := range t.slots {
		if v := t.slots[i].v; v != nil && !yield(v) {
			return
		}
	}
}

// Describe returns a description of each object, in the order of their places.
func Describe[T, Info any](t *Table[T], describe func(*T) Info) []Info {
	out := make([]Info, 0, t.Live)
	for v := range t.All {
		out = append(out, describe(v))
	}
	return out
}

// Page visits up to most objects, from place from on. It returns the place where the next page begins, 0 after the last
// one. It may miss objects that are added or removed between two pages.
func (t *Table[T]) Page(from uint32, most int, visit func(*T)) (next uint32) {
	for i := from; i < uint32(len(t.slots)); i++ {
		if most == 0 {
			return i
		}
		if v := t.slots[i].v; v != nil {
			visit(v)
			most--
		}
	}
	return 0
}
