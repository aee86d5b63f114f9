package qp

// rule holds the attributes of one transition.
type rule struct {
	required, optional AttrMask
}

// rules holds one rule for each of RC, UC and UD.
type rules struct {
	rc, uc, ud rule
}

// Attributes that several transitions share. The NIC resolves the address vector and the alternate path; they are
// listed because they may be given.
const (
	initConnected = AttrPKeyIndex | AttrPort | AttrAccessFlags
	initDatagram  = AttrPKeyIndex | AttrPort | AttrQKey

	rtrUC = AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	rtrRC = rtrUC | AttrMaxDestRdAtomic | AttrMinRNRTimer

	rtsRC = AttrSQPSN | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic

	// While sending. mlx5 allows RATE_LIMIT here; ib_core only for raw packets.
	runUD = AttrCurState | AttrQKey | AttrRateLimit
	runUC = AttrCurState | AttrAltPath | AttrAccessFlags | AttrPathMigState | AttrRateLimit
	runRC = runUC | AttrMinRNRTimer

	sqdUD = AttrPKeyIndex | AttrQKey
	sqdUC = AttrAV | AttrAltPath | AttrAccessFlags | AttrPKeyIndex | AttrPathMigState | AttrRateLimit
	sqdRC = sqdUC | AttrPort | AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic | AttrMaxDestRdAtomic |
		AttrMinRNRTimer
)

// transitions is the table of IBTA vol.1 11.2.5.2 as Linux's ib_modify_qp_is_ok reads it; any state may also change
// to RESET and to ERR. A Modify without STATE is a transition from a state to itself.
var transitions = map[[2]State]rules{
	{Reset, Init}: {
		rc: rule{required: initConnected},
		uc: rule{required: initConnected},
		ud: rule{required: initDatagram},
	},
	{Init, Init}: {
		rc: rule{optional: initConnected},
		uc: rule{optional: initConnected},
		ud: rule{optional: initDatagram},
	},
	{Init, RTR}: {
		rc: rule{rtrRC, AttrAltPath | AttrAccessFlags | AttrPKeyIndex},
		uc: rule{rtrUC, AttrAltPath | AttrAccessFlags | AttrPKeyIndex},
		ud: rule{0, AttrPKeyIndex | AttrQKey},
	},
	{RTR, RTS}: {
		rc: rule{rtsRC, runRC},
		uc: rule{AttrSQPSN, runUC},
		ud: rule{AttrSQPSN, runUD},
	},
	{RTS, RTS}: {rc: rule{0, runRC}, uc: rule{0, runUC}, ud: rule{0, runUD}},
	{RTS, SQD}: {rc: rule{0, AttrEnSQDNotify}, uc: rule{0, AttrEnSQDNotify}, ud: rule{0, AttrEnSQDNotify}},
	{SQD, RTS}: {rc: rule{0, runRC}, uc: rule{0, runUC}, ud: rule{0, runUD}},
	{SQD, SQD}: {rc: rule{0, sqdRC}, uc: rule{0, sqdUC}, ud: rule{0, sqdUD}},
	{SQE, RTS}: {uc: rule{0, AttrCurState | AttrAccessFlags}, ud: rule{0, AttrCurState | AttrQKey}},
}

// transition returns the rule for a change of state.
func transition(from, to State, t Type) (rule, bool) {
	if from > Err || to > Err {
		return rule{}, false
	}
	if to == Reset || to == Err {
		return rule{optional: AttrCurState}, true
	}
	r, ok := transitions[[2]State{from, to}]
	switch t {
	case UC:
		return r.uc, ok
	case UD:
		return r.ud, ok
	}
	return r.rc, ok && from != SQE // RC has no SQE
}
