package mrc

import (
	"fmt"
	"math"
	"strings"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/reorder"
	"roced.io/roced/retrans"
)

// Mask names attributes, as mrc_qp_attr_mask of OCP's API.
type Mask uint32

// Attribute bits.
const (
	AttrMaxWIMM     Mask = 1 << 0
	AttrMaxWIMMDest Mask = 1 << 1
	AttrMPR         Mask = 1 << 2
	AttrMPRDest     Mask = 1 << 3
	AttrTimeout     Mask = 1 << 4
	AttrEVProfile   Mask = 1 << 5
	AttrCCProfile   Mask = 1 << 6
	AttrRetryCnt    Mask = 1 << 8
	AttrCap         Mask = 1 << 9
)

// Caps are the bits of Attr.Cap, as mrc_qp_cap.
type Caps uint32

// Capability bits.
const (
	NoTrimNACK Caps = 1 << 0 // no NACKs answer trimmed packets
	DynamicMPR Caps = 1 << 1 // SACKs report the maximum PSN range
	NoService  Caps = 1 << 2 // the peer reports no service times; they are not used in any case
)

// Limits of attributes.
const (
	MaxMPR  = 64
	MaxWIMM = 1 << 15
)

// StateBytes returns the number of bytes of state that a requester with a maximum PSN range can take.
func StateBytes(mpr uint8) int { return retrans.MRCFootprint(max(1, uint32(mpr)*bth.MRCRangeUnit)) }

// Attr are the attributes that only queue pairs of MRC have, as mrc_qp_attr.
type Attr struct {
	MPR, MPRDest         uint8  // maximum PSN range as requester and as responder, in bth.MRCRangeUnit
	MaxWIMM, MaxWIMMDest uint16 // limit on WRITEs with immediate data in flight, likewise
	Timeout              uint8  // 1.024 us * 2^Timeout, at most 24
	Linear, Exponential  uint8  // retries; retrans.Forever exponential ones have no limit
	EVProfile, CCProfile uint64 // paths and congestion control, by numbers of the NIC; 0 is the transport profile's
	Cap                  Caps
}

// Plugins are the plug-ins that EVProfile and CCProfile select; nil keeps the present one.
type Plugins struct {
	Paths      path.Selector
	Controller ccalgo.Controller
}

// Attributes can change until the queue pair enters the state in the name.
//
// Choice: OCP's API names the transition at which an attribute is required, not those at which it may change.
const (
	UntilRTR = AttrMPRDest | AttrMaxWIMMDest | AttrEVProfile | AttrCCProfile | AttrCap
	UntilRTS = AttrMPR | AttrMaxWIMM | AttrTimeout | AttrRetryCnt
)

// limits bound the attributes.
var limits = [...]struct {
	bit         Mask
	name        string
	value       func(*Attr) uint64
	least, most uint64
}{
	{AttrMPR, "mpr", func(a *Attr) uint64 { return uint64(a.MPR) }, 1, MaxMPR},
	{AttrMPRDest, "mpr_dest", func(a *Attr) uint64 { return uint64(a.MPRDest) }, 1, MaxMPR},
	{AttrMaxWIMM, "max_wimm", func(a *Attr) uint64 { return uint64(a.MaxWIMM) }, 1, MaxWIMM},
	{AttrMaxWIMMDest, "max_wimm_dest", func(a *Attr) uint64 { return uint64(a.MaxWIMMDest) }, 1, MaxWIMM},
	{AttrTimeout, "timeout", func(a *Attr) uint64 { return uint64(a.Timeout) }, 0, 24},
	{AttrRetryCnt, "linear_cnt", func(a *Attr) uint64 { return uint64(a.Linear) }, 0, 7},
	{AttrRetryCnt, "exp_cnt", func(a *Attr) uint64 { return uint64(a.Exponential) }, 0, retrans.Forever},
	{AttrEVProfile, "ev_profile_id", func(a *Attr) uint64 { return a.EVProfile }, 0, math.MaxUint64},
	{AttrCCProfile, "cc_profile_id", func(a *Attr) uint64 { return a.CCProfile }, 0, math.MaxUint64},
	{AttrCap, "cap", func(a *Attr) uint64 { return uint64(a.Cap) }, 0, uint64(NoTrimNACK | DynamicMPR | NoService)},
}

// Check returns an error if an attribute of m is unknown or out of range.
func (a *Attr) Check(m Mask) error {
	if known := UntilRTR | UntilRTS; m&^known != 0 {
		return fmt.Errorf("attribute mask %#x: the known bits are %#x", uint32(m), uint32(known))
	}
	for i := range limits {
		l := &limits[i]
		if v := l.value(a); m&l.bit != 0 && (v < l.least || v > l.most) {
			return fmt.Errorf("%s %d: must be %d to %d", l.name, v, l.least, l.most)
		}
	}
	return nil
}

// String lists the names of the attributes.
func (m Mask) String() string {
	var names []string
	for i := range limits {
		if m&limits[i].bit != 0 {
			names = append(names, limits[i].name)
		}
	}
	return strings.Join(names, "|")
}

// Set copies the attributes m of b.
func (a *Attr) Set(b *Attr, m Mask) {
	set(&a.MPR, b.MPR, m&AttrMPR)
	set(&a.MPRDest, b.MPRDest, m&AttrMPRDest)
	set(&a.MaxWIMM, b.MaxWIMM, m&AttrMaxWIMM)
	set(&a.MaxWIMMDest, b.MaxWIMMDest, m&AttrMaxWIMMDest)
	set(&a.Timeout, b.Timeout, m&AttrTimeout)
	set(&a.Linear, b.Linear, m&AttrRetryCnt)
	set(&a.Exponential, b.Exponential, m&AttrRetryCnt)
	set(&a.EVProfile, b.EVProfile, m&AttrEVProfile)
	set(&a.CCProfile, b.CCProfile, m&AttrCCProfile)
	set(&a.Cap, b.Cap, m&AttrCap)
}

func set[T any](to *T, v T, given Mask) {
	if given != 0 {
		*to = v
	}
}

// AttrOf returns the attributes of a queue pair with these plug-ins.
func AttrOf(trk *reorder.MRC, rec *retrans.MRC) Attr {
	a := Attr{MPR: uint8(rec.Range() / bth.MRCRangeUnit), MPRDest: uint8(trk.Range() / bth.MRCRangeUnit),
		MaxWIMM: uint16(rec.MaxImmediates()), MaxWIMMDest: uint16(trk.MaxImmediates()), Exponential: uint8(rec.Exponential())}
	if trk.Dynamic() {
		a.Cap = DynamicMPR
	}
	return a
}

// Duration returns a timeout attribute as a duration.
func Duration(timeout uint8) time.Duration { return 1024 << min(timeout, 24) }
