package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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
	// EVProfiles and CCProfiles are paths and congestion controls that programs select by their number, for mrc
	// (docs/guides/mrc.md).
	EVProfiles map[string]Part `yaml:"ev_profiles"`
	CCProfiles map[string]Part `yaml:"cc_profiles"`
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
	s := profile.Spec{Reorder: profile.Part(t.Reorder), Recovery: n.planePart(name, t.Recovery, map[string]float64{"loss_packets": planeLossPackets}),
		Paths: n.planed(name, t.Paths), Congestion: profile.Part(t.Congestion), HoldLast: t.HoldLast}
	if s.Congestion.Name != "" {
		return s
	}
	if own, err := profile.Resolve(name, profile.Spec{}); err == nil && own.Congestion.Name == "none" {
		s.Congestion = profile.Part{Name: n.Congestion.Algorithm, Params: n.Congestion.Params}
	}
	return s
}

// Makers returns the factories for the plug-ins of the NIC's queue pairs: by the name of the transport profile, of which
// the empty one is the default, and for those of mrc by the numbers of paths and congestion control.
func (n *NIC) Makers() (byName func(name string) (qp.Profile, error), byNumber func(ev, cc uint64) (qp.Profile, error)) {
	m := profile.NewMaker(profile.Link{Rate: float64(n.Link.Rate), RTT: n.Link.RTT, MTU: n.Link.MTU})
	byName = func(name string) (qp.Profile, error) {
		if name == "" {
			name = n.Profiles()[0]
		}
		return m.New(name, n.spec(name))
	}
	return byName, func(ev, cc uint64) (qp.Profile, error) {
		s := n.spec(mrc)
		t := n.Transports[mrc]
		err := errors.Join(choose(&s.Paths, "ev", t.EVProfiles, ev), choose(&s.Congestion, "cc", t.CCProfiles, cc))
		s.Paths = n.planed(mrc, Part(s.Paths))
		if err != nil {
			return qp.Profile{}, err
		}
		return m.New(mrc, s)
	}
}

// Parameters of mrc for a NIC with planes.
const (
	// planeProbeInterval is the interval of EV probes in microseconds, longer than round trips through full queues: an answer after
	// the next probe does not count. If a plane is lost, each queue pair probes all entropy values of the plane so often.
	planeProbeInterval = 100_000
	// planeLossPackets is the recovery's loss_packets, more than may be in flight. Planes overtake each other by hundreds of packets, so
	// that only probes and timers tell losses.
	planeLossPackets = 4096
)

// planed returns the path selection of a profile with the parameters for the planes of the NIC.
func (n *NIC) planed(name string, p Part) profile.Part {
	return n.planePart(name, p, map[string]float64{"ev_probe_interval_us": planeProbeInterval, "planes": float64(n.Port.Ports())})
}

// planePart returns a part of a profile, with these parameters if it is of mrc and the NIC has planes.
func (n *NIC) planePart(name string, p Part, params map[string]float64) profile.Part {
	if n.Port.Planes == nil || name != mrc || p.Name != "" && p.Name != mrc {
		return profile.Part(p)
	}
	maps.Copy(params, p.Params)
	return profile.Part{Name: p.Name, Params: params}
}

// checkPlanes checks that the paths of mrc have the planes of the NIC.
func (n *NIC) checkPlanes(paths profile.Part) error {
	if v, ok := paths.Params["planes"]; ok && n.Port.Planes != nil && v != float64(n.Port.Ports()) {
		return fmt.Errorf("planes is %v, but the port has %d planes: leave the parameter out", v, n.Port.Ports())
	}
	return nil
}

// mrc is the transport profile with numbered paths and congestion controls.
const mrc = "mrc"

// choose sets p to the part with that number; 0 leaves it.
func choose(p *profile.Part, kind string, parts map[string]Part, number uint64) error {
	if number == 0 {
		return nil
	}
	part, ok := parts[strconv.FormatUint(number, 10)]
	if !ok {
		return fmt.Errorf("%s_profile_id %d: must be one of transports.mrc.%[1]s_profiles of the NIC, %[3]v", kind, number, slices.Sorted(maps.Keys(parts)))
	}
	*p = profile.Part(part)
	return nil
}

// validateNumbered checks the numbered paths and congestion controls of a profile.
func (n *NIC) validateNumbered(f *faults, path, name string) {
	t := n.Transports[name]
	for kind, parts := range map[string]map[string]Part{"ev_profiles": t.EVProfiles, "cc_profiles": t.CCProfiles} {
		for _, number := range slices.Sorted(maps.Keys(parts)) {
			s := n.spec(name)
			part := &s.Paths
			if kind == "cc_profiles" {
				part = &s.Congestion
			}
			*part = profile.Part(parts[number])
			s.Paths = n.planed(name, Part(s.Paths))
			v, err := strconv.ParseUint(number, 10, 64)
			switch {
			case name != mrc:
				err = errors.New("only mrc has numbered profiles")
			case err != nil || v == 0 || strconv.FormatUint(v, 10) != number:
				err = errors.New("the key must be a whole number above 0")
			case part.Name == "":
				err = errors.New("the name is missing")
			default:
				err = errors.Join(n.checkPlanes(s.Paths), measurable(s.Congestion.Name), profile.Validate(name, s))
			}
			if err != nil {
				f.add(strings.Join([]string{path, kind, number}, "."), "%w", err)
			}
		}
	}
}

func (n *NIC) validateTransports(f *faults, path string) {
	check := func(at, name string) {
		s := n.spec(name)
		if err := errors.Join(n.checkPlanes(s.Paths), measurable(s.Congestion.Name), profile.Validate(name, s)); err != nil {
			f.add(at, "%w", err)
		}
	}
	check(path+".profile", n.Profile)
	for i, name := range n.MoreProfiles {
		check(fmt.Sprintf("%s.profiles.%d", path, i), name)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Transports)) {
		n.validateNumbered(f, path+".transports."+name, name)
		if !slices.Contains(n.Profiles(), name) {
			check(path+".transports."+name, name)
		}
	}
}
