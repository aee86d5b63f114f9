package ccalgo

import (
	"fmt"
	"maps"
	"slices"

	"roced.io/roced/plugin/param"
)

// Params are the named parameters of an algorithm, as the configuration has them (see
// package param for their units).
type Params map[string]float64

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

// Register adds an algorithm, of a program that brings one of its own, under a name that is still
// free. make reads its parameters from r and returns a controller; what is wrong with a parameter r
// reports. Parameters that are called line_rate_bps and base_rtt_us have the values of the NIC's link,
// where these are known, unless they are given.
//
// It is called in the beginning of main, or in a test's init: the algorithms are looked up without a
// lock. It panics if the name is taken.
func Register(algorithm string, make func(r *param.Reader) Controller) {
	if _, taken := Factories[algorithm]; taken || algorithm == "" {
		panic(fmt.Sprintf("ccalgo: the name %q is taken", algorithm))
	}
	Factories[algorithm] = factory(algorithm, func(r reader) Controller { return make(r.Reader) })
}

// makers make controllers from parameters being read. They are kept beside the
// factories so that the parameters of each can be listed.
var makers = map[string]func(reader) Controller{}

func factory(algorithm string, make func(reader) Controller) Factory {
	makers[algorithm] = make
	return func(p Params) (Controller, error) {
		r := newReader(algorithm, p)
		c := make(r)
		if err := r.Err(); err != nil {
			return nil, err
		}
		return c, nil
	}
}

// New makes a controller of the algorithm that the name says; the empty name is
// none. It is one queue pair's alone, whatever p says about sharing (SplitSharing).
func New(algorithm string, p Params) (Controller, error) {
	p, _, err := SplitSharing(p)
	if err != nil {
		return nil, err
	}
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
func Parameters(algorithm string) []param.Parameter {
	m, ok := makers[algorithm]
	if !ok {
		return nil
	}
	r := newReader(algorithm, nil)
	m(r)
	return r.Parameters()
}

// reader reads parameters; beside those of all plug-ins it knows rates and shares.
type reader struct{ *param.Reader }

func newReader(algorithm string, given Params) reader {
	return reader{param.NewReader("ccalgo: "+algorithm, given)}
}

// rate is Value for bits per second.
func (r reader) rate(name string, def float64) float64 { return r.Value(name, def, 1e3, 1e13) }

// gain is Value for a share of one.
func (r reader) gain(name string, def float64) float64 { return r.Value(name, def, 0, 1) }

// limit is Value for what bounds something; zero is Unlimited.
func (r reader) limit(name string) uint64 {
	v := r.Value(name, 0, 0, 1e18)
	if v < 1 {
		return Unlimited
	}
	return uint64(v)
}
