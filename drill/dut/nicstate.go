package dut

import (
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// toState takes a new queue pair to the state that the argument names, RTS by default.
func (a *nicAgent) toState(q *nicQP, r *request) error {
	target := qp.RTS
	if r.has("state") {
		var err error
		if target, err = find(states, r.args["state"]); err != nil {
			return err
		}
	}
	t := q.Info().Type
	for s := qp.Init; s <= min(target, qp.RTS); s++ {
		if err := a.setAttributes(q, r, s, needed(t, s-1, s)); err != nil {
			return err
		}
	}
	if target > qp.RTS {
		return a.setAttributes(q, r, target, qp.AttrState)
	}
	return nil
}

// needed returns the attributes that a transition of a queue pair needs (IBTA vol.1 10.3.1).
func needed(t qp.Type, from, to qp.State) qp.AttrMask {
	mask := qp.AttrState
	switch {
	case to == qp.Init && t == qp.UD:
		mask |= qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey
	case to == qp.Init:
		mask |= qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags
	case to == qp.RTR && t != qp.UD:
		mask |= qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN
		if t == qp.RC {
			mask |= qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer
		}
	case to == qp.RTS && from == qp.RTR:
		mask |= qp.AttrSQPSN
		if t == qp.RC {
			mask |= qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic
		}
	}
	return mask
}

// attributeKeys are the attributes of the keys of modify.
var attributeKeys = map[string]qp.AttrMask{"sl": qp.AttrAV, "tclass": qp.AttrAV, "ttl": qp.AttrAV, "flow": qp.AttrAV, "mtu": qp.AttrPathMTU,
	"peer": qp.AttrDestQPN, "rqpsn": qp.AttrRQPSN, "psn": qp.AttrSQPSN, "timeout": qp.AttrTimeout, "retry": qp.AttrRetryCnt,
	"rnr_retry": qp.AttrRNRRetry, "min_rnr": qp.AttrMinRNRTimer, "rd_atomic": qp.AttrMaxRdAtomic, "dest_rd_atomic": qp.AttrMaxDestRdAtomic,
	"qkey": qp.AttrQKey, "pkey_index": qp.AttrPKeyIndex, "access": qp.AttrAccessFlags, "notify": qp.AttrEnSQDNotify}

// setAttributes changes the attributes of a mask. Keys that the command lacks have their defaults.
func (a *nicAgent) setAttributes(q *nicQP, r *request, to qp.State, mask qp.AttrMask) error {
	at := qp.Attr{State: to, Port: 1, PKeyIndex: uint16(r.number("pkey_index", 0)), QKey: uint32(r.number("qkey", testQKey)),
		AccessFlags: r.access(allAccess) & (qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic | qp.AccessFlushGlobal),
		PathMTU:     r.mtu(), DestQPN: uint32(r.number("peer", 0x11)), RQPSN: uint32(r.number("rqpsn", 0)) & 0xffffff,
		MaxDestRdAtomic: uint8(r.number("dest_rd_atomic", 4)), MinRNRTimer: uint8(r.number("min_rnr", 12)), SQPSN: uint32(r.number("psn", 0)) & 0xffffff,
		Timeout: uint8(r.number("timeout", 14)), RetryCnt: uint8(r.number("retry", 7)), RNRRetry: uint8(r.number("rnr_retry", 7)),
		MaxRdAtomic: uint8(r.number("rd_atomic", 4)), EnSQDNotify: r.number("notify", 0) != 0}
	var av *rocev2.AddressVector
	if mask&qp.AttrAV != 0 {
		v := a.vector(r)
		av = &v
	}
	if r.err != nil {
		return nil // run reports it
	}
	return a.nic.ModifyQP(a.now, q.QueuePair, at, mask, av)
}

// testQKey is the Q_Key of queue pairs whose script names none.
const testQKey = 0x11111111

// modify changes the attributes that the command names, and with a state those that the transition needs, but one.
func (a *nicAgent) modify(r *request) (string, error) {
	q, err := find(a.qps, r.args["on"])
	if err != nil {
		return "", err
	}
	mask, to := qp.AttrMask(0), qp.RTS
	for key, attr := range attributeKeys {
		if r.has(key) {
			mask |= attr
		}
	}
	if r.has("state") {
		if to, err = find(states, r.args["state"]); err != nil {
			return "", err
		}
		i := q.Info()
		mask |= needed(i.Type, i.Attr.State, to)
	}
	if r.has("without") {
		attr, err := find(attributeKeys, r.args["without"])
		if err != nil {
			return "", err
		}
		mask &^= attr
	}
	return "", a.setAttributes(q, r, to, mask)
}
