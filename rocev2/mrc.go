package rocev2

import (
	"errors"
	"fmt"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/mrc"
)

// maxUnacked returns the window of a queue pair in PSNs. That of MRC is the maximum PSN range, unless the NIC has a limit.
func (n *NIC) maxUnacked(kind bth.Profile) uint32 {
	switch {
	case n.cfg.MaxUnacked != 0:
		return n.cfg.MaxUnacked
	case kind == bth.ProfileMRC:
		return mrc.MaxMPR * bth.MRCRangeUnit
	}
	return defaultMaxUnacked
}

// ErrNotMRC: the queue pair has another transport profile than mrc.
var ErrNotMRC = qp.ErrNotMRC

// ModifyMRC changes attributes of a queue pair of MRC. On error nothing has changed.
func (n *NIC) ModifyMRC(now mono.Time, q *QueuePair, a mrc.Attr, m mrc.Mask) error {
	n.now = now
	if !n.ownsQP(q) {
		return fail("modify_mrc", "qp", ErrInvalid)
	}
	err := q.core.CheckMRC(&a, m)
	var plug mrc.Plugins
	if err == nil && m&(mrc.AttrEVProfile|mrc.AttrCCProfile) != 0 {
		plug, err = n.mrcPlugins(q, &a, m)
	}
	if err == nil {
		err = q.core.ModifyMRC(a, m, plug)
	}
	if err != nil {
		n.ctr.MRCAttrErrors++
		return fmt.Errorf("modify_mrc: %w: %w", ErrInvalid, err)
	}
	n.sch.rearm(q)
	return nil
}

// errNoProfiles: the NIC has no numbered profiles.
var errNoProfiles = errors.New("the NIC has no profiles of entropy values or congestion control besides 0")

// mrcPlugins creates the plug-ins for the profiles in a. The number that is not given remains.
func (n *NIC) mrcPlugins(q *QueuePair, a *mrc.Attr, m mrc.Mask) (plug mrc.Plugins, err error) {
	now, _ := q.core.MRCAttr()
	if m&mrc.AttrEVProfile != 0 {
		now.EVProfile = a.EVProfile
	}
	if m&mrc.AttrCCProfile != 0 {
		now.CCProfile = a.CCProfile
	}
	var p qp.Profile
	switch {
	case n.cfg.MRCProfile != nil:
		p, err = n.cfg.MRCProfile(now.EVProfile, now.CCProfile)
	case now.EVProfile|now.CCProfile != 0:
		err = errNoProfiles
	default:
		p, err = n.cfg.NewProfile(q.profile)
	}
	if m&mrc.AttrEVProfile != 0 {
		plug.Paths = p.Paths
	}
	if m&mrc.AttrCCProfile != 0 {
		plug.Controller = p.Controller
	}
	return plug, err
}

// QueryMRC returns the attributes of a queue pair of MRC.
func (n *NIC) QueryMRC(q *QueuePair) (mrc.Attr, error) {
	if !n.ownsQP(q) {
		return mrc.Attr{}, fail("query_mrc", "qp", ErrInvalid)
	}
	a, ok := q.core.MRCAttr()
	if !ok {
		return a, ErrNotMRC
	}
	return a, nil
}
