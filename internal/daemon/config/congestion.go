package config

import (
	"math"
	"time"

	"roced.io/roced/ccalgo"
)

// Congestion chooses the congestion control of a NIC's queue pairs. What is not
// named here are parameters of the algorithm (docs/reference/congestion.md).
type Congestion struct {
	Algorithm string `mapstructure:"algorithm"`

	// As notification point: the shortest time between two CNPs of a queue pair,
	// 0 to send none, and their DSCP. Nil takes the default.
	CNPInterval *time.Duration `mapstructure:"cnp_interval"`
	CNPDSCP     *int           `mapstructure:"cnp_dscp"`

	Params map[string]float64 `mapstructure:",remain"`
}

// Defaults of the notification point: N of DCQCN (Zhu et al., SIGCOMM 2015,
// section 3.1), and the class of network control (RFC 4594), which is what NICs use.
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
	if d := *c.CNPInterval; d < 0 || d > maxCNPInterval {
		f.add(path+".cnp_interval", "%v is not between 0 and %v", d, maxCNPInterval)
	}
	if d := *c.CNPDSCP; d < 0 || d > 63 {
		f.add(path+".cnp_dscp", "%d is not a number of 6 bits", d)
	}
}

// New makes the congestion control of a queue pair.
func (c *Congestion) New() (ccalgo.Controller, error) { return ccalgo.New(c.Algorithm, c.Params) }

// Interval is CNPInterval as a NIC takes it: negative for none.
func (c *Congestion) Interval() time.Duration {
	if *c.CNPInterval == 0 {
		return math.MinInt64
	}
	return *c.CNPInterval
}
