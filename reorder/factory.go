package reorder

// Params are the parameters of a tracker by name.
type Params map[string]float64

// Factory makes a tracker; unknown parameters are an error.
type Factory func(p Params) (Tracker, error)

// Factories are all trackers by name.
var Factories = map[string]Factory{
	"strict":  newStrict,
	"irn":     newIRN,
	"melo":    newMELO,
	"mp-rdma": newMPRDMA,
	"eunomia": newEunomia,
}
