// Package registry holds the plug-ins of one kind by name, and makes them from parameters.
package registry

import (
	"fmt"
	"maps"
	"slices"

	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/plugin/param"
)

// Kind is a kind of plug-in, such as loss recoveries.
type Kind[T any] struct {
	owner, what string // for errors: the package, and the words for the kind
	entries     map[string]entry[T]
}

// entry makes a plug-in in two steps: a function that reads the parameters of memory, which plug-ins of one NIC share, returns
// the function that makes plug-ins.
type entry[T any] struct {
	source string
	share  func(r *param.Reader) func(r *param.Reader) T
	memory []string // parameters that share reads
}

// Own is the source of plug-ins that the calling program registers.
const Own = "this program"

// New returns an empty kind. Errors of parameters begin with owner; what says what the kind is, such as "loss recovery".
func New[T any](owner, what string) *Kind[T] {
	return &Kind[T]{owner: owner, what: what, entries: map[string]entry[T]{}}
}

// Add adds a plug-in under a name that is free, and returns k. source says where it is specified. It panics if the name is
// taken or empty.
func (k *Kind[T]) Add(name, source string, make func(r *param.Reader) T) *Kind[T] {
	return k.AddShared(name, source, func(*param.Reader) func(*param.Reader) T { return make })
}

// AddShared adds a plug-in whose memory the queue pairs of a NIC share: share makes the memory.
func (k *Kind[T]) AddShared(name, source string, share func(r *param.Reader) func(r *param.Reader) T) *Kind[T] {
	if _, taken := k.entries[name]; taken || name == "" {
		panic(fmt.Sprintf("%s: the name %q is taken", k.owner, name))
	}
	r := k.reader(name, nil)
	share(r)
	e := entry[T]{source: source, share: share}
	for _, p := range r.Parameters() {
		e.memory = append(e.memory, p.Name)
	}
	k.entries[name] = e
	return k
}

// Names returns the names in alphabetical order.
func (k *Kind[T]) Names() []string { return slices.Sorted(maps.Keys(k.entries)) }

// Has reports whether there is a plug-in with that name.
func (k *Kind[T]) Has(name string) bool { _, ok := k.entries[name]; return ok }

// Source returns where a plug-in is specified.
func (k *Kind[T]) Source(name string) string { return k.entries[name].source }

// Parameters returns the parameters of a plug-in in the order of reading, nil for an unknown plug-in.
func (k *Kind[T]) Parameters(name string) []param.Parameter {
	e, ok := k.entries[name]
	if !ok {
		return nil
	}
	r := k.reader(name, nil)
	e.share(r)(r)
	return r.Parameters()
}

// New makes a plug-in that shares no memory.
func (k *Kind[T]) New(name string, params map[string]float64) (T, error) {
	return k.Maker().New(name, params)
}

// Maker returns a maker for the plug-ins of one NIC.
func (k *Kind[T]) Maker() *Maker[T] {
	return &Maker[T]{kind: k, made: map[string]func(*param.Reader) T{}}
}

func (k *Kind[T]) reader(name string, params map[string]float64) *param.Reader {
	return param.NewReader(k.owner+": "+name, params)
}

// Maker makes plug-ins that share the memory of their NIC.
type Maker[T any] struct {
	kind *Kind[T]
	made map[string]func(*param.Reader) T // by name and parameters of the memory
}

// New makes a plug-in. Do not use it if an error is returned, for a name or parameter that is unknown or out of range.
func (m *Maker[T]) New(name string, params map[string]float64) (plugin T, err error) {
	k := m.kind
	e, ok := k.entries[name]
	if !ok {
		return plugin, fmt.Errorf("%s: no %s %q, there are %v%s", k.owner, k.what, name, k.Names(), suggest.Hint(name, k.Names()))
	}
	own, memory := maps.Clone(params), map[string]float64{}
	for _, p := range e.memory {
		if v, given := own[p]; given {
			memory[p] = v
			delete(own, p)
		}
	}
	key := fmt.Sprint(name, memory) // fmt prints maps in order
	if m.made[key] == nil {
		r := k.reader(name, memory)
		made := e.share(r)
		if err := r.Err(); err != nil {
			return plugin, err
		}
		m.made[key] = made
	}
	r := k.reader(name, own)
	plugin = m.made[key](r)
	return plugin, r.Err()
}
