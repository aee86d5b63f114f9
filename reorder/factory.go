package reorder

import (
	"roced.io/roced/internal/base/registry"
	"roced.io/roced/plugin/param"
)

// Params are the parameters of a tracker by name.
type Params map[string]float64

// Maker makes the trackers of one NIC, which share the memory that belongs to the NIC.
type Maker = registry.Maker[Tracker]

var kind = registry.New[Tracker]("reorder", "receiver structure").
	Add("strict", "IBTA vol.1 9.7.4.1.2", newStrict).
	Add("irn", "Mittal et al., SIGCOMM 2018, 5.3", newIRN).
	AddShared("melo", "Lu et al., APNet 2017", shareMELO).
	Add("mp-rdma", "Lu et al., NSDI 2018, 3.3", newMPRDMA).
	AddShared("eunomia", "Mahmood et al., 3.3 to 3.5", shareEunomia).
	Add("mrc", "OCP MRC 1.0", newMRC)

// Register adds a tracker of the calling program under a name that is free. make reads the parameters from r and returns a
// tracker; r reports errors of parameters. If the parameters bdp_packets, line_rate_bps and base_rtt_us are not given, they
// have the values of the NIC's link, where known.
//
// Call it at the beginning of main or in a test's init: look-ups take no lock. It panics if the name is taken.
func Register(name string, make func(r *param.Reader) Tracker) { kind.Add(name, registry.Own, make) }

// RegisterShared is Register for trackers whose memory the queue pairs of a NIC share: share reads the parameters of the
// memory, makes it, and returns the function that makes trackers.
func RegisterShared(name string, share func(r *param.Reader) func(r *param.Reader) Tracker) {
	kind.AddShared(name, registry.Own, share)
}

// New makes a tracker that shares no memory. The error names the parameter and its range.
func New(name string, p Params) (Tracker, error) { return kind.New(name, p) }

// NewMaker returns a maker for one NIC.
func NewMaker() *Maker { return kind.Maker() }

// Names returns the names of the trackers in alphabetical order.
func Names() []string { return kind.Names() }

// Source returns where the plug-in of that name is specified.
func Source(name string) string { return kind.Source(name) }

// Parameters returns the parameters of a tracker in the order of reading, nil for an unknown tracker.
func Parameters(name string) []param.Parameter { return kind.Parameters(name) }
