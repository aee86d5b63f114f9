package sim

import (
	"errors"
	"fmt"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/workload"
)

// parallel divides the simulation into Config.Processors parts. It returns their engines, of which e is the first, and
// the part of each switch.
func (s *Simulation) parallel(e *engine.Engine) ([]*engine.Engine, []int, error) {
	if err := s.cfg.divisible(); err != nil {
		return nil, nil, fmt.Errorf("processors: %w", err)
	}
	parts, err := s.cfg.Graph.Divide(s.cfg.Processors)
	if err != nil {
		return nil, nil, err
	}
	engines := []*engine.Engine{e}
	for range s.cfg.Processors - 1 {
		engines = append(engines, new(engine.Engine))
	}
	s.clock = engine.NewGroup(engines, &workers{parts: len(engines)}, func(part int) { s.cluster.Begin(part) })
	s.clock.Between = func() {
		s.repeated += uint64(s.cluster.Repeated())
		s.runner.Settle()
	}
	return engines, parts, nil
}

// divisible reports why the hosts of c cannot be simulated on several processors: whatever one host does must reach
// another one by a link.
func (c *Config) divisible() error {
	switch {
	case c.Planes > 1:
		return errors.New("the ports of a NIC are in several networks")
	case c.Profile == "mrc":
		return errors.New("the packets of mrc refer to memory of their sender")
	case c.Inside:
		return errors.New("the internal state of all transports is measured together")
	}
	for i := range c.Graph.Switches {
		if c.Switch(i, 0).Balance.Name == "ksp" {
			return errors.New("ksp computes paths for all switches together")
		}
	}
	for _, a := range c.Apps {
		if _, ok := a.(*workload.Schedule); ok {
			continue
		}
		o, ok := a.(*workload.OpenLoop)
		switch {
		case !ok:
			return errors.New("an application acts on several hosts at the same instant; only messages at given or random instants are possible")
		case o.Service != workload.RC || o.Verb != workload.Write && o.Verb != workload.Read:
			return errors.New("only verbs write and read of service rc complete at one host")
		}
	}
	return nil
}
