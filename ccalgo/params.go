package ccalgo

import (
	"fmt"
	"maps"
	"slices"

	"roced.io/roced/plugin/param"
)

// Params are the parameters of an algorithm by name; package param describes their units.
type Params map[string]float64

// Factory makes a controller. For a parameter that is unknown or out of range it returns an error with the algorithm, the
// parameter and the range.
type Factory func(Params) (Controller, error)

// Factories maps the names of the congestion control algorithms to their factories.
var Factories = map[string]Factory{
	"none":    factory("none", newNone),
	"static":  factory("static", newStatic),
	"dcqcn":   factory("dcqcn", newDCQCN),
	"timely":  factory("timely", newTIMELY),
	"swift":   factory("swift", newSwift),
	"dctcp":   factory("dctcp", newDCTCP),
	"mp-rdma": factory("mp-rdma", newMPRDMA),
	"nscc":    factory("nscc", newNSCC),
	"reno":    factory("reno", newReno),
}

// Register adds an algorithm of the calling program under a name that is free. make reads the parameters from r and returns
// a controller; r reports errors of parameters. If the parameters line_rate_bps and base_rtt_us are not given, they have
// the values of the NIC's link, where known.
//
// Call it at the beginning of main or in a test's init: look-ups take no lock. It panics if the name is taken.
func Register(algorithm string, make func(r *param.Reader) Controller) {
	if _, taken := Factories[algorithm]; taken || algorithm == "" {
		panic(fmt.Sprintf("ccalgo: the name %q is taken", algorithm))
	}
	Factories[algorithm] = factory(algorithm, func(r reader) Controller { return make(r.Reader) })
}

// makers make controllers and read their parameters. Parameters uses them to list the parameters.
var makers = map[string]func(reader) Controller{}

func factory(algorithm string, make func(reader) Controller) Factory {
	makers[algorithm] = make
	return func(p Params) (Controller, error) {
		r := newReader(algorithm, p)
		return make(r), r.Err()
	}
}

// New makes a controller of the algorithm with that name; the empty name means none. The controller is for one queue pair;
// New ignores the parameters about sharing (SplitSharing).
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

// Names returns the names of the algorithms in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(Factories)) }

// Parameters returns the parameters of an algorithm in the order of reading, nil for an unknown algorithm.
func Parameters(algorithm string) []param.Parameter {
	m, ok := makers[algorithm]
	if !ok {
		return nil
	}
	r := newReader(algorithm, nil)
	m(r)
	return r.Parameters()
}

// reader adds methods for rates, gains and limits to the parameter reader of all plug-ins.
type reader struct{ *param.Reader }

func newReader(algorithm string, given Params) reader {
	return reader{param.NewReader("ccalgo: "+algorithm, given)}
}

// rate reads bits per second.
func (r reader) rate(name string, def float64) float64 { return r.Value(name, def, 1e3, 1e13) }

// gain reads a fraction, 0 to 1.
func (r reader) gain(name string, def float64) float64 { return r.Value(name, def, 0, 1) }

// limit reads a limit; zero means Unlimited.
func (r reader) limit(name string) uint64 {
	v := r.Value(name, 0, 0, 1e18)
	if v < 1 {
		return Unlimited
	}
	return uint64(v)
}
