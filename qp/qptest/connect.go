package qptest

import (
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// The attributes of each service on its way to RTS.
var (
	toInit = map[qp.Type]qp.AttrMask{
		qp.RC: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags,
		qp.UC: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags,
		qp.UD: qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey,
	}
	toRTR = map[qp.Type]qp.AttrMask{
		qp.RC: qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer,
		qp.UC: qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN,
	}
	toRTS = map[qp.Type]qp.AttrMask{
		qp.RC: qp.AttrSQPSN | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic,
		qp.UC: qp.AttrSQPSN,
		qp.UD: qp.AttrSQPSN,
	}
)

// Connect takes a queue pair from RESET to state, RTS at most, with the attributes of a that its service uses.
func Connect(now mono.Time, q *qp.QP, t qp.Type, a qp.Attr, state qp.State) error {
	masks := [...]qp.AttrMask{qp.Init: toInit[t], qp.RTR: toRTR[t], qp.RTS: toRTS[t]}
	for a.State = qp.Init; a.State <= state; a.State++ {
		if err := q.Modify(now, a, qp.AttrState|masks[a.State]); err != nil {
			return err
		}
		q.SetMTU(a.PathMTU)
	}
	return nil
}
