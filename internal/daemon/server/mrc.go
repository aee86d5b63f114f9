package server

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp/mrc"
	"roced.io/roced/rocev2"
)

// Bits of MRCDeviceResp.
const (
	mrcVersion1   = 1 << 0
	mrcTrimNACK   = 1 << 0
	mrcDynamicMPR = 1 << 1
)

// mrcDevice describes the device to programs of MRC. Devices of other transport profiles have none.
func (c *client) mrcDevice(q *request) error {
	var in uverbs.MRCDevice
	if err := q.decode(&in); err != nil {
		return err
	}
	if !c.writesOnly() {
		return unix.EOPNOTSUPP
	}
	q.core = uverbs.MRCDeviceResp{Versions: mrcVersion1, MaxWIMM: mrc.MaxWIMM, MaxWIMMDest: mrc.MaxWIMM, MaxMPR: mrc.MaxMPR, Resolution: 1,
		Cap: mrcTrimNACK | mrcDynamicMPR}
	return nil
}

func (c *client) modifyMRC(q *request) error {
	var in uverbs.ModifyMRC
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.qps.get(in.QPHandle)
	if err != nil {
		return err
	}
	a := mrc.Attr{MPR: in.Attr.MPR, MPRDest: in.Attr.MPRDest, MaxWIMM: in.Attr.MaxWIMM, MaxWIMMDest: in.Attr.MaxWIMMDest,
		Timeout: in.Attr.Timeout, Linear: in.Attr.Linear, Exponential: in.Attr.Exponential, EVProfile: in.Attr.EVProfile,
		CCProfile: in.Attr.CCProfile, Cap: mrc.Caps(in.Attr.Cap)}
	var state int64 // that a larger range can take
	if m := mrc.Mask(in.AttrMask); m&mrc.AttrMPR != 0 && a.MPR <= mrc.MaxMPR {
		state = max(int64(mrc.StateBytes(a.MPR))-o.state, 0)
	}
	if !c.charge(state) {
		return c.advise(unix.ENOMEM, fmt.Sprintf("mpr %d: its state of %d bytes exceeds the quota memory: set a smaller mpr, or raise limits.memory", a.MPR, state))
	}
	if err = c.do(func(now mono.Time, n *rocev2.NIC) error { return n.ModifyMRC(now, o.q, a, mrc.Mask(in.AttrMask)) }); err == nil {
		o.state += state
	} else {
		c.discharge(state)
	}
	switch {
	case errors.Is(err, rocev2.ErrNotMRC):
		return c.advise(unix.EOPNOTSUPP, err.Error())
	case errors.Is(err, rocev2.ErrInvalid):
		return c.advise(unix.EINVAL, err.Error())
	}
	return err
}

func (c *client) queryMRC(q *request) error {
	var in uverbs.QueryMRC
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.qps.get(in.QPHandle)
	if err != nil {
		return err
	}
	return c.peek(func(n *rocev2.NIC) error {
		a, err := n.QueryMRC(o.q)
		if err != nil {
			return unix.EOPNOTSUPP
		}
		q.core = uverbs.MRCAttr{EVProfile: a.EVProfile, CCProfile: a.CCProfile, Cap: uint32(a.Cap), MaxWIMM: a.MaxWIMM,
			MaxWIMMDest: a.MaxWIMMDest, MPR: a.MPR, MPRDest: a.MPRDest, Timeout: a.Timeout, Linear: a.Linear, Exponential: a.Exponential}
		return nil
	})
}
