// Package param reads the named parameters of plug-ins and profiles. A name ends in its unit: _us for microseconds, _bps for
// bits per second, _bytes, or _packets of the path MTU. Names without a unit are plain numbers.
//
// The API of this package is stable: releases of one major version only add to it.
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

// Reader reads the given parameters and keeps the first error.
type Reader struct {
	owner string
	given map[string]float64
	known []Parameter
	err   error
}

// NewReader returns a reader of given, which it does not change. Errors begin with the owner of the parameters.
func NewReader(owner string, given map[string]float64) *Reader {
	return &Reader{owner: owner, given: given}
}

// Value returns the parameter with that name, or def if it is not given. A value below lo or above hi is an error.
func (r *Reader) Value(name string, def, lo, hi float64) float64 {
	r.known = append(r.known, Parameter{name, def, lo, hi})
	v, ok := r.given[name]
	if !ok {
		return def
	}
	if !(v >= lo && v <= hi) { // also rejects NaN
		r.fail("%s: %s is %v, it must be between %v and %v", r.owner, name, v, lo, hi)
		return def
	}
	return v
}

// Int reads a whole number; see Value.
func (r *Reader) Int(name string, def, lo, hi int) int {
	v := r.Value(name, float64(def), float64(lo), float64(hi))
	if v != float64(int(v)) {
		r.fail("%s: %s is %v, it must be a whole number", r.owner, name, v)
		return def
	}
	return int(v)
}

// Bool reads a switch: 0 is off, 1 is on.
func (r *Reader) Bool(name string, def bool) bool {
	n := 0
	if def {
		n = 1
	}
	return r.Int(name, n, 0, 1) == 1
}

// Micros reads a duration in microseconds, 1 us to 10 s.
func (r *Reader) Micros(name string, def float64) time.Duration {
	return time.Duration(r.Value(name, def, 1, 1e7) * 1e3)
}

// Parameters returns the parameters that have been read, in the order of reading.
func (r *Reader) Parameters() []Parameter { return r.known }

// Err returns the first error: a bad value, or a given parameter that was not read. Call it after the last read.
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

// Fail records an error about parameters that Value and Int cannot find, such as two that do not go together.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *Reader) fail(format string, args ...any) { r.Fail(fmt.Errorf(format, args...)) }
