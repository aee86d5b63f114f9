// Package profile composes the transport profiles of a NIC. A profile is a named bundle: the packet format, the receiver's
// tracking, the sender's loss recovery and path selection, and congestion control. Parts can be combined freely, except
// for the combinations that Validate rejects with the reason.
//
// No promise: this package may change between releases.
package profile

import (
	"errors"
	"fmt"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// ErrMixture is wrapped by the errors of Validate for parts that do not go together.
var ErrMixture = errors.New("parts do not go together")

// Part is a plug-in and its parameters.
type Part struct {
	Name   string
	Params map[string]float64
}

// Spec describes a profile. A part without a name is the profile's default.
type Spec struct {
	Reorder    Part // of the receiver
	Recovery   Part // of the sender
	Paths      Part
	Congestion Part
	HoldLast   string // eunomia only: receiver, sender or sender-idle; empty means receiver
}

// profile is a profile as its paper describes it. Congestion control belongs to the NIC, except for MP-RDMA, which has its
// own.
type profile struct {
	name   string
	kind   bth.Profile
	traits qp.Traits
	spec   Spec
}

// profiles are all profiles, ordered by kind; the standard one is first.
var profiles = []profile{
	{"rc", bth.ProfileRC, qp.Traits{}, Spec{Reorder: Part{Name: "strict"}, Recovery: Part{Name: "gobackn"}}},
	{"irn", bth.ProfileIRN, qp.Traits{}, Spec{Reorder: Part{Name: "irn"}, Recovery: Part{Name: "irn"}}},
	{"melo", bth.ProfileMELO, qp.Traits{OnlyHoles: true}, Spec{Reorder: Part{Name: "melo"}, Recovery: Part{Name: "melo"}}},
	{"mp-rdma", bth.ProfileMPRDMA, qp.Traits{PerPacket: true}, Spec{Reorder: Part{Name: "mp-rdma"}, Recovery: Part{Name: "mp-rdma"}, Paths: Part{Name: "mp-rdma"}, Congestion: Part{Name: "mp-rdma"}}},
	{"eunomia", bth.ProfileEunomia, qp.Traits{Head: true, HoldLast: qp.HoldAtReceiver}, Spec{Reorder: Part{Name: "eunomia"}, Recovery: Part{Name: "eunomia"}}},
}

// Names returns the names of the profiles, the standard one first.
func Names() (names []string) {
	for _, p := range profiles {
		names = append(names, p.name)
	}
	return names
}

// NameOf returns the name of the profile with that kind of packets, "unknown" if there is none.
func NameOf(kind bth.Profile) string {
	if int(kind) < len(profiles) {
		return profiles[kind].name
	}
	return "unknown"
}

// find returns the profile of that name; the empty name is "rc".
func find(name string) (profile, error) {
	if name == "" {
		name = "rc"
	}
	if i := slices.IndexFunc(profiles, func(p profile) bool { return p.name == name }); i >= 0 {
		return profiles[i], nil
	}
	return profile{}, fmt.Errorf("no transport profile %q, there are %v", name, Names())
}

// Resolve completes s with the default parts of the profile of that name; the empty name is "rc".
func Resolve(name string, s Spec) (Spec, error) {
	d, err := find(name)
	if err != nil {
		return s, err
	}
	fill := func(p *Part, defaults ...string) {
		for _, name := range defaults {
			if p.Name == "" {
				p.Name = name
			}
		}
	}
	fill(&s.Reorder, d.spec.Reorder.Name)
	fill(&s.Recovery, d.spec.Recovery.Name)
	fill(&s.Paths, d.spec.Paths.Name, "single")
	fill(&s.Congestion, d.spec.Congestion.Name, "none")
	return s, nil
}

// holders are the values of Spec.HoldLast.
var holders = map[string]qp.HoldLast{
	"receiver": qp.HoldAtReceiver, "sender": qp.HoldAtSender, "sender-idle": qp.HoldAtSenderIdle,
}

// rule rejects a combination of parts.
type rule struct {
	wrong func(kind bth.Profile, s Spec) bool
	why   string
}

func oneOf(name string, of ...string) bool { return slices.Contains(of, name) }

// windowless reports whether congestion control has no window; it may have a rate.
func windowless(congestion Part) bool {
	c, err := control(congestion)
	if err != nil {
		return false // Validate reports it elsewhere
	}
	c.Reset(1024)
	window, _ := c.Limits()
	return window == ccalgo.Unlimited
}

var rules = []rule{
	{func(k bth.Profile, s Spec) bool {
		return k == bth.ProfileRC && (s.Reorder.Name != "strict" || s.Recovery.Name != "gobackn" || s.Paths.Name != "single")
	}, "standard packets lack the fields that this needs; use strict, gobackn and single with rc"},
	{func(k bth.Profile, s Spec) bool { return k != bth.ProfileEunomia && s.Reorder.Name == "eunomia" },
		"the bitmaps of eunomia need the Head that only packets of the profile eunomia have"},
	{func(k bth.Profile, s Spec) bool { return k != bth.ProfileEunomia && s.HoldLast != "" },
		"only eunomia holds the last packets of WRITEs"},
	{func(k bth.Profile, s Spec) bool { return k != bth.ProfileMPRDMA && s.Paths.Name == "mp-rdma" },
		"paths mp-rdma need the path field that only acknowledgements of the profile mp-rdma have"},
	{func(_ bth.Profile, s Spec) bool { return s.Paths.Name == "mp-rdma" && windowless(s.Congestion) },
		"paths mp-rdma clock packets within a window; use congestion control that has one"},
	{func(_ bth.Profile, s Spec) bool {
		_, by, err := ccalgo.SplitSharing(s.Congestion.Params)
		return err == nil && by != ccalgo.PerQueuePair && s.Paths.Name == "mp-rdma"
	}, "paths mp-rdma clock packets within a window; use congestion control that queue pairs do not share"},
	{func(_ bth.Profile, s Spec) bool { return s.Recovery.Name == "melo" && s.Reorder.Name != "melo" },
		"the recovery melo needs the holes that only the receiver melo reports"},
	{func(_ bth.Profile, s Spec) bool {
		return s.Reorder.Name == "strict" && oneOf(s.Recovery.Name, "irn", "selective", "mp-rdma")
	}, "a strict receiver drops all out-of-order packets, so selective retransmissions cannot fill a gap"},
	{func(_ bth.Profile, s Spec) bool { return s.Reorder.Name == "strict" && s.Paths.Name != "single" },
		"a strict receiver takes reordering by several paths for losses"},
}

// Validate returns an error if the profile of that name cannot be made with s.
func Validate(name string, s Spec) error {
	s, err := Resolve(name, s)
	if err != nil {
		return err
	}
	d, _ := find(name)
	for _, r := range rules {
		if r.wrong(d.kind, s) {
			return fmt.Errorf("%w: %s", ErrMixture, r.why)
		}
	}
	_, err = NewMaker(Link{}).New(name, s)
	return err
}

// Maker makes the plug-ins of the queue pairs of one NIC. They share the memory that belongs to the NIC: MELO's bits pools
// and Eunomia's blocks, and congestion control that is not one of each queue pair's own.
type Maker struct {
	link       Link
	trackers   family[reorder.Tracker, reorder.Params, reorder.Factory]
	recoveries family[retrans.Recovery, retrans.Params, retrans.Factory]
	controls   map[string]*ccalgo.Shares // by name and parameters
}

// NewMaker returns a maker for a NIC on that link.
func NewMaker(link Link) *Maker {
	m := &Maker{link: link, controls: map[string]*ccalgo.Shares{}}
	m.trackers.what, m.trackers.owner, m.trackers.factories = "receiver structure", "reorder", reorder.Factories
	m.trackers.shared, m.trackers.made = sharedTrackers, map[string]reorder.Factory{}
	m.recoveries.what, m.recoveries.owner, m.recoveries.factories = "loss recovery", "retrans", retrans.Factories
	m.recoveries.shared, m.recoveries.made = sharedRecoveries, map[string]retrans.Factory{}
	return m
}

// New makes the plug-ins of one queue pair.
func (m *Maker) New(name string, s Spec) (p qp.Profile, err error) {
	if s, err = Resolve(name, s); err != nil {
		return p, err
	}
	s = m.link.complete(s)
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	d, _ := find(name)
	p.Kind, p.Traits = d.kind, d.traits
	if s.HoldLast != "" {
		hold, ok := holders[s.HoldLast]
		if !ok {
			return p, fmt.Errorf("hold_last %q: must be receiver, sender or sender-idle", s.HoldLast)
		}
		p.Traits.HoldLast = hold
	}
	p.Tracker = made(keep, m.trackers.make, s.Reorder)
	p.Recovery = made(keep, m.recoveries.make, s.Recovery)
	p.Paths = made(keep, paths, s.Paths)
	p.Controller = made(keep, m.control, s.Congestion)
	if !p.Kind.Extended() { // READ responses are not acknowledged
		return p, err
	}
	p.ResponseTracker = made(keep, m.trackers.make, s.Reorder)
	if t, ok := p.ResponseTracker.(*reorder.IRN); ok {
		t.TrackResponses()
	}
	p.ResponseRecovery = made(keep, m.recoveries.make, s.Recovery)
	p.ResponsePaths = made(keep, paths, s.Paths)
	if s.Paths.Name == "mp-rdma" { // a clock needs a window of its own
		p.ResponseControl = made(keep, m.control, s.Congestion)
	}
	return p, err
}

func made[T any](keep func(error), factory func(Part) (T, error), p Part) T {
	v, err := factory(p)
	keep(err)
	return v
}

func paths(p Part) (path.Selector, error) { return path.New(p.Name, p.Params) }

func control(p Part) (ccalgo.Controller, error) { return ccalgo.New(p.Name, p.Params) }
