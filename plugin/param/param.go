// Package param reads named parameters: plug-ins and profiles are configured by
// them. Names end in their unit: _us microseconds, _bps bits per second, _bytes,
// _packets of the path MTU; those without are pure numbers.
package param

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Parameter describes one parameter that a plug-in reads.
type Parameter struct {
	Name     string
	Default  float64
	Min, Max float64
}

// Reader takes parameters out of what was given and keeps the first fault.
type Reader struct {
	owner string
	given map[string]float64
	known []Parameter
	err   error
}

// NewReader returns a reader of given; errors name the owner of the parameters.
func NewReader(owner string, given map[string]float64) *Reader {
	return &Reader{owner: owner, given: given}
}

// Value returns the parameter of that name, between lo and hi, or its default.
func (r *Reader) Value(name string, def, lo, hi float64) float64 {
	r.known = append(r.known, Parameter{name, def, lo, hi})
	v, ok := r.given[name]
	if !ok {
		return def
	}
	if !(v >= lo && v <= hi) { // NaN is neither
		r.fail("%s: %s is %v, it must be between %v and %v", r.owner, name, v, lo, hi)
		return def
	}
	return v
}

// Int is Value for a whole number.
func (r *Reader) Int(name string, def, lo, hi int) int {
	v := r.Value(name, float64(def), float64(lo), float64(hi))
	if v != float64(int(v)) {
		r.fail("%s: %s is %v, it must be a whole number", r.owner, name, v)
		return def
	}
	return int(v)
}

// Bool is Value for a switch: 0 is off, 1 is on.
func (r *Reader) Bool(name string, def bool) bool {
	n := 0
	if def {
		n = 1
	}
	return r.Int(name, n, 0, 1) == 1
}

// Micros is Value for a duration in microseconds, not zero.
func (r *Reader) Micros(name string, def float64) time.Duration {
	return time.Duration(r.Value(name, def, 1, 1e7) * 1e3)
}

// Parameters are those that have been read, in the order of their reading.
func (r *Reader) Parameters() []Parameter { return r.known }

// Err returns the first fault: a bad value, or a name that nobody asked for.
func (r *Reader) Err() error {
	if r.err != nil {
		return r.err
	}
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		if !slices.ContainsFunc(r.known, func(p Parameter) bool { return p.Name == name }) {
			return fmt.Errorf("%s has no parameter %q", r.owner, name)
		}
	}
	return nil
}

func (r *Reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}
