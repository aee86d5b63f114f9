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
	Add("gobackn", newGoBackN).
	Add("irn", newIRN).
	AddShared("melo", shareMELO).
	Add("selective", newSelective).
	Add("mp-rdma", newMPRDMA).
	Add("eunomia", newEunomia).
	Add("mrc", newMRC)

// Register adds a recovery of the calling program; see reorder.Register.
func Register(name string, make func(r *param.Reader) Recovery) { kind.Add(name, make) }

// RegisterShared adds recoveries whose memory the queue pairs of a NIC share; see reorder.RegisterShared.
func RegisterShared(name string, share func(r *param.Reader) func(r *param.Reader) Recovery) {
	kind.AddShared(name, share)
}

// New makes a recovery that shares no memory. The error names the parameter and its range.
func New(name string, p Params) (Recovery, error) { return kind.New(name, p) }

// NewMaker returns a maker for one NIC.
func NewMaker() *Maker { return kind.Maker() }

// Names returns the names of the recoveries in alphabetical order.
func Names() []string { return kind.Names() }

// Parameters returns the parameters of a recovery in the order of reading, nil for an unknown recovery.
func Parameters(name string) []param.Parameter { return kind.Parameters(name) }
