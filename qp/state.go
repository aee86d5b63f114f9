package qp

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// Errors of Modify, which returns them in a *ModifyError.
var (
	// ErrTransition: the queue pair cannot change from its state to the requested one.
	ErrTransition = errors.New("state transition not allowed")
	// ErrMissing: attributes that the transition requires were not given.
	ErrMissing = errors.New("required attributes missing")
	// ErrNotAllowed: the transition does not permit some of the given attributes.
	ErrNotAllowed = errors.New("attributes not allowed")
	// ErrValue: an attribute is out of range.
	ErrValue = errors.New("attributes out of range")
	// ErrDraining: the send queue is not drained yet.
	ErrDraining = errors.New("send queue is draining")
)

// ModifyError is the error of a Modify call.
type ModifyError struct {
	Err      error // one of the sentinels
	From, To State
	Attrs    AttrMask // the offending attributes
}

// Error implements error.
func (e *ModifyError) Error() string {
	s := fmt.Sprintf("qp: modify %v to %v: %v", e.From, e.To, e.Err)
	if e.Attrs != 0 {
		s += ": " + e.Attrs.String()
	}
	return s
}

// Unwrap returns the sentinel.
func (e *ModifyError) Unwrap() error { return e.Err }

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the name of the state as rdma-core prints it.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// String returns the name of the transport service.
func (t Type) String() string {
	if t < RC || t > UD {
		return fmt.Sprintf("Type(%d)", uint8(t))
	}
	return [...]string{RC: "RC", UC: "UC", UD: "UD"}[t]
}

var attrNames = map[AttrMask]string{
	AttrState: "STATE", AttrCurState: "CUR_STATE", AttrEnSQDNotify: "EN_SQD_ASYNC_NOTIFY",
	AttrAccessFlags: "ACCESS_FLAGS", AttrPKeyIndex: "PKEY_INDEX", AttrPort: "PORT", AttrQKey: "QKEY", AttrAV: "AV",
	AttrPathMTU: "PATH_MTU", AttrTimeout: "TIMEOUT", AttrRetryCnt: "RETRY_CNT", AttrRNRRetry: "RNR_RETRY",
	AttrRQPSN: "RQ_PSN", AttrMaxRdAtomic: "MAX_QP_RD_ATOMIC", AttrAltPath: "ALT_PATH",
	AttrMinRNRTimer: "MIN_RNR_TIMER", AttrSQPSN: "SQ_PSN", AttrMaxDestRdAtomic: "MAX_DEST_RD_ATOMIC",
	AttrPathMigState: "PATH_MIG_STATE", AttrCap: "CAP", AttrDestQPN: "DEST_QPN", AttrRateLimit: "RATE_LIMIT",
}

// String lists the attributes by their ibv_qp_attr_mask names.
func (m AttrMask) String() string {
	var names []string
	for bit := AttrMask(1); bit != 0; bit <<= 1 {
		if m&bit == 0 {
			continue
		}
		name, ok := attrNames[bit]
		if !ok {
			name = fmt.Sprintf("%#x", uint32(bit))
		}
		names = append(names, name)
	}
	return strings.Join(names, "|")
}

// Modify changes state and attributes as ibv_modify_qp does (IBTA vol.1 11.2.5.2, table of required and optional
// attributes). On error nothing has changed.
func (q *QP) Modify(now mono.Time, a Attr, m AttrMask) error {
	q.touch()
	from, to := q.state, q.state
	if m&AttrState != 0 {
		to = a.State
	}
	if attrs, err := q.checkModify(from, to, a, m); err != nil {
		return &ModifyError{err, from, to, attrs}
	}
	switch to {
	case Reset:
		q.state, q.attr, q.mtu, q.polled, q.memory, q.flushing = Reset, Attr{}, 0, 0, memorySynced, false
		q.req.reset()
		q.resp.reset()
		q.np.reset()
		q.refuseProfile = false
		if x := q.mrc(); x != nil {
			x.restore()
		}
		q.Free()
		return nil
	case Err:
		q.enterError(now)
		return nil
	}
	q.assign(a, m)
	if from == SQE { // flush the requests posted before, at most one ring (IBTA vol.1 10.3.1.7)
		q.req.flushPosted(int(q.cfg.MaxSendWR))
		q.flushing = false
	}
	q.state = to
	q.apply(now, from, to)
	return nil
}

// checkModify returns the error in the arguments of Modify, and the offending attributes.
func (q *QP) checkModify(from, to State, a Attr, m AttrMask) (AttrMask, error) {
	rule, ok := transition(from, to, q.cfg.Type)
	if !ok {
		return 0, ErrTransition
	}
	given := m &^ AttrState
	if missing := rule.required &^ given; missing != 0 {
		return missing, ErrMissing
	}
	if extra := given &^ (rule.required | rule.optional); extra != 0 {
		return extra, ErrNotAllowed
	}
	if bad := badValues(q.state, a, m); bad != 0 {
		return bad, ErrValue
	}
	// IBTA vol.1 10.3.1.5: attributes change only once the queue has drained.
	if from == SQD && to == SQD && given&^AttrCurState != 0 && !q.req.idle() {
		return 0, ErrDraining
	}
	return 0, nil
}

// badValues returns the given attributes whose values are out of range.
func badValues(state State, a Attr, m AttrMask) AttrMask {
	var bad AttrMask
	for _, c := range [...]struct {
		attr AttrMask
		ok   bool
	}{
		// The current state that the client expects must be right (11.2.5.2).
		{AttrCurState, a.CurState == state},
		{AttrPathMTU, a.PathMTU.Bytes() != 0},
		{AttrTimeout, a.Timeout <= 31},
		{AttrRetryCnt, a.RetryCnt <= 7},
		{AttrRNRRetry, a.RNRRetry <= 7},
		{AttrMinRNRTimer, a.MinRNRTimer <= 31},
		{AttrDestQPN, a.DestQPN <= uint32(bth.MaxQPN)},
	} {
		if m&c.attr != 0 && !c.ok {
			bad |= c.attr
		}
	}
	return bad
}

// assign copies the given attributes.
func (q *QP) assign(a Attr, m AttrMask) {
	set(&q.attr.EnSQDNotify, a.EnSQDNotify, m&AttrEnSQDNotify)
	set(&q.attr.AccessFlags, a.AccessFlags, m&AttrAccessFlags)
	set(&q.attr.PKeyIndex, a.PKeyIndex, m&AttrPKeyIndex)
	set(&q.attr.Port, a.Port, m&AttrPort)
	set(&q.attr.QKey, a.QKey, m&AttrQKey)
	set(&q.attr.PathMTU, a.PathMTU, m&AttrPathMTU)
	set(&q.attr.Timeout, a.Timeout, m&AttrTimeout)
	set(&q.attr.RetryCnt, a.RetryCnt, m&AttrRetryCnt)
	set(&q.attr.RNRRetry, a.RNRRetry, m&AttrRNRRetry)
	set(&q.attr.RQPSN, bth.MakePSN(a.RQPSN).Uint32(), m&AttrRQPSN)
	set(&q.attr.SQPSN, bth.MakePSN(a.SQPSN).Uint32(), m&AttrSQPSN)
	set(&q.attr.MaxRdAtomic, a.MaxRdAtomic, m&AttrMaxRdAtomic)
	set(&q.attr.MaxDestRdAtomic, a.MaxDestRdAtomic, m&AttrMaxDestRdAtomic)
	set(&q.attr.MinRNRTimer, a.MinRNRTimer, m&AttrMinRNRTimer)
	set(&q.attr.DestQPN, a.DestQPN, m&AttrDestQPN)
	set(&q.attr.RateLimit, a.RateLimit, m&AttrRateLimit)
}

// SetMTU sets the largest datagram. UD queue pairs have no path MTU. Theirs is that of the port (IBTA vol.1 C10-93.1.1), which
// can change. SetMTU has no effect on other queue pairs, nor before RTR.
func (q *QP) SetMTU(m MTU) {
	if q.cfg.Type == UD && q.mtu != 0 {
		q.attr.PathMTU, q.mtu = m, uint32(m.Bytes())
	}
}

func set[T any](to *T, v T, given AttrMask) {
	if given != 0 {
		*to = v
	}
}

// apply carries out a transition.
func (q *QP) apply(now mono.Time, from, to State) {
	switch {
	case from == Init && to == RTR:
		q.mtu = uint32(cmp.Or(q.attr.PathMTU, 5).Bytes()) // UD has none before SetMTU
		q.resp.start(bth.MakePSN(q.attr.RQPSN))
	case from == RTR && to == RTS:
		q.req.start(bth.MakePSN(q.attr.SQPSN))
	case to == RTS:
		q.req.draining = false
		q.req.configure()
	case to == SQD:
		q.req.configure()
	}
	if to == SQD && from != SQD {
		q.req.drain()
	}
}
