package config

import (
	"fmt"
	"maps"
	"slices"

	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
)

// Transport changes parts of a transport profile (docs/design/transports.md). All other parts are those of the
// profile's paper.
type Transport struct {
	Reorder  Part `yaml:"reorder"`
	Recovery Part `yaml:"recovery"`
	Paths    Part `yaml:"paths"`
	// Congestion replaces the NIC's congestion control.
	Congestion Part `yaml:"congestion"`
	// HoldLast selects the side that holds the last packets of WRITEs, for eunomia: receiver (the default), sender or
	// sender-idle.
	HoldLast string `yaml:"hold_last"`
}

// Part is a plug-in of a profile. All keys except the name are its parameters.
type Part struct {
	Name   string             `yaml:"name"`
	Params map[string]float64 `yaml:",inline"`
}

// Profiles returns the transport profiles of the NIC, the default first. Each profile has a verbs device.
func (n *NIC) Profiles() []string {
	names := []string{n.Profile}
	if n.Profile == "" {
		names[0] = profile.Names()[0]
	}
	for _, p := range n.MoreProfiles {
		if !slices.Contains(names, p) {
			names = append(names, p)
		}
	}
	return names
}

// spec returns the configured settings of a profile. The congestion control is the NIC's, unless the profile sets its
// own.
func (n *NIC) spec(name string) profile.Spec {
	t := n.Transports[name]
	s := profile.Spec{Reorder: profile.Part(t.Reorder), Recovery: profile.Part(t.Recovery), Paths: profile.Part(t.Paths),
		Congestion: profile.Part(t.Congestion), HoldLast: t.HoldLast}
	if s.Congestion.Name != "" {
		return s
	}
	if own, err := profile.Resolve(name, profile.Spec{}); err == nil && own.Congestion.Name == "none" {
		s.Congestion = profile.Part{Name: n.Congestion.Algorithm, Params: n.Congestion.Params}
	}
	return s
}

// Maker returns the factory for the plug-ins of the NIC's queue pairs. The empty name is the default profile.
func (n *NIC) Maker() func(name string) (qp.Profile, error) {
	m := profile.NewMaker(profile.Link{Rate: float64(n.Link.Rate), RTT: n.Link.RTT, MTU: n.Link.MTU})
	return func(name string) (qp.Profile, error) {
		if name == "" {
			name = n.Profiles()[0]
		}
		return m.New(name, n.spec(name))
	}
}

func (n *NIC) validateTransports(f *faults, path string) {
	check := func(at, name string) {
		if err := profile.Validate(name, n.spec(name)); err != nil {
			f.add(at, "%w", err)
		}
	}
	check(path+".profile", n.Profile)
	for i, name := range n.MoreProfiles {
		check(fmt.Sprintf("%s.profiles.%d", path, i), name)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Transports)) {
		if !slices.Contains(n.Profiles(), name) {
			check(path+".transports."+name, name)
		}
	}
}
