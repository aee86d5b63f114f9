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
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/path"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// ErrMixture is wrapped by the errors of Validate for parts that do not go together.
var ErrMixture = errors.New("incompatible parts")

// Part is a plug-in and its parameters.
type Part struct {
	Name   string
	Params map[string]float64 `yaml:",inline"`
}

// Spec describes a profile. A part without a name is the profile's default.
type Spec struct {
	Reorder    Part // of the receiver
	Recovery   Part // of the sender
	Paths      Part
	Congestion Part
	HoldLast   string `yaml:"hold_last"` // eunomia only: receiver, sender or sender-idle; empty means receiver, or sender if Exact
	// CNPWithNAK makes the responder of rc and irn send a CNP with each NAK of an out-of-order arrival, as conweave-ns3 does; see
	// qp.Traits. The default is that of the specifications: only marked packets cause CNPs.
	CNPWithNAK bool `yaml:"cnp_with_nak"`
	// Exact removes the departures of the plug-ins from their papers (exact.go). Parameters that are given prevail.
	Exact bool
}

// Transport is a transport profile: the kind of its packets and its default parts. Register adds one of the calling program.
type Transport struct {
	Name string
	// Kind marks its packets on the wire. Built-in kinds are below bth.FirstOwnProfile, those of other programs from there on.
	Kind   bth.Profile
	Traits qp.Traits
	// Parts are the default parts. Without Paths, packets take one path; without Congestion, the NIC's is used.
	Parts Spec
	// Fields are the bytes of its own in the extension header; nil: none.
	Fields *qp.Fields
	// Rules reject combinations of parts, of this profile and of others.
	Rules []Rule
}

// Rule rejects a combination of parts.
type Rule struct {
	// Wrong reports whether the parts s, which all have names, do not go together in the profile t.
	Wrong func(t *Transport, s Spec) bool
	Why   string // and what to do
}

// profiles are all profiles: the built-in ones ordered by kind, the standard one first, then registered ones.
var profiles = []Transport{
	{Name: "rc", Kind: bth.ProfileRC, Parts: Spec{Reorder: Part{Name: "strict"}, Recovery: Part{Name: "gobackn"}}, Rules: rules},
	{Name: "irn", Kind: bth.ProfileIRN, Parts: Spec{Reorder: Part{Name: "irn"}, Recovery: Part{Name: "irn"}}},
	{Name: "melo", Kind: bth.ProfileMELO, Traits: qp.Traits{OnlyHoles: true}, Parts: Spec{Reorder: Part{Name: "melo"}, Recovery: Part{Name: "melo"}}},
	{Name: "mp-rdma", Kind: bth.ProfileMPRDMA, Traits: qp.Traits{PerPacket: true},
		Parts: Spec{Reorder: Part{Name: "mp-rdma"}, Recovery: Part{Name: "mp-rdma"}, Paths: Part{Name: "mp-rdma"}, Congestion: Part{Name: "mp-rdma"}}},
	{Name: "eunomia", Kind: bth.ProfileEunomia, Traits: qp.Traits{Head: true, HoldLast: qp.HoldAtReceiver},
		Parts: Spec{Reorder: Part{Name: "eunomia"}, Recovery: Part{Name: "eunomia"}}},
	{Name: "mrc", Kind: bth.ProfileMRC, Parts: Spec{Reorder: Part{Name: "mrc"}, Recovery: Part{Name: "mrc"}, Paths: Part{Name: "mrc"}}},
}

// Register adds a profile of the calling program. Register its parts before. Both ends of a connection need it. Call it at the
// beginning of main or in a test's init: look-ups take no lock. It panics if t cannot work: the name or the kind is taken, a
// default part is unknown or does not suit the others, or Fields have no layout.
func Register(t Transport) {
	switch {
	case t.Name == "" || slices.Contains(Names(), t.Name):
		panic(fmt.Sprintf("profile: the name %q is taken", t.Name))
	case t.Kind < bth.FirstOwnProfile || NameOf(t.Kind) != unknown:
		panic(fmt.Sprintf("profile: %s: the kind %d is taken; the free ones begin at %d", t.Name, t.Kind, bth.FirstOwnProfile))
	}
	if err := t.Fields.Check(); err != nil {
		panic(fmt.Sprintf("profile: %s: %v", t.Name, err))
	}
	profiles = append(profiles, t)
	if err := Validate(t.Name, Spec{}); err != nil {
		profiles = profiles[:len(profiles)-1]
		panic(fmt.Sprintf("profile: %s: %v", t.Name, err))
	}
}

// Names returns the names of the profiles, the standard one first.
func Names() (names []string) {
	for i := range profiles {
		names = append(names, profiles[i].Name)
	}
	return names
}

// Complete returns the names of the profiles whose queue pairs of RC execute every operation, the standard one first.
func Complete() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return !Supports(name, qp.WRRead) })
}

// Supports reports whether RC queue pairs with the named profile execute op. MRC has WRITEs only.
func Supports(name string, op qp.WROpcode) bool {
	return name != profiles[bth.ProfileMRC].Name || op == qp.WRWrite || op == qp.WRWriteImm
}

const unknown = "unknown"

// NameOf returns the name of the profile with that kind of packets, "unknown" if there is none.
func NameOf(kind bth.Profile) string {
	if t := byKind(kind); t != nil {
		return t.Name
	}
	return unknown
}

// FieldsOf returns the bytes of their own of packets with that kind, nil if they have none or the kind is unknown.
func FieldsOf(kind bth.Profile) *qp.Fields {
	if t := byKind(kind); t != nil {
		return t.Fields
	}
	return nil
}

func byKind(kind bth.Profile) *Transport {
	for i := range profiles {
		if profiles[i].Kind == kind {
			return &profiles[i]
		}
	}
	return nil
}

// find returns the profile of that name; the empty name is "rc".
func find(name string) (*Transport, error) {
	if name == "" {
		name = "rc"
	}
	if i := slices.IndexFunc(profiles, func(t Transport) bool { return t.Name == name }); i >= 0 {
		return &profiles[i], nil
	}
	return nil, fmt.Errorf("no transport profile %q, there are %v%s", name, Names(), suggest.Hint(name, Names()))
}

// Resolve completes s with the default parts of the profile of that name; the empty name is "rc".
func Resolve(name string, s Spec) (Spec, error) {
	t, err := find(name)
	if err != nil {
		return s, err
	}
	fill := func(p *Part, defaults ...Part) {
		for _, d := range defaults {
			if p.Name == "" {
				*p = Part{Name: d.Name, Params: p.Params}.with(d.Params)
			}
		}
	}
	fill(&s.Reorder, t.Parts.Reorder)
	fill(&s.Recovery, t.Parts.Recovery)
	fill(&s.Paths, t.Parts.Paths, Part{Name: "single"})
	fill(&s.Congestion, t.Parts.Congestion, Part{Name: "none"})
	return s, nil
}

// holders are the values of Spec.HoldLast.
var holders = map[string]qp.HoldLast{
	"receiver": qp.HoldAtReceiver, "sender": qp.HoldAtSender, "sender-idle": qp.HoldAtSenderIdle,
}

func oneOf(name string, of ...string) bool { return slices.Contains(of, name) }

// windowless reports whether congestion control has no window; it may have a rate.
func windowless(congestion Part) bool {
	c, err := ccalgo.New(congestion.Name, congestion.Params)
	if err != nil {
		return false // Validate reports it elsewhere
	}
	c.Reset(1024)
	window, _ := c.Limits()
	return window == ccalgo.Unlimited
}

// clocked reports whether acknowledgements clock packets out to the paths.
func clocked(p Part) bool {
	sel, err := path.New(p.Name, p.Params)
	_, ok := sel.(path.Syncer)
	return err == nil && ok
}

// rules are those of the built-in parts.
var rules = []Rule{
	{func(t *Transport, s Spec) bool {
		return t.Kind == bth.ProfileRC && (s.Reorder.Name != "strict" || s.Recovery.Name != "gobackn" || s.Paths.Name != "single")
	}, "standard packets lack the fields that this needs; use strict, gobackn and single with rc"},
	{func(t *Transport, s Spec) bool {
		return (t.Kind == bth.ProfileMRC) != (s.Reorder.Name == "mrc") || (t.Kind == bth.ProfileMRC) != (s.Recovery.Name == "mrc")
	}, "only the receiver and the recovery mrc suit the packets of the profile mrc, and they suit no others"},
	{func(t *Transport, s Spec) bool { return t.Kind != bth.ProfileMRC && s.Paths.Name == "mrc" },
		"paths mrc need the path feedback that only acknowledgements of the profile mrc have"},
	{func(t *Transport, s Spec) bool {
		return ccalgo.NeedsTelemetry(s.Congestion.Name) && (t.Kind == bth.ProfileMRC || s.Paths.Name != "single")
	}, "congestion control by telemetry compares packets of one path; use the paths single"},
	{func(_ *Transport, s Spec) bool {
		_, by, err := ccalgo.SplitSharing(s.Congestion.Params)
		return err == nil && by != ccalgo.PerQueuePair && ccalgo.NeedsTelemetry(s.Congestion.Name)
	}, "congestion control by telemetry compares packets of one path; use one control for each queue pair"},
	{func(t *Transport, s Spec) bool { return t.Kind == bth.ProfileMRC && s.Congestion.Name == "dcqcn" },
		"receivers of mrc send no CNPs, which dcqcn needs"},
	{func(t *Transport, s Spec) bool {
		return s.CNPWithNAK && t.Kind != bth.ProfileRC && t.Kind != bth.ProfileIRN
	},
		"only receivers of rc and irn answer each gap with a NAK, which cnp_with_nak needs"},
	{func(t *Transport, s Spec) bool { return !t.Traits.Head && s.Reorder.Name == "eunomia" },
		"the bitmaps of eunomia need the Head that only packets of the profile eunomia have"},
	{func(t *Transport, s Spec) bool { return t.Traits.HoldLast == qp.HoldNowhere && s.HoldLast != "" },
		"only eunomia holds the last packets of WRITEs"},
	{func(t *Transport, s Spec) bool { return !t.Traits.PerPacket && s.Paths.Name == "mp-rdma" },
		"paths mp-rdma need the path field that only acknowledgements of the profile mp-rdma have"},
	{func(_ *Transport, s Spec) bool { return clocked(s.Paths) && windowless(s.Congestion) },
		"these paths clock packets within a window; use congestion control that has one"},
	{func(_ *Transport, s Spec) bool {
		_, by, err := ccalgo.SplitSharing(s.Congestion.Params)
		return err == nil && by != ccalgo.PerQueuePair && clocked(s.Paths)
	}, "these paths clock packets within a window; use congestion control that queue pairs do not share"},
	{func(_ *Transport, s Spec) bool { return s.Recovery.Name == "melo" && s.Reorder.Name != "melo" },
		"the recovery melo needs the holes that only the receiver melo reports"},
	{func(_ *Transport, s Spec) bool {
		return s.Reorder.Name == "strict" && oneOf(s.Recovery.Name, "irn", "selective", "mp-rdma")
	}, "a strict receiver drops all out-of-order packets, so selective retransmissions cannot fill a gap"},
	{func(_ *Transport, s Spec) bool { return s.Reorder.Name == "strict" && s.Paths.Name != "single" },
		"a strict receiver takes reordering by several paths for losses"},
}

// Validate returns an error if the profile of that name cannot be made with s.
func Validate(name string, s Spec) error {
	s, err := Resolve(name, s)
	if err != nil {
		return err
	}
	if _, err := NewMaker(Link{}).New(name, s); err != nil {
		return err
	}
	t, _ := find(name)
	for i := range profiles {
		for _, r := range profiles[i].Rules {
			if r.Wrong(t, s) {
				return fmt.Errorf("%w: %s", ErrMixture, r.Why)
			}
		}
	}
	return nil
}

// Maker makes the plug-ins of the queue pairs of one NIC. They share the memory that belongs to the NIC, such as MELO's bits
// pools and Eunomia's blocks, and congestion control that is not one of each queue pair's own.
type Maker struct {
	link       Link
	trackers   *reorder.Maker
	recoveries *retrans.Maker
	controls   map[string]*ccalgo.Shares // by name and parameters
}

// NewMaker returns a maker for a NIC on that link.
func NewMaker(link Link) *Maker {
	return &Maker{link: link, trackers: reorder.NewMaker(), recoveries: retrans.NewMaker(), controls: map[string]*ccalgo.Shares{}}
}

// New makes the plug-ins of one queue pair.
func (m *Maker) New(name string, s Spec) (p qp.Profile, err error) {
	if s, err = Resolve(name, s); err != nil {
		return p, err
	}
	if s.Exact {
		s = s.exact(name)
	}
	s = m.link.complete(s)
	keep := func(e error) {
		if err == nil {
			err = e
		}
	}
	t, _ := find(name)
	p.Kind, p.Traits, p.Fields = t.Kind, t.Traits, t.Fields
	p.Traits.SelectiveRTT = s.Exact && t.Traits.PerPacket
	p.Traits.CNPWithNAK = s.CNPWithNAK
	if s.HoldLast != "" {
		hold, ok := holders[s.HoldLast]
		if !ok {
			return p, fmt.Errorf("hold_last %q: must be receiver, sender or sender-idle", s.HoldLast)
		}
		p.Traits.HoldLast = hold
	}
	p.Tracker = made(keep, m.trackers.New, s.Reorder)
	p.Recovery = made(keep, m.recoveries.New, s.Recovery)
	p.Paths = made(keep, path.New, s.Paths)
	p.Controller = made(keep, m.control, s.Congestion)
	if !p.Kind.Extended() { // READ responses are not acknowledged
		return p, err
	}
	p.ResponseTracker = made(keep, m.trackers.New, s.Reorder)
	if t, ok := p.ResponseTracker.(*reorder.IRN); ok {
		t.TrackResponses()
	}
	p.ResponseRecovery = made(keep, m.recoveries.New, s.Recovery)
	p.ResponsePaths = made(keep, path.New, s.Paths)
	if _, clocked := p.Paths.(path.Syncer); clocked { // a clock needs a window of its own
		p.ResponseControl = made(keep, m.control, s.Congestion)
	}
	return p, err
}

func made[T any, P ~map[string]float64](keep func(error), factory func(string, P) (T, error), p Part) T {
	v, err := factory(p.Name, P(p.Params))
	keep(err)
	return v
}

// control makes congestion control, or a queue pair's part of a shared one.
func (m *Maker) control(name string, params ccalgo.Params) (ccalgo.Controller, error) {
	own, by, err := ccalgo.SplitSharing(params)
	if err != nil || by == ccalgo.PerQueuePair {
		return ccalgo.New(name, params)
	}
	key := fmt.Sprint(name, params)
	if m.controls[key] == nil {
		m.controls[key] = ccalgo.NewShares(name, own, by)
	}
	return m.controls[key].New()
}
