package ccalgo

import (
	"cmp"

	"roced.io/roced/internal/base/registry"
	"roced.io/roced/plugin/param"
)

// Params are the parameters of an algorithm by name; package param describes their units.
type Params map[string]float64

var kind = registry.New[Controller]("ccalgo", "congestion control").
	Add("none", "no limits", own(newNone)).
	Add("static", "limits from the configuration", own(newStatic)).
	Add("dcqcn", "Zhu et al., SIGCOMM 2015", own(newDCQCN)).
	Add("timely", "Mittal et al., SIGCOMM 2015", own(newTIMELY)).
	Add("swift", "Kumar et al., SIGCOMM 2020", own(newSwift)).
	Add("dctcp", "Alizadeh et al., SIGCOMM 2010; RFC 8257", own(newDCTCP)).
	Add("mp-rdma", "Lu et al., NSDI 2018, 3.2", own(newMPRDMA)).
	Add("nscc", "Ultra Ethernet 1.0, NSCC", own(newNSCC)).
	Add("reno", "RFC 5681, RFC 6582", own(newReno)).
	Add("hpcc", "Li et al., SIGCOMM 2019", own(newHPCC))

// own makes a controller of this package, whose parameters have more types.
func own(make func(reader) Controller) func(*param.Reader) Controller {
	return func(r *param.Reader) Controller { return make(reader{r}) }
}

// Register adds an algorithm of the calling program under a name that is free. make reads the parameters from r and returns
// a controller; r reports errors of parameters. If the parameters line_rate_bps and base_rtt_us are not given, they have
// the values of the NIC's link, where known.
//
// Call it at the beginning of main or in a test's init: look-ups take no lock. It panics if the name is taken.
func Register(algorithm string, make func(r *param.Reader) Controller) {
	kind.Add(algorithm, registry.Own, make)
}

// New makes a controller of the algorithm with that name; the empty name means none. The controller is for one queue pair;
// New ignores the parameters about sharing (SplitSharing).
func New(algorithm string, p Params) (Controller, error) {
	p, _, err := SplitSharing(p)
	if err != nil {
		return nil, err
	}
	return kind.New(cmp.Or(algorithm, "none"), p)
}

// Names returns the names of the algorithms in alphabetical order.
func Names() []string { return kind.Names() }

// Source returns where the algorithm of that name is specified.
func Source(algorithm string) string { return kind.Source(algorithm) }

// Parameters returns the parameters of an algorithm in the order of reading, nil for an unknown algorithm.
func Parameters(algorithm string) []param.Parameter { return kind.Parameters(algorithm) }

// reader adds methods for rates, gains and limits to the parameter reader of all plug-ins.
type reader struct{ *param.Reader }

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
