package ccalgo

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Params are the named parameters of an algorithm, as the configuration has
// them. Names end in their unit: _us microseconds, _bps bits per second, _bytes,
// _packets of the path MTU; those without are pure numbers.
type Params map[string]float64

// Parameter describes one parameter of an algorithm.
type Parameter struct {
	Name     string
	Default  float64
	Min, Max float64
}

// Factory makes a controller. Unknown or impossible parameters are errors that
// name the algorithm, the parameter and what is possible.
type Factory func(Params) (Controller, error)

// Factories are all congestion control algorithms by name.
var Factories = map[string]Factory{
	"none":    factory("none", newNone),
	"static":  factory("static", newStatic),
	"dcqcn":   factory("dcqcn", newDCQCN),
	"timely":  factory("timely", newTIMELY),
	"swift":   factory("swift", newSwift),
	"dctcp":   factory("dctcp", newDCTCP),
	"mp-rdma": factory("mp-rdma", newMPRDMA),
}

// makers make controllers from parameters being read. They are kept beside the
// factories so that the parameters of each can be listed.
var makers = map[string]func(*reader) Controller{}

func factory(algorithm string, make func(*reader) Controller) Factory {
	makers[algorithm] = make
	return func(p Params) (Controller, error) {
		r := reader{algorithm: algorithm, given: p}
		c := make(&r)
		if err := r.check(); err != nil {
			return nil, err
		}
		return c, nil
	}
}

// New makes a controller of the algorithm that the name says; the empty name is
// none.
func New(algorithm string, p Params) (Controller, error) {
	if algorithm == "" {
		algorithm = "none"
	}
	f, ok := Factories[algorithm]
	if !ok {
		return nil, fmt.Errorf("ccalgo: no congestion control %q, there are %v", algorithm, Names())
	}
	return f(p)
}

// Names are the algorithms in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(Factories)) }

// Parameters lists the parameters of an algorithm in the order of their reading.
func Parameters(algorithm string) []Parameter {
	m, ok := makers[algorithm]
	if !ok {
		return nil
	}
	r := reader{algorithm: algorithm}
	m(&r)
	return r.known
}

// reader takes parameters out of what was given and collects what is wrong.
type reader struct {
	algorithm string
	given     Params
	known     []Parameter
	err       error
}

// value returns the parameter of that name, between lo and hi, or its default.
func (r *reader) value(name string, def, lo, hi float64) float64 {
	r.known = append(r.known, Parameter{name, def, lo, hi})
	v, ok := r.given[name]
	if !ok {
		return def
	}
	if !(v >= lo && v <= hi) { // NaN is neither
		if r.err == nil {
			r.err = fmt.Errorf("ccalgo: %s: %s is %v, it must be between %v and %v", r.algorithm, name, v, lo, hi)
		}
		return def
	}
	return v
}

// micros is value for a duration in microseconds, not zero.
func (r *reader) micros(name string, def float64) time.Duration {
	return time.Duration(r.value(name, def, 1, 1e7) * 1e3)
}

// rate is value for bits per second.
func (r *reader) rate(name string, def float64) float64 { return r.value(name, def, 1e3, 1e13) }

// gain is value for a share of one.
func (r *reader) gain(name string, def float64) float64 { return r.value(name, def, 0, 1) }

// limit is value for what bounds something; zero is Unlimited.
func (r *reader) limit(name string) uint64 {
	v := r.value(name, 0, 0, 1e18)
	if v < 1 {
		return Unlimited
	}
	return uint64(v)
}

// check returns the first fault: a bad value, or a name that nobody asked for.
func (r *reader) check() error {
	if r.err != nil {
		return r.err
	}
	for _, name := range slices.Sorted(maps.Keys(r.given)) {
		if !slices.ContainsFunc(r.known, func(p Parameter) bool { return p.Name == name }) {
			return fmt.Errorf("ccalgo: %s has no parameter %q", r.algorithm, name)
		}
	}
	return nil
}
