package retrans

import (
	"roced.io/roced/internal/base/registry"
	"roced.io/roced/plugin/param"
)

// Params are the parameters of a recovery by name.
type Params map[string]float64

// Maker makes the recoveries of one NIC, which share the memory that belongs to the NIC.
type Maker = registry.Maker[Recovery]

var kind = registry.New[Recovery]("retrans", "loss recovery").
	Add("gobackn", "IBTA vol.1 9.7.5.2.8", newGoBackN).
	Add("irn", "Mittal et al., SIGCOMM 2018, 3", newIRN).
	AddShared("melo", "Lu et al., APNet 2017", shareMELO).
	Add("selective", "roced: selective retransmission for any tracker", newSelective).
	Add("mp-rdma", "Lu et al., NSDI 2018, 3.2", newMPRDMA).
	Add("eunomia", "Mahmood et al., 3.2.2", newEunomia).
	Add("mrc", "OCP MRC 1.0", newMRC)

// Register adds a recovery of the calling program; see reorder.Register.
func Register(name string, make func(r *param.Reader) Recovery) { kind.Add(name, registry.Own, make) }

// RegisterShared adds recoveries whose memory the queue pairs of a NIC share; see reorder.RegisterShared.
func RegisterShared(name string, share func(r *param.Reader) func(r *param.Reader) Recovery) {
	kind.AddShared(name, registry.Own, share)
}

// New makes a recovery that shares no memory. The error names the parameter and its range.
func New(name string, p Params) (Recovery, error) { return kind.New(name, p) }

// NewMaker returns a maker for one NIC.
func NewMaker() *Maker { return kind.Maker() }

// Names returns the names of the recoveries in alphabetical order.
func Names() []string { return kind.Names() }

// Source returns where the plug-in of that name is specified.
func Source(name string) string { return kind.Source(name) }

// Parameters returns the parameters of a recovery in the order of reading, nil for an unknown recovery.
func Parameters(name string) []param.Parameter { return kind.Parameters(name) }
