// Package catalog lists the transports and plug-ins of a program, which configurations and scenarios name, with their parameters.
//
// No promise: this package may change between releases.
package catalog

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/path"
	"roced.io/roced/plugin/param"
	"roced.io/roced/qp/profile"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// Entry is a plug-in.
type Entry struct {
	Kind       string      `json:"kind"` // such as recovery
	Name       string      `json:"name"`
	Source     string      `json:"source"` // specification or paper
	Parts      string      `json:"parts,omitempty"`
	Parameters []Parameter `json:"parameters,omitempty"`
}

// Parameter is a parameter of a plug-in. Without Default, Min and Max its values are texts.
type Parameter struct {
	Name    string   `json:"name"`
	Type    string   `json:"type"`
	Unit    string   `json:"unit,omitempty"`
	Default *float64 `json:"default,omitempty"`
	Min     *float64 `json:"min,omitempty"`
	Max     *float64 `json:"max,omitempty"`
}

// plugins are the kinds whose plug-ins read parameters.
var plugins = []struct {
	kind       string
	names      func() []string
	source     func(string) string
	parameters func(string) []param.Parameter
}{
	{"tracker", reorder.Names, reorder.Source, reorder.Parameters},
	{"recovery", retrans.Names, retrans.Source, retrans.Parameters},
	{"path", path.Names, path.Source, path.Parameters},
	{"congestion", ccalgo.Names, ccalgo.Source, ccalgo.Parameters},
}

// Entries returns the transports of the program and their parts.
func Entries() (all []Entry) {
	for _, name := range profile.Names() {
		s, err := profile.Resolve(name, profile.Spec{})
		if err != nil {
			continue
		}
		all = append(all, Entry{Kind: "transport", Name: name, Source: retrans.Source(s.Recovery.Name),
			Parts: fmt.Sprintf("tracker %s, recovery %s, path %s, congestion %s", s.Reorder.Name, s.Recovery.Name, s.Paths.Name, s.Congestion.Name)})
	}
	for _, p := range plugins {
		for _, name := range p.names() {
			all = append(all, Entry{Kind: p.kind, Name: name, Source: p.source(name), Parameters: Describe(p.parameters(name))})
		}
	}
	return all
}

// Describe returns the descriptions of parameters.
func Describe(from []param.Parameter) (all []Parameter) {
	for _, p := range from {
		all = append(all, Parameter{p.Name, p.Type.String(), p.Unit(), &p.Default, &p.Min, &p.Max})
	}
	return all
}

// Select returns the entries of a kind and a name; empty ones match all. An error lists the existing ones.
func Select(all []Entry, kind, name string) ([]Entry, error) {
	var kinds, names []string
	found := slices.DeleteFunc(slices.Clone(all), func(e Entry) bool {
		if !slices.Contains(kinds, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
		if e.Kind == kind {
			names = append(names, e.Name)
		}
		return kind != "" && e.Kind != kind || name != "" && e.Name != name
	})
	switch {
	case len(found) > 0:
		return found, nil
	case !slices.Contains(kinds, kind):
		return nil, fmt.Errorf("no kind %q, there are %s%s", kind, strings.Join(kinds, ", "), suggest.Hint(kind, kinds))
	}
	return nil, fmt.Errorf("no %s %q, there are %s%s", kind, name, strings.Join(names, ", "), suggest.Hint(name, names))
}

// Write prints entries as text.
func Write(w io.Writer, all []Entry) error {
	for i, e := range all {
		if i > 0 && all[i-1].Kind != e.Kind {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s %s: %s\n", e.Kind, e.Name, strings.Trim(e.Parts+" ("+e.Source+")", " "))
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		for _, p := range e.Parameters {
			fmt.Fprintf(t, "    %s\t%s\t%s\n", p.Name, p.Type, p.limits())
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (p Parameter) limits() string {
	if p.Default == nil {
		return ""
	}
	if p.Type == param.Switch.String() {
		return fmt.Sprintf("default %g", *p.Default)
	}
	return strings.TrimSpace(fmt.Sprintf("default %g\tfrom %g to %g\t%s", *p.Default, *p.Min, *p.Max, p.Unit))
}
