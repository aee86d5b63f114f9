package verbs

import (
	"fmt"

	"roced.io/roced/internal/base/abi/uverbs"
)

// AttrMask selects attributes of QP.Modify (ibv_qp_attr_mask).
type AttrMask uint32

// Attribute bits.
const (
	AttrState           AttrMask = 1 << 0
	AttrCurState        AttrMask = 1 << 1
	AttrEnSQDNotify     AttrMask = 1 << 2
	AttrAccessFlags     AttrMask = 1 << 3
	AttrPKeyIndex       AttrMask = 1 << 4
	AttrPort            AttrMask = 1 << 5
	AttrQKey            AttrMask = 1 << 6
	AttrAV              AttrMask = 1 << 7
	AttrPathMTU         AttrMask = 1 << 8
	AttrTimeout         AttrMask = 1 << 9
	AttrRetryCnt        AttrMask = 1 << 10
	AttrRNRRetry        AttrMask = 1 << 11
	AttrRQPSN           AttrMask = 1 << 12
	AttrMaxRdAtomic     AttrMask = 1 << 13
	AttrMinRNRTimer     AttrMask = 1 << 15
	AttrSQPSN           AttrMask = 1 << 16
	AttrMaxDestRdAtomic AttrMask = 1 << 17
	AttrDestQPN         AttrMask = 1 << 20
	AttrRateLimit       AttrMask = 1 << 25
)

// QPAttr are the modifiable attributes of a queue pair (ibv_qp_attr).
type QPAttr struct {
	State           QPState
	CurState        QPState
	EnSQDNotify     bool
	Access          Access
	PKeyIndex       uint16
	Port            uint8
	QKey            uint32
	AV              AHAttr
	PathMTU         MTU
	Timeout         uint8 // 4.096 us * 2^Timeout; 0: none
	RetryCnt        uint8
	RNRRetry        uint8 // 7: without limit
	RQPSN           uint32
	SQPSN           uint32
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	DestQPN         uint32
	RateLimit       uint32 // kb/s
}

// Modify changes the attributes in mask (ibv_modify_qp). An error means that no
// attribute has changed.
func (q *QP) Modify(attr QPAttr, mask AttrMask) error {
	const verb = "modify_qp"
	cmd := attr.command(q.handle, mask)
	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	if mask&AttrRateLimit != 0 {
		_, err = alone(answered[uverbs.ExModifyQPResp](q.ctx, verb, uverbs.ExCommand(uverbs.CmdModifyQP,
			uverbs.Size[uverbs.ExModifyQPResp](), uverbs.ExModifyQP{Base: cmd, RateLimit: attr.RateLimit}), nil))
	} else {
		err = q.ctx.dev.modify([]uverbs.ModifyQP{cmd})
	}
	if err != nil {
		return explain(err, fmt.Sprintf("qp %d, %v to %v, attr_mask %#x", q.num, q.state, attr.State, uint32(mask)))
	}
	if mask&AttrState != 0 {
		q.state = attr.State
	}
	return nil
}

// step is one of several state changes.
type step struct {
	attr QPAttr
	mask AttrMask
}

// take applies steps in order. After an error some may have been applied.
func (q *QP) take(steps []step) error {
	cmds := make([]uverbs.ModifyQP, len(steps))
	for i, s := range steps {
		cmds[i] = s.attr.command(q.handle, s.mask)
	}
	last := steps[len(steps)-1].attr.State
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.ctx.dev.modify(cmds); err != nil {
		return explain(err, fmt.Sprintf("qp %d, %v to %v", q.num, q.state, last))
	}
	q.state = last
	return nil
}

// command encodes the attributes.
func (a *QPAttr) command(handle uint32, mask AttrMask) uverbs.ModifyQP {
	cmd := uverbs.ModifyQP{
		QPHandle: handle, AttrMask: uint32(mask), QPState: uint8(a.State), CurQPState: uint8(a.CurState),
		QPAccessFlags: uint32(a.Access), PKeyIndex: a.PKeyIndex, PortNum: a.Port, QKey: a.QKey,
		PathMTU: uint8(a.PathMTU), Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		RQPSN: a.RQPSN, SQPSN: a.SQPSN, MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic,
		MinRNRTimer: a.MinRNRTimer, DestQPNum: a.DestQPN,
	}
	if a.EnSQDNotify {
		cmd.EnSQDAsyncNotify = 1
	}
	if mask&AttrAV != 0 {
		cmd.Dest = uverbs.QPDest{DGID: a.AV.DGID, FlowLabel: a.AV.FlowLabel, SGIDIndex: uint8(a.AV.SGIDIndex),
			HopLimit: a.AV.hopLimit(), TrafficClass: a.AV.TrafficClass, SL: a.AV.SL, IsGlobal: 1, PortNum: 1}
	}
	return cmd
}

// Query returns the attributes of the queue pair (ibv_query_qp).
func (q *QP) Query() (QPAttr, error) {
	r, err := ask[uverbs.QueryQPResp](q.ctx, "query_qp", uverbs.CmdQueryQP, uverbs.QueryQP{QPHandle: q.handle})
	if err != nil {
		return QPAttr{}, err
	}
	return QPAttr{
		State: QPState(r.QPState), CurState: QPState(r.CurQPState),
		Access: Access(r.QPAccessFlags), PKeyIndex: r.PKeyIndex, Port: r.PortNum, QKey: r.QKey,
		AV: AHAttr{DGID: r.Dest.DGID, SGIDIndex: int(r.Dest.SGIDIndex), TrafficClass: r.Dest.TrafficClass,
			HopLimit: r.Dest.HopLimit, FlowLabel: r.Dest.FlowLabel, SL: r.Dest.SL},
		PathMTU: MTU(r.PathMTU), Timeout: r.Timeout, RetryCnt: r.RetryCnt, RNRRetry: r.RNRRetry,
		RQPSN: r.RQPSN, SQPSN: r.SQPSN, MaxRdAtomic: r.MaxRdAtomic, MaxDestRdAtomic: r.MaxDestRdAtomic,
		MinRNRTimer: r.MinRNRTimer, DestQPN: r.DestQPNum,
	}, nil
}
