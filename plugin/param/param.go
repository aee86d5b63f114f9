// Package param reads the named parameters of plug-ins and profiles. A name ends in its unit: _us for microseconds, _bps for
// bits per second, _bytes, or _packets of the path MTU. Names without a unit are plain numbers.
//
// The API of this package is stable: releases of one major version only add to it.
package param

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"roced.io/roced/internal/base/suggest"
)

// Parameter describes one parameter that a plug-in reads.
type Parameter struct {
	Name     string
	Default  float64
	Min, Max float64
	Type     Type
}

// Type is the type of a parameter's values.
type Type uint8

// The types. A switch is off (0) or on (1).
const (
	Number Type = iota
	Integer
	Switch
)

func (t Type) String() string { return [...]string{"number", "integer", "switch"}[t] }

// units maps the ends of names to units.
var units = []struct{ end, unit string }{
	{"_us", "us"}, {"_bps", "bit/s"}, {"_bytes", "bytes"}, {"_packets", "packets"}, {"_rtts", "round trips"}, {"_bits", "bits"}, {"_slots", "slots"},
}

// Unit returns the unit that the parameter's name ends in; empty means a plain number.
func (p Parameter) Unit() string {
	for _, u := range units {
		if strings.HasSuffix(p.Name, u.end) {
			return u.unit
		}
	}
	return ""
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
	return r.read(Parameter{name, def, lo, hi, Number})
}

func (r *Reader) read(p Parameter) float64 {
	r.known = append(r.known, p)
	name, def, lo, hi := p.Name, p.Default, p.Min, p.Max
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
	return r.whole(Parameter{name, float64(def), float64(lo), float64(hi), Integer})
}

func (r *Reader) whole(p Parameter) int {
	v := r.read(p)
	if v != float64(int(v)) {
		r.fail("%s: %s is %v, it must be a whole number", r.owner, p.Name, v)
		return int(p.Default)
	}
	return int(v)
}

// Bool reads a switch: 0 is off, 1 is on.
func (r *Reader) Bool(name string, def bool) bool {
	p := Parameter{name, 0, 0, 1, Switch}
	if def {
		p.Default = 1
	}
	return r.whole(p) == 1
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
			return r.unknown(name)
		}
	}
	return nil
}

// unknown returns the error of a parameter that nobody reads.
func (r *Reader) unknown(name string) error {
	if len(r.known) == 0 {
		return fmt.Errorf("%s has no parameter %q, it has none", r.owner, name)
	}
	names := make([]string, len(r.known))
	for i, p := range r.known {
		names[i] = p.Name
	}
	return fmt.Errorf("%s has no parameter %q, it has %s%s", r.owner, name, strings.Join(names, ", "), suggest.Hint(name, names))
}

// Fail records an error about parameters that Value and Int cannot find, such as two that do not go together.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *Reader) fail(format string, args ...any) { r.Fail(fmt.Errorf(format, args...)) }
