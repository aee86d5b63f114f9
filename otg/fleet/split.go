package fleet

import (
	"errors"
	"fmt"
	"slices"

	"roced.io/roced/otg/engine"
)

// Keys of the engines of this process. Those of agents are their addresses.
const (
	interfaces = ""
	ownNICs    = "nic"
)

// part is the configuration of one engine.
type part struct {
	key string
	engine.Config
}

// keys has the engines of objects by name.
type keys struct{ ports, addresses, pairs map[string]string }

func keysOf(c *engine.Config) keys {
	k := keys{map[string]string{}, map[string]string{}, map[string]string{}}
	for _, p := range c.Ports {
		switch {
		case p.Agent != "":
			k.ports[p.Name] = p.Agent
		case p.Kind == engine.Verbs:
			k.ports[p.Name] = ownNICs
		default:
			k.ports[p.Name] = interfaces
		}
	}
	for _, i := range c.Interfaces {
		for _, a := range i.Addresses {
			k.addresses[a.Name] = k.ports[i.Port]
		}
	}
	for _, p := range c.Peers {
		for _, q := range p.QueuePairs {
			k.pairs[q.Name] = k.addresses[p.Address]
		}
	}
	return k
}

// split returns the parts of a configuration, one for each engine that has ports. Nothing in them connects by itself.
func split(c *engine.Config) (parts []*part, err error) {
	k := keysOf(c)
	if err := k.check(c); err != nil {
		return nil, err
	}
	byKey := map[string]*part{}
	for _, p := range c.Ports {
		key := k.ports[p.Name]
		if byKey[key] == nil {
			byKey[key] = &part{key: key}
			parts = append(parts, byKey[key])
		}
		p.Agent = ""
		byKey[key].Ports = append(byKey[key].Ports, p)
	}
	for _, i := range c.Interfaces {
		at := byKey[k.ports[i.Port]]
		at.Interfaces = append(at.Interfaces, i)
	}
	remote := map[string]string{} // by queue pair
	for _, p := range c.Peers {
		p.QueuePairs = slices.Clone(p.QueuePairs)
		for i := range p.QueuePairs {
			q := &p.QueuePairs[i]
			key, ok := k.pairs[q.Remote]
			q.Elsewhere = q.Elsewhere || ok && key != k.pairs[q.Name]
			remote[q.Name] = q.Remote
		}
		at := byKey[k.addresses[p.Address]]
		at.Peers = append(at.Peers, p)
	}
	groups := map[groupKey]int{}
	for _, f := range c.Flows {
		groups[groupKey{f.Port, f.Group}]++
	}
	for _, f := range c.Flows {
		key := k.pairs[f.QueuePair]
		byKey[key].Flows = append(byKey[key].Flows, f)
		far, ok := k.pairs[remote[f.QueuePair]]
		if ok && far != key && !f.Far {
			f.LineRate /= float64(groups[groupKey{f.Port, f.Group}])
			f.QueuePair, f.Port, f.Far = remote[f.QueuePair], "", true
			byKey[far].Flows = append(byKey[far].Flows, f)
		}
	}
	for _, p := range parts {
		for _, r := range c.RawFlows {
			if mine, ok := k.raw(r, p.key); ok {
				p.RawFlows = append(p.RawFlows, mine)
			}
		}
		for _, x := range c.Captures {
			if x.Ports = k.mine(x.Ports, p.key); len(x.Ports) > 0 {
				p.Captures = append(p.Captures, x)
			}
		}
	}
	return parts, nil
}

// check returns an error for each name of an object that does not exist.
func (k keys) check(c *engine.Config) error {
	var errs []error
	want := func(known map[string]string, kind, name, of string) {
		if _, ok := known[name]; !ok {
			errs = append(errs, fmt.Errorf("%s: no %s %q", of, kind, name))
		}
	}
	for _, i := range c.Interfaces {
		want(k.ports, "port", i.Port, "interface "+i.Name)
	}
	for _, p := range c.Peers {
		want(k.addresses, "address", p.Address, "peer "+p.Name)
	}
	for _, f := range c.Flows {
		want(k.pairs, "queue pair", f.QueuePair, "flow "+f.Name)
	}
	return errors.Join(errs...)
}

// groupKey is a group of flows that share a rate.
type groupKey struct {
	port  string
	group int
}

// mine returns the ports of an engine.
func (k keys) mine(ports []string, key string) (out []string) {
	for _, p := range ports {
		if k.ports[p] == key {
			out = append(out, p)
		}
	}
	return out
}

// raw returns an engine's part of a raw flow, and reports whether it has one.
func (k keys) raw(r engine.RawFlow, key string) (engine.RawFlow, bool) {
	r.Rx = k.mine(r.Rx, key)
	if r.Tx != "" && k.ports[r.Tx] != key {
		r.Tx, r.Frame = "", nil
	}
	return r, r.Tx != "" || len(r.Rx) > 0
}
