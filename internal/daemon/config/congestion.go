package config

import (
	"fmt"
	"math"
	"time"

	"roced.io/roced/ccalgo"
)

// Congestion selects the congestion control of a NIC's queue pairs. All keys that are not listed here are parameters
// of the algorithm (docs/reference/congestion.md).
type Congestion struct {
	Algorithm string `yaml:"algorithm"`

	// Settings of the notification point: the minimum time between two CNPs of a queue pair (0: send none), and their
	// DSCP. Nil is the default.
	CNPInterval *time.Duration `yaml:"cnp_interval"`
	CNPDSCP     *int           `yaml:"cnp_dscp"`

	Params map[string]float64 `yaml:",inline"`
}

// Defaults of the notification point. The interval is N of DCQCN (Zhu et al., SIGCOMM 2015, section 3.1). The DSCP is
// the class of network control (RFC 4594), as in hardware NICs.
const (
	defaultCNPInterval = 50 * time.Microsecond
	defaultCNPDSCP     = 48
	maxCNPInterval     = time.Second
)

func (c *Congestion) setDefaults() {
	setDefault(&c.Algorithm, "none")
	if c.CNPInterval == nil {
		d := defaultCNPInterval
		c.CNPInterval = &d
	}
	if c.CNPDSCP == nil {
		d := defaultCNPDSCP
		c.CNPDSCP = &d
	}
}

func (c *Congestion) validate(f *faults, path string) {
	if _, err := c.New(); err != nil {
		f.add(path, "%w", err)
	}
	if err := measurable(c.Algorithm); err != nil {
		f.add(path+".algorithm", "%w", err)
	}
	if d := *c.CNPInterval; d < 0 || d > maxCNPInterval {
		f.add(path+".cnp_interval", "%v is not between 0 and %v", d, maxCNPInterval)
	}
	if d := *c.CNPDSCP; d < 0 || d > 63 {
		f.add(path+".cnp_dscp", "%d is not a number of 6 bits", d)
	}
}

// measurable returns an error for congestion control whose signals ports lack.
func measurable(algorithm string) error {
	if !ccalgo.NeedsTelemetry(algorithm) {
		return nil
	}
	return fmt.Errorf("%s needs the telemetry of switches, which only rocesim has; use another one, such as dcqcn", algorithm)
}

// New returns the congestion control of a new queue pair.
func (c *Congestion) New() (ccalgo.Controller, error) { return ccalgo.New(c.Algorithm, c.Params) }

// Interval returns CNPInterval in the NIC's form: negative means no CNPs.
func (c *Congestion) Interval() time.Duration {
	if *c.CNPInterval == 0 {
		return math.MinInt64
	}
	return *c.CNPInterval
}
