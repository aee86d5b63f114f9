package qp

import (
	"errors"
	"fmt"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/path"
	"roced.io/roced/retrans"
)

// MRCMask names attributes of ModifyMRC, as mrc_qp_attr_mask of OCP's API.
type MRCMask uint32

// Attribute bits.
const (
	MRCMaxWIMM     MRCMask = 1 << 0
	MRCMaxWIMMDest MRCMask = 1 << 1
	MRCMPR         MRCMask = 1 << 2
	MRCMPRDest     MRCMask = 1 << 3
	MRCTimeout     MRCMask = 1 << 4
	MRCEVProfile   MRCMask = 1 << 5
	MRCCCProfile   MRCMask = 1 << 6
	MRCRetryCnt    MRCMask = 1 << 8
	MRCCap         MRCMask = 1 << 9
)

// MRCCaps are the bits of MRCAttr.Cap, as mrc_qp_cap.
type MRCCaps uint32

// Capability bits.
const (
	MRCNoTrimNACK MRCCaps = 1 << 0 // no NACKs answer trimmed packets
	MRCDynamicMPR MRCCaps = 1 << 1 // SACKs report the maximum PSN range
	MRCNoService  MRCCaps = 1 << 2 // the peer reports no service times; they are not used in any case
)

// Limits of attributes.
const (
	MaxMPR  = 64
	MaxWIMM = 1 << 15
)

// MRCAttr are the attributes that only queue pairs of MRC have, as mrc_qp_attr.
type MRCAttr struct {
	MPR, MPRDest         uint8  // maximum PSN range as requester and as responder, in bth.MRCRangeUnit
	MaxWIMM, MaxWIMMDest uint16 // limit on WRITEs with immediate data in flight, likewise
	Timeout              uint8  // 1.024 us * 2^Timeout, at most 24
	Linear, Exponential  uint8  // retries; retrans.Forever exponential ones have no limit
	EVProfile, CCProfile uint64 // paths and congestion control, by numbers of the NIC; 0 is the transport profile's
	Cap                  MRCCaps
}

// MRCPlugins are the plug-ins that EVProfile and CCProfile select; nil keeps the present one.
type MRCPlugins struct {
	Paths      path.Selector
	Controller ccalgo.Controller
}

// ErrNotMRC: the queue pair has another transport profile.
var ErrNotMRC = errors.New("the transport profile of the queue pair is not mrc")

// mrcRule bounds an attribute. It can change until the queue pair enters the state before.
//
// Choice: OCP's API names the transition at which an attribute is required, not those at which it may change.
type mrcRule struct {
	bit         MRCMask
	name        string
	before      State
	value       func(*MRCAttr) uint64
	least, most uint64
}

var mrcRules = [...]mrcRule{
	{MRCMPR, "mpr", RTS, func(a *MRCAttr) uint64 { return uint64(a.MPR) }, 1, MaxMPR},
	{MRCMPRDest, "mpr_dest", RTR, func(a *MRCAttr) uint64 { return uint64(a.MPRDest) }, 1, MaxMPR},
	{MRCMaxWIMM, "max_wimm", RTS, func(a *MRCAttr) uint64 { return uint64(a.MaxWIMM) }, 1, MaxWIMM},
	{MRCMaxWIMMDest, "max_wimm_dest", RTR, func(a *MRCAttr) uint64 { return uint64(a.MaxWIMMDest) }, 1, MaxWIMM},
	{MRCTimeout, "timeout", RTS, func(a *MRCAttr) uint64 { return uint64(a.Timeout) }, 0, 24},
	{MRCRetryCnt, "linear_cnt", RTS, func(a *MRCAttr) uint64 { return uint64(a.Linear) }, 0, 7},
	{MRCRetryCnt, "exp_cnt", RTS, func(a *MRCAttr) uint64 { return uint64(a.Exponential) }, 0, retrans.Forever},
	{MRCEVProfile, "ev_profile_id", RTR, func(a *MRCAttr) uint64 { return a.EVProfile }, 0, 1<<64 - 1},
	{MRCCCProfile, "cc_profile_id", RTR, func(a *MRCAttr) uint64 { return a.CCProfile }, 0, 1<<64 - 1},
	{MRCCap, "cap", RTR, func(a *MRCAttr) uint64 { return uint64(a.Cap) }, 0, uint64(MRCNoTrimNACK | MRCDynamicMPR | MRCNoService)},
}

// CheckMRC returns the error of ModifyMRC for these arguments.
func (q *QP) CheckMRC(a *MRCAttr, m MRCMask) error {
	if q.mrc() == nil {
		return ErrNotMRC
	}
	known := MRCMask(0)
	for i := range mrcRules {
		r := &mrcRules[i]
		known |= r.bit
		if m&r.bit == 0 {
			continue
		}
		if v := r.value(a); v < r.least || v > r.most {
			return fmt.Errorf("%s %d: must be %d to %d: %w", r.name, v, r.least, r.most, ErrValue)
		}
		if q.state >= r.before {
			return fmt.Errorf("%s: the state is %v; set it before %v: %w", r.name, q.state, r.before, ErrNotAllowed)
		}
	}
	if m&^known != 0 {
		return fmt.Errorf("attribute mask %#x: the known bits are %#x: %w", uint32(m), uint32(known), ErrNotAllowed)
	}
	return nil
}

// ModifyMRC changes attributes (mrc_modify_qp). p has the plug-ins of the profiles in a. On error nothing has changed. A
// change to RESET restores the attributes that the queue pair had when it was created.
func (q *QP) ModifyMRC(a MRCAttr, m MRCMask, p MRCPlugins) error {
	if err := q.CheckMRC(&a, m); err != nil {
		return err
	}
	q.touch()
	x := q.mrc()
	set(&x.attr.MPR, a.MPR, mrcGiven(m, MRCMPR))
	set(&x.attr.MPRDest, a.MPRDest, mrcGiven(m, MRCMPRDest))
	set(&x.attr.MaxWIMM, a.MaxWIMM, mrcGiven(m, MRCMaxWIMM))
	set(&x.attr.MaxWIMMDest, a.MaxWIMMDest, mrcGiven(m, MRCMaxWIMMDest))
	set(&x.attr.Timeout, a.Timeout, mrcGiven(m, MRCTimeout))
	set(&x.attr.Linear, a.Linear, mrcGiven(m, MRCRetryCnt))
	set(&x.attr.Exponential, a.Exponential, mrcGiven(m, MRCRetryCnt))
	set(&x.attr.EVProfile, a.EVProfile, mrcGiven(m, MRCEVProfile))
	set(&x.attr.CCProfile, a.CCProfile, mrcGiven(m, MRCCCProfile))
	set(&x.attr.Cap, a.Cap, mrcGiven(m, MRCCap))
	x.given |= m
	x.use(p)
	x.applyAttr()
	return nil
}

// MRCAttr returns the attributes of a queue pair of MRC in force (mrc_query_qp), false for other queue pairs.
func (q *QP) MRCAttr() (MRCAttr, bool) {
	x := q.mrc()
	if x == nil {
		return MRCAttr{}, false
	}
	a := x.attr
	if x.given&MRCRetryCnt == 0 {
		a.Linear = q.attr.RetryCnt
	}
	if x.given&MRCTimeout == 0 && q.attr.Timeout > 0 {
		a.Timeout = min(q.attr.Timeout+2, 24) // its unit is a fourth
	}
	return a, true
}

// mrcGiven returns a mask for set.
func mrcGiven(m, bit MRCMask) AttrMask { return AttrMask(m & bit) }

// own records the attributes and plug-ins of a new queue pair.
func (x *mrc) own(p *Profile) {
	x.attr = MRCAttr{MPR: uint8(x.out.rec.Range() / bth.MRCRangeUnit), MPRDest: uint8(x.trk.Range() / bth.MRCRangeUnit),
		MaxWIMM: uint16(x.out.rec.MaxImmediates()), MaxWIMMDest: uint16(x.trk.MaxImmediates()), Exponential: uint8(x.out.rec.Exponential())}
	if x.trk.Dynamic() {
		x.attr.Cap = MRCDynamicMPR
	}
	x.first, x.plugins = x.attr, MRCPlugins{p.Paths, p.Controller}
}

// restore returns to the attributes of a new queue pair.
func (x *mrc) restore() {
	if x.given != 0 {
		x.attr, x.given = x.first, 0
		x.use(x.plugins)
		x.applyAttr()
	}
}

// use replaces plug-ins. The requester starts them in RTS.
func (x *mrc) use(p MRCPlugins) {
	s := &x.out.q.req.sender
	if p.Paths == nil {
		p.Paths = s.paths
	}
	if p.Controller == nil {
		p.Controller = s.ctl
	}
	s.plug(p.Controller, p.Paths)
	x.follow(p.Paths)
}

// applyAttr passes the attributes to tracker and recovery.
func (x *mrc) applyAttr() {
	a, trk, rec := &x.attr, x.trk, x.out.rec
	if q := x.out.q; q.state < RTR {
		trk.SetRange(a.MPRDest)
		trk.SetDynamic(a.Cap&MRCDynamicMPR != 0)
	}
	trk.SetMaxImmediates(int(a.MaxWIMMDest))
	rec.SetRange(a.MPR)
	rec.SetMaxImmediates(int(a.MaxWIMM))
	rec.SetExponential(int(a.Exponential))
	timeout := time.Duration(0)
	if x.given&MRCTimeout != 0 {
		timeout = mrcTimeout(a.Timeout)
	}
	rec.SetAttribute(timeout)
	if x.given&MRCRetryCnt != 0 {
		rec.SetRetries(int(a.Linear))
	}
}

// mrcTimeout returns a timeout attribute of MRC as a duration.
func mrcTimeout(code uint8) time.Duration { return 1024 << min(code, 24) }
