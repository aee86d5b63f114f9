// Package fleet runs one configuration on several engines: that of interfaces of this process, that of NICs of a daemon, and those of
// agents on other machines. Each has the objects of its ports. A flow between two of them is at both, and its metrics are merged.
package fleet

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"roced.io/roced/otg/engine"
)

// Dial connects to the agent with an address, HOST:PORT. The session ends with Close of the engine.
type Dial func(address string) (engine.Engine, error)

// fleet implements engine.Engine.
type fleet struct {
	dial    Dial
	mu      sync.Mutex
	cfg     engine.Config // with the raw flows of now
	members []*member     // none: nothing is configured
}

// member is an engine with its part of the configuration.
type member struct {
	engine.Engine
	part engine.Config
}

// New returns an engine without a configuration. Without dial, it has no agents.
func New(dial Dial) engine.Engine { return &fleet{dial: dial} }

// open makes the engine of a part.
func (f *fleet) open(key string) (engine.Engine, error) {
	switch {
	case key == interfaces:
		return engine.New(), nil
	case key == ownNICs:
		return engine.NewNICs(), nil
	case f.dial == nil:
		return nil, fmt.Errorf("agent %s: an agent has no agents", key)
	}
	return f.dial(key)
}

// Apply implements engine.Engine.
func (f *fleet) Apply(c engine.Config) (warnings []string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stop(); err != nil {
		return nil, err
	}
	f.cfg = c
	parts, err := split(&c)
	errs := []error{err}
	for _, p := range parts {
		e, err := f.open(p.key)
		if err == nil {
			f.members = append(f.members, &member{e, p.Config})
			var w []string
			w, err = e.Apply(p.Config)
			warnings = append(warnings, w...)
		}
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	if err == nil && c.AutoStart {
		err = f.protocols(nil, engine.Connect)
	}
	if err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return warnings, nil
}

// stop closes all engines.
func (f *fleet) stop() error {
	err := f.each(func(m *member) error { return m.Close() })
	f.members, f.cfg = nil, engine.Config{}
	return err
}

// Close implements engine.Engine.
func (f *fleet) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stop()
}

// each calls do for all engines and joins the errors.
func (f *fleet) each(do func(*member) error) error {
	var errs []error
	for _, m := range f.members {
		errs = append(errs, do(m))
	}
	return errors.Join(errs...)
}

// chosen calls do for the engines that have some of the wanted objects, with their names. No wanted names mean all.
func (f *fleet) chosen(kind string, wanted []string, have func(*engine.Config) []string, do func(m *member, names []string) error) error {
	if len(f.members) == 0 {
		return engine.ErrNothing
	}
	known := map[string]bool{}
	err := f.each(func(m *member) error {
		var mine []string
		for _, n := range have(&m.part) {
			known[n] = true
			if len(wanted) == 0 || slices.Contains(wanted, n) {
				mine = append(mine, n)
			}
		}
		if len(mine) == 0 {
			return nil
		}
		return do(m, mine)
	})
	errs := []error{err}
	for _, n := range wanted {
		if !known[n] {
			errs = append(errs, fmt.Errorf("no %s %q", kind, n))
		}
	}
	return errors.Join(errs...)
}

// names returns the names of objects.
func names[T any](all []T, name func(*T) string) (out []string) {
	for i := range all {
		out = append(out, name(&all[i]))
	}
	return out
}

func ports(c *engine.Config) []string {
	return names(c.Ports, func(p *engine.Port) string { return p.Name })
}

func peers(c *engine.Config) []string {
	return names(c.Peers, func(p *engine.Peer) string { return p.Name })
}

func rawFlows(c *engine.Config) []string {
	return names(c.RawFlows, func(r *engine.RawFlow) string { return r.Name })
}

// flows returns the names of flows at one kind of ends.
func flows(far bool) func(*engine.Config) []string {
	return func(c *engine.Config) (out []string) {
		for i := range c.Flows {
			if c.Flows[i].Far == far {
				out = append(out, c.Flows[i].Name)
			}
		}
		return out
	}
}

// transmitting returns the names of all flows whose transmitter is of the part.
func transmitting(c *engine.Config) []string {
	out := flows(false)(c)
	for _, r := range c.RawFlows {
		if r.Tx != "" {
			out = append(out, r.Name)
		}
	}
	return out
}

// counting returns the names of all other flows of the part.
func counting(c *engine.Config) []string {
	out := flows(true)(c)
	for _, r := range c.RawFlows {
		if r.Tx == "" {
			out = append(out, r.Name)
		}
	}
	return out
}

// Protocols implements engine.Engine. All queue pairs accept before the first one connects.
func (f *fleet) Protocols(wanted []string, state engine.ProtocolState) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.protocols(wanted, state)
}

func (f *fleet) protocols(wanted []string, state engine.ProtocolState) error {
	steps := []engine.ProtocolState{state}
	if state == engine.Connect && len(f.members) > 1 {
		steps = []engine.ProtocolState{engine.Accept, engine.Connect}
	}
	for _, s := range steps {
		if err := f.chosen("peer", wanted, peers, func(m *member, names []string) error { return m.Protocols(names, s) }); err != nil {
			return err
		}
	}
	return nil
}

// Traffic implements engine.Engine. Before the first flow starts, all queue pairs accept, and all receivers have reset their counters.
func (f *fleet) Traffic(wanted []string, state engine.TrafficState) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := state
	if state == engine.Start && len(f.members) > 1 {
		first = engine.Prepare
	}
	all := func(c *engine.Config) []string { return append(counting(c), transmitting(c)...) }
	err := f.chosen("flow", wanted, all, func(m *member, names []string) error { return m.Traffic(names, first) })
	if first == state || err != nil {
		return err
	}
	return errors.Join(f.traffic(wanted, state, counting), f.traffic(wanted, state, transmitting))
}

// traffic starts, stops, pauses or resumes flows: those that wanted names, or all if it is empty. have lists the flows of an engine.
func (f *fleet) traffic(wanted []string, state engine.TrafficState, have func(*engine.Config) []string) error {
	return f.each(func(m *member) error {
		var mine []string
		for _, n := range have(&m.part) {
			if len(wanted) == 0 || slices.Contains(wanted, n) {
				mine = append(mine, n)
			}
		}
		if len(mine) == 0 {
			return nil
		}
		return m.Traffic(mine, state)
	})
}

// SetLink implements engine.Engine.
func (f *fleet) SetLink(wanted []string, up bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chosen("port", wanted, ports, func(m *member, names []string) error { return m.SetLink(names, up) })
}

// captured returns the names of the ports of captures.
func captured(c *engine.Config) (out []string) {
	for _, x := range c.Captures {
		out = append(out, x.Ports...)
	}
	return out
}

// StartCapture implements engine.Engine.
func (f *fleet) StartCapture(wanted []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chosen("captured port", wanted, captured, func(m *member, names []string) error { return m.StartCapture(names) })
}

// StopCapture implements engine.Engine.
func (f *fleet) StopCapture(wanted []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chosen("captured port", wanted, captured, func(m *member, names []string) error { return m.StopCapture(names) })
}

// Captured implements engine.Engine.
func (f *fleet) Captured(port string) (b []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err = f.chosen("captured port", []string{port}, captured, func(m *member, _ []string) (err error) {
		b, err = m.Captured(port)
		return err
	})
	return b, err
}

// AddRawFlows implements engine.Engine. After an error, it removes all of them.
func (f *fleet) AddRawFlows(all []engine.RawFlow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	keys := keysOf(&f.cfg)
	err := f.each(func(m *member) error {
		var mine []engine.RawFlow
		for _, r := range all {
			if part, ok := keys.raw(r, keys.ports[m.part.Ports[0].Name]); ok {
				mine = append(mine, part)
			}
		}
		if len(mine) == 0 {
			return nil
		}
		m.part.RawFlows = append(m.part.RawFlows, mine...)
		f.cfg.RawFlows = appendNew(f.cfg.RawFlows, mine)
		return m.AddRawFlows(mine)
	})
	if err != nil {
		_ = f.removeRaws(names(all, func(r *engine.RawFlow) string { return r.Name })) // some do not exist
	}
	return err
}

// appendNew appends the flows whose names are not in the list.
func appendNew(list, more []engine.RawFlow) []engine.RawFlow {
	for _, r := range more {
		if !slices.ContainsFunc(list, func(o engine.RawFlow) bool { return o.Name == r.Name }) {
			list = append(list, r)
		}
	}
	return list
}

// UpdateRawFlows implements engine.Engine. Only transmitters have rates and frames.
func (f *fleet) UpdateRawFlows(all []engine.RawFlow) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chosen("flow", names(all, func(r *engine.RawFlow) string { return r.Name }), transmitting, func(m *member, names []string) error {
		var mine []engine.RawFlow
		for _, r := range all {
			if slices.Contains(names, r.Name) {
				r.Rx = nil // they stay
				mine = append(mine, r)
			}
		}
		return m.UpdateRawFlows(mine)
	})
}

// RemoveRawFlows implements engine.Engine.
func (f *fleet) RemoveRawFlows(gone []string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.removeRaws(gone)
}

func (f *fleet) removeRaws(gone []string) error {
	if len(gone) == 0 { // not all of them
		return nil
	}
	without := func(list []engine.RawFlow) []engine.RawFlow {
		return slices.DeleteFunc(list, func(r engine.RawFlow) bool { return slices.Contains(gone, r.Name) })
	}
	f.cfg.RawFlows = without(f.cfg.RawFlows)
	return f.chosen("flow", gone, rawFlows, func(m *member, names []string) error {
		m.part.RawFlows = without(m.part.RawFlows)
		return m.RemoveRawFlows(names)
	})
}

// Ping implements engine.Engine.
func (f *fleet) Ping(all []engine.Ping) ([]engine.Ping, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.Clone(all)
	sources := func(c *engine.Config) (out []string) {
		for _, i := range c.Interfaces {
			for _, a := range i.Addresses {
				out = append(out, a.Name)
			}
		}
		return out
	}
	return out, f.chosen("address", names(all, func(p *engine.Ping) string { return p.Source }), sources, func(m *member, names []string) error {
		var mine []engine.Ping
		var at []int
		for i, p := range all {
			if slices.Contains(names, p.Source) {
				mine, at = append(mine, p), append(at, i)
			}
		}
		answers, err := m.Ping(mine)
		for i := range answers {
			out[at[i]] = answers[i]
		}
		return err
	})
}

// Err implements engine.Engine.
func (f *fleet) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.each(func(m *member) error { return m.Err() })
}
