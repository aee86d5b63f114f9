package qp

import (
	"errors"
	"fmt"
	"time"

	"roced.io/roced/qp/mrc"
)

// ErrNotMRC: the queue pair has another transport profile.
var ErrNotMRC = errors.New("the transport profile of the queue pair is not mrc")

// CheckMRC returns the error of ModifyMRC for these arguments.
func (q *QP) CheckMRC(a *mrc.Attr, m mrc.Mask) error {
	if q.mrc() == nil {
		return ErrNotMRC
	}
	if err := a.Check(m); err != nil {
		return err
	}
	if late := m & mrc.UntilRTR; q.state >= RTR && late != 0 {
		return fmt.Errorf("%v: the state is %v; set it before RTR", late, q.state)
	}
	if late := m & mrc.UntilRTS; q.state >= RTS && late != 0 {
		return fmt.Errorf("%v: the state is %v; set it before RTS", late, q.state)
	}
	return nil
}

// ModifyMRC changes attributes (mrc_modify_qp). p has the plug-ins of the profiles in a. On error nothing has changed. A
// change to RESET restores the attributes that the queue pair had when it was created.
func (q *QP) ModifyMRC(a mrc.Attr, m mrc.Mask, p mrc.Plugins) error {
	if err := q.CheckMRC(&a, m); err != nil {
		return err
	}
	q.touch()
	x := q.mrc()
	x.attr.Set(&a, m)
	x.modified |= m
	x.use(p)
	x.applyAttr()
	return nil
}

// MRCAttr returns the attributes of a queue pair of MRC in force (mrc_query_qp), false for other queue pairs.
func (q *QP) MRCAttr() (mrc.Attr, bool) {
	x := q.mrc()
	if x == nil {
		return mrc.Attr{}, false
	}
	a := x.attr
	if x.modified&mrc.AttrRetryCnt == 0 {
		a.Linear = q.attr.RetryCnt
	}
	if x.modified&mrc.AttrTimeout == 0 && q.attr.Timeout > 0 {
		a.Timeout = min(q.attr.Timeout+2, 24) // its unit is a fourth
	}
	return a, true
}

// restore returns to the attributes of a new queue pair.
func (x *mrcExtension) restore() {
	if x.modified != 0 {
		x.attr, x.modified = x.initial, 0
		x.use(x.plugins)
		x.applyAttr()
	}
}

// use replaces plug-ins. The requester starts them in RTS.
func (x *mrcExtension) use(p mrc.Plugins) {
	s := &x.out.q.req.sender
	if p.Paths == nil {
		p.Paths = s.paths
	}
	if p.Controller == nil {
		p.Controller = s.ctl
	}
	s.plug(p.Controller, p.Paths)
	x.usePaths(p.Paths)
}

// applyAttr passes the attributes to tracker and recovery.
func (x *mrcExtension) applyAttr() {
	a, trk, rec := &x.attr, x.trk, x.out.rec
	if q := x.out.q; q.state < RTR {
		trk.SetRange(a.MPRDest)
		trk.SetDynamic(a.Cap&mrc.DynamicMPR != 0)
	}
	trk.SetMaxImmediates(int(a.MaxWIMMDest))
	rec.SetRange(a.MPR)
	rec.SetMaxImmediates(int(a.MaxWIMM))
	rec.SetExponential(int(a.Exponential))
	timeout := time.Duration(0)
	if x.modified&mrc.AttrTimeout != 0 {
		timeout = mrc.Duration(a.Timeout)
	}
	rec.SetAttribute(timeout)
	if x.modified&mrc.AttrRetryCnt != 0 {
		rec.SetRetries(int(a.Linear))
	}
}
