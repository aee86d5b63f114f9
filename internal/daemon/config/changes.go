package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/internal/base/strict"
)

// Changes are the differences between two configurations. A NIC is the same if it has the same name.
type Changes struct {
	Keys           []string // that differ outside of NICs and in NICs of both, such as "log.level" and "nics[rxe_a].faults"
	Added, Removed []string // NICs
	Refused        strict.Faults
}

// Within reports whether a key below prefix differs.
func (c *Changes) Within(prefix string) bool {
	return slices.ContainsFunc(c.Keys, func(k string) bool { return strings.HasPrefix(k, prefix) })
}

// ChangesFrom compares c with the configuration of the running daemon. Changes of other keys than those that a reload can
// change are refused.
func (c *Config) ChangesFrom(old *Config) *Changes {
	ch := &Changes{Added: c.without(old), Removed: old.without(c)}
	before, after := old.byName(), c.byName()
	for _, k := range sortedNames(before, after) {
		was, is := before[k], after[k]
		name, rest, inNIC := nicOf(k)
		if was.Value == is.Value || !was.set() && !is.set() || slices.Contains(ch.Added, name) || slices.Contains(ch.Removed, name) {
			continue // a default that depends on another key changes with that key
		}
		known := is.known
		if known == "" {
			known = was.known
		}
		if reloads(known) {
			ch.Keys = append(ch.Keys, k)
			continue
		}
		at := k
		if inNIC {
			at = fmt.Sprintf("nics.%d.%s", c.index(name), rest)
		}
		ch.Refused = append(ch.Refused, c.Fault(at, "cannot change from %q to %q while the daemon runs: restart it", was.Value, is.Value))
	}
	return ch
}

// Fault returns an error about a key, with its place.
func (c *Config) Fault(key, format string, args ...any) *strict.Fault {
	return c.doc.Fault(key, format, args...)
}

// NIC returns the NIC of that name, or nil.
func (c *Config) NIC(name string) *NIC {
	if i := c.index(name); i >= 0 {
		return &c.NICs[i]
	}
	return nil
}

func (c *Config) index(name string) int {
	return slices.IndexFunc(c.NICs, func(n NIC) bool { return n.Name == name })
}

// without returns the names of NICs that o does not have.
func (c *Config) without(o *Config) (names []string) {
	for i := range c.NICs {
		if o.NIC(c.NICs[i].Name) == nil {
			names = append(names, c.NICs[i].Name)
		}
	}
	return names
}

// byName returns all values, with the names of NICs in the place of their indices.
func (c *Config) byName() map[string]Value {
	all := map[string]Value{}
	for _, v := range c.Effective() {
		key := v.Key
		if rest, ok := strings.CutPrefix(key, "nics."); ok {
			index, rest, _ := strings.Cut(rest, ".")
			i, _ := strconv.Atoi(index) // the walker's own index
			key = "nics[" + c.NICs[i].Name + "]." + rest
		}
		all[key] = v
	}
	return all
}

// nicOf splits a key of byName.
func nicOf(key string) (name, rest string, ok bool) {
	rest, ok = strings.CutPrefix(key, "nics[")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "].")
}

func sortedNames(maps ...map[string]Value) (keys []string) {
	for _, m := range maps {
		for k := range m {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}
