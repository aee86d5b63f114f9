package sim

import (
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/result"
)

// idleLimit is how long a run without Config.Until continues after a deadlock while no message ends. Flow control would keep
// it running.
const idleLimit = 10 * engine.Millisecond

// progress is the number of messages that have ended, and when it last rose.
type progress struct {
	ended int
	at    engine.Time
}

// findDeadlock records the first deadlock of flow control.
func (s *Simulation) findDeadlock() {
	if n := len(s.result.Flows) + s.runner.Failed(); n > s.last.ended {
		s.last = progress{n, s.clock.Now()}
	}
	if s.result.Deadlock != nil {
		return
	}
	d := s.cluster.Network().Deadlock()
	if d == nil {
		return
	}
	s.result.Deadlock = &result.Deadlock{Class: d.Class, Since: d.Since}
	for _, l := range d.Links {
		s.result.Deadlock.Links = append(s.result.Deadlock.Links, l.Name)
	}
}

// stuck reports whether a deadlock keeps the run from ending.
func (s *Simulation) stuck() bool {
	return s.cfg.Until == 0 && s.result.Deadlock != nil && s.clock.Now()-max(s.last.at, s.result.Deadlock.Since) > idleLimit
}
