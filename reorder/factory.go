package reorder

// Params are the parameters of a tracker by name.
type Params map[string]float64

// Factory makes a tracker. It returns an error if a parameter is unknown or out of range; the tracker is not usable then.
type Factory func(p Params) (Tracker, error)

// Factories maps the names of the tracking schemes to their factories.
var Factories = map[string]Factory{
	"strict":  newStrict,
	"irn":     newIRN,
	"melo":    newMELO,
	"mp-rdma": newMPRDMA,
	"eunomia": newEunomia,
}
