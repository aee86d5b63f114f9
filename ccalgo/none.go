package ccalgo

import "roced/mono"

// Params are the named parameters of an algorithm, as the configuration has them.
type Params map[string]float64

// Factory makes a controller. Unknown or impossible parameters are errors.
type Factory func(Params) (Controller, error)

// Factories are all congestion control algorithms by name.
var Factories = map[string]Factory{
	"none":   newNone,
	"static": newStatic,
}

// None does not control anything.
type None struct{}

func newNone(p Params) (Controller, error) {
	if err := p.check("none"); err != nil {
		return nil, err
	}
	return None{}, nil
}

// OnSent implements Controller.
func (None) OnSent(mono.Time, uint32, uint32) {}

// OnAck implements Controller.
func (None) OnAck(mono.Time, Sample) {}

// OnCNP implements Controller.
func (None) OnCNP(mono.Time) {}

// OnLoss implements Controller.
func (None) OnLoss(mono.Time, uint32, bool) {}

// OnTimeout implements Controller.
func (None) OnTimeout(mono.Time) {}

// Deadline implements Controller.
func (None) Deadline() mono.Time { return mono.Never }

// Limits implements Controller.
func (None) Limits() (windowBytes, rateBps uint64) { return Unlimited, Unlimited }
