// Package profile has the transport profiles of a NIC: named bundles of what packets
// look like, how the receiver tracks them, how the sender recovers losses and chooses
// paths, and congestion control. Parts can be mixed; Validate says which mixtures make
// no sense, and why.
package profile

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// ErrMixture says that parts do not go together.
var ErrMixture = errors.New("parts do not go together")

// Part is a plug-in and its parameters.
type Part struct {
	Name   string
	Params map[string]float64
}

// Spec describes a profile. Parts without a name are those of the profile's default.
type Spec struct {
	Reorder    Part // of the receiver
	Recovery   Part // of the sender
	Paths      Part
	Congestion Part
	HoldLast   string // eunomia only: one of receiver, sender, sender-idle; empty: receiver
}

// defaults are the profiles as their papers have them. Congestion control is the NIC's,
// but for MP-RDMA, which has its own.
var defaults = map[string]struct {
	kind   bth.Profile
	traits qp.Traits
	spec   Spec
}{
	"rc":      {bth.ProfileRC, qp.Traits{}, Spec{Reorder: Part{Name: "strict"}, Recovery: Part{Name: "gobackn"}}},
	"irn":     {bth.ProfileIRN, qp.Traits{}, Spec{Reorder: Part{Name: "irn"}, Recovery: Part{Name: "irn"}}},
	"melo":    {bth.ProfileMELO, qp.Traits{OnlyHoles: true}, Spec{Reorder: Part{Name: "melo"}, Recovery: Part{Name: "melo"}}},
	"mp-rdma": {bth.ProfileMPRDMA, qp.Traits{PerPacket: true}, Spec{Reorder: Part{Name: "mp-rdma"}, Recovery: Part{Name: "mp-rdma"}, Paths: Part{Name: "mp-rdma"}, Congestion: Part{Name: "mp-rdma"}}},
	"eunomia": {bth.ProfileEunomia, qp.Traits{Head: true, HoldLast: qp.HoldAtReceiver}, Spec{Reorder: Part{Name: "eunomia"}, Recovery: Part{Name: "eunomia"}}},
}

// Names are the profiles, the standard one first.
func Names() []string {
	names := slices.Sorted(maps.Keys(defaults))
	slices.SortStableFunc(names, func(a, b string) int { return int(defaults[a].kind) - int(defaults[b].kind) })
	return names
}

// Resolve fills the parts that s leaves open with those of the profile of that name; the
// empty name is "rc".
func Resolve(name string, s Spec) (Spec, error) {
	d, ok := defaults[orRC(name)]
	if !ok {
		return s, fmt.Errorf("no transport profile %q, there are %v", name, Names())
	}
	fill := func(p *Part, def Part, last string) {
		if p.Name == "" {
			p.Name = def.Name
		}
		if p.Name == "" {
			p.Name = last
		}
	}
	fill(&s.Reorder, d.spec.Reorder, "")
	fill(&s.Recovery, d.spec.Recovery, "")
	fill(&s.Paths, d.spec.Paths, "single")
	fill(&s.Congestion, d.spec.Congestion, "none")
	return s, nil
}

func orRC(name string) string {
	if name == "" {
		return "rc"
	}
	return name
}

// holders are the values of Spec.HoldLast.
var holders = map[string]qp.HoldLast{
	"receiver": qp.HoldAtReceiver, "sender": qp.HoldAtSender, "sender-idle": qp.HoldAtSenderIdle,
}

// rule refuses a mixture.
type rule struct {
	wrong func(kind bth.Profile, s Spec) bool
	why   string
}

func oneOf(name string, of ...string) bool { return slices.Contains(of, name) }

// windowless reports whether congestion control has no window, but perhaps a rate.
func windowless(congestion Part) bool {
	c, err := control(congestion)
	if err != nil {
		return false // which is said elsewhere
	}
	c.Reset(1024)
	window, _ := c.Limits()
	return window == ccalgo.Unlimited
}

var rules = []rule{
	{func(k bth.Profile, s Spec) bool {
		return k == bth.ProfileRC && (s.Reorder.Name != "strict" || s.Recovery.Name != "gobackn" || s.Paths.Name != "single")
	}, "standard packets cannot say what this needs: rc is strict, gobackn and single"},
	{func(k bth.Profile, s Spec) bool { return k != bth.ProfileEunomia && s.Reorder.Name == "eunomia" },
		"the bitmaps of eunomia need the Head that only packets of the profile eunomia have"},
	{func(k bth.Profile, s Spec) bool { return k != bth.ProfileEunomia && s.HoldLast != "" },
		"only eunomia holds the last packets of WRITEs"},
	{func(k bth.Profile, s Spec) bool { return k != bth.ProfileMPRDMA && s.Paths.Name == "mp-rdma" },
		"paths that acknowledgements clock need the path that only those of the profile mp-rdma echo"},
	{func(_ bth.Profile, s Spec) bool { return s.Paths.Name == "mp-rdma" && windowless(s.Congestion) },
		"acknowledgements clock packets within a window: mp-rdma's paths need congestion control that has one"},
	{func(_ bth.Profile, s Spec) bool {
		_, by, err := ccalgo.SplitSharing(s.Congestion.Params)
		return err == nil && by != ccalgo.PerQueuePair && s.Paths.Name == "mp-rdma"
	}, "acknowledgements clock packets within a window: mp-rdma's paths need one of each queue pair's own"},
	{func(_ bth.Profile, s Spec) bool { return s.Recovery.Name == "melo" && s.Reorder.Name != "melo" },
		"the recovery melo rebuilds what is missing from the holes that only the receiver melo tells of"},
	{func(_ bth.Profile, s Spec) bool {
		return s.Reorder.Name == "strict" && oneOf(s.Recovery.Name, "irn", "selective", "mp-rdma")
	}, "a strict receiver keeps nothing that comes out of order: what it is sent selectively it drops"},
	{func(_ bth.Profile, s Spec) bool { return s.Reorder.Name == "strict" && s.Paths.Name != "single" },
		"a strict receiver takes every packet by another path for a loss"},
}

// Validate reports whether the profile of that name, with s, can be made.
func Validate(name string, s Spec) error {
	s, err := Resolve(name, s)
	if err != nil {
		return err
	}
	kind := defaults[orRC(name)].kind
	for _, r := range rules {
		if r.wrong(kind, s) {
			return fmt.Errorf("%w: %s", ErrMixture, r.why)
		}
	}
	_, err = NewMaker(Link{}).New(name, s)
	return err
}

// Maker makes the plug-ins of the queue pairs of one NIC, which share the memory of
// receiver structures that are the NIC's: MELO's bits pools and Eunomia's blocks; and congestion control, if
// that is not each one's own.
type Maker struct {
	link Link
	// By name and parameters of the memory.
	trackers   map[string]reorder.Factory
	recoveries map[string]retrans.Factory
	controls   map[string]*ccalgo.Shares
}

// NewMaker returns a maker for a NIC on that link.
func NewMaker(link Link) *Maker {
	return &Maker{link: link, trackers: map[string]reorder.Factory{}, recoveries: map[string]retrans.Factory{}, controls: map[string]*ccalgo.Shares{}}
}

// New makes the plug-ins of one queue pair.
func (m *Maker) New(name string, s Spec) (p qp.Profile, err error) {
	if s, err = Resolve(name, s); err != nil {
		return p, err
	}
	s.Reorder, s.Recovery = m.link.bounded(s.Reorder), m.link.recovery(s.Recovery)
	s.Paths, s.Congestion = m.link.paths(s.Paths), m.link.control(s.Congestion)
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	d := defaults[orRC(name)]
	p.Kind, p.Traits = d.kind, d.traits
	if s.HoldLast != "" {
		hold, ok := holders[s.HoldLast]
		if !ok {
			return p, fmt.Errorf("last packets can be held by receiver, sender or sender-idle, not %q", s.HoldLast)
		}
		p.Traits.HoldLast = hold
	}
	p.Tracker = made(keep, m.tracker, s.Reorder)
	p.Recovery = made(keep, m.recovery, s.Recovery)
	p.Paths = made(keep, paths, s.Paths)
	p.Controller = made(keep, m.control, s.Congestion)
	if !p.Kind.Extended() { // READ responses are not acknowledged
		return p, err
	}
	p.ResponseTracker = made(keep, m.tracker, s.Reorder)
	if t, ok := p.ResponseTracker.(*reorder.IRN); ok {
		t.TrackResponses()
	}
	p.ResponseRecovery = made(keep, m.recovery, s.Recovery)
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
