package verbs

// ConnInfo is the address of a queue pair, which a peer needs in order to connect to
// it. Bootstrap exchanges it.
type ConnInfo struct {
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
	GID GID    `json:"gid"`
	// MTU is the largest path MTU of this side; zero: unknown.
	MTU MTU `json:"mtu,omitempty"`
}

// ConnParams are the parameters of one side of a connection. Start with
// DefaultConnParams: the zero value of some fields has a meaning of its own.
type ConnParams struct {
	Access          Access // rights of the peer; RC and UC only
	QKey            uint32 // UD only
	SGIDIndex       int    // -1: DefaultGID
	MTU             MTU    // 0: the largest of both ports
	TrafficClass    uint8
	SL              uint8 // service level, as in AHAttr
	HopLimit        uint8
	FlowLabel       uint32
	Timeout         uint8 // acknowledgement timeout, 4.096 us * 2^Timeout; 0: none
	RetryCnt        uint8 // retransmissions, 0 to 7
	RNRRetry        uint8 // 0 to 6, 7: without limit
	MinRNRTimer     uint8 // code of IBTA vol.1 table 46
	MaxRdAtomic     uint8 // READs and atomics in flight; limited by the device
	MaxDestRdAtomic uint8 // READs and atomics of the peer in flight; limited by the device
}

// DefaultConnParams returns parameters that suit most programs.
func DefaultConnParams() ConnParams {
	return ConnParams{
		Access: AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic |
			AccessFlushGlobal,
		SGIDIndex: -1, HopLimit: defaultHopLimit,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, // 67 ms, RNR retries without limit, 0.64 ms
		MaxRdAtomic: 16, MaxDestRdAtomic: 16,
	}
}

// Info returns the address of the queue pair, for the peer.
func (q *QP) Info(p ConnParams) (ConnInfo, error) {
	gid, _, err := q.localGID(p)
	if err != nil {
		return ConnInfo{}, err
	}
	mtu, err := q.pathMTU(ConnInfo{}, p)
	if err != nil {
		return ConnInfo{}, err
	}
	return ConnInfo{QPN: q.num, PSN: q.psn, GID: gid, MTU: mtu}, nil
}

// localGID returns the GID to use and its index.
func (q *QP) localGID(p ConnParams) (GID, int, error) {
	if p.SGIDIndex < 0 {
		i, gid, err := q.ctx.DefaultGID()
		return gid, i, err
	}
	gid, err := q.ctx.QueryGID(1, p.SGIDIndex)
	return gid, p.SGIDIndex, err
}

// pathMTU returns p.MTU or, if that is 0, the smaller MTU of both ports.
func (q *QP) pathMTU(remote ConnInfo, p ConnParams) (MTU, error) {
	if p.MTU != 0 {
		return p.MTU, nil
	}
	port, err := q.ctx.QueryPort(1)
	if err != nil {
		return 0, err
	}
	if remote.MTU != 0 {
		return min(remote.MTU, port.ActiveMTU), nil
	}
	return port.ActiveMTU, nil
}

// Connect moves the queue pair from RESET to RTS. For UD it ignores remote: each work
// request names its destination.
func (q *QP) Connect(remote ConnInfo, p ConnParams) error {
	if err := q.ToInit(p); err != nil {
		return err
	}
	if err := q.ToRTR(remote, p); err != nil {
		return err
	}
	return q.ToRTS(p)
}

// ToInit moves the queue pair from RESET to INIT, where receives can be posted.
func (q *QP) ToInit(p ConnParams) error {
	mask := AttrState | AttrPKeyIndex | AttrPort
	if q.typ == UD {
		mask |= AttrQKey
	} else {
		mask |= AttrAccessFlags
	}
	return q.Modify(QPAttr{State: QPInit, Port: 1, Access: p.Access, QKey: p.QKey}, mask)
}

// ToRTR moves the queue pair from INIT to RTR, where it receives from the peer.
func (q *QP) ToRTR(remote ConnInfo, p ConnParams) error {
	if q.typ == UD {
		return q.Modify(QPAttr{State: QPRTR}, AttrState)
	}
	_, index, err := q.localGID(p)
	if err != nil {
		return err
	}
	mtu, err := q.pathMTU(remote, p)
	if err != nil {
		return err
	}
	mask := AttrState | AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN
	if q.typ == RC {
		mask |= AttrMaxDestRdAtomic | AttrMinRNRTimer
	}
	return q.Modify(QPAttr{
		State: QPRTR, PathMTU: mtu, DestQPN: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: uint8(min(int(p.MaxDestRdAtomic), q.ctx.attr.MaxQPRdAtomic)), MinRNRTimer: p.MinRNRTimer,
		AV: AHAttr{DGID: remote.GID, SGIDIndex: index, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel, SL: p.SL},
	}, mask)
}

// ToRTS moves the queue pair from RTR to RTS, where it sends.
func (q *QP) ToRTS(p ConnParams) error {
	mask := AttrState | AttrSQPSN
	if q.typ == RC {
		mask |= AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic
	}
	return q.Modify(QPAttr{State: QPRTS, SQPSN: q.psn, Timeout: p.Timeout, RetryCnt: p.RetryCnt, RNRRetry: p.RNRRetry,
		MaxRdAtomic: uint8(min(int(p.MaxRdAtomic), q.ctx.attr.MaxQPInitRdAtom))}, mask)
}
