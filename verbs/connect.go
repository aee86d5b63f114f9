package verbs

// ConnInfo is what a peer needs to know to connect to a queue pair. It is
// exchanged by other means, for instance as JSON over TCP.
type ConnInfo struct {
	QPN uint32 `json:"qpn"`
	PSN uint32 `json:"psn"`
	GID GID    `json:"gid"`
	// MTU is the largest path MTU that this side can do; zero says nothing.
	MTU MTU `json:"mtu,omitempty"`
}

// ConnParams are the choices of one side of a connection. Start with
// DefaultConnParams.
type ConnParams struct {
	Access          Access // of the peer, RC and UC
	QKey            uint32 // UD
	SGIDIndex       int    // -1: DefaultGID
	MTU             MTU    // 0: what both ports can do
	TrafficClass    uint8
	SL              uint8 // service level, as in AHAttr
	HopLimit        uint8
	FlowLabel       uint32
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
	MinRNRTimer     uint8
	MaxRdAtomic     uint8 // READs and atomics outstanding; less if the device has less
	MaxDestRdAtomic uint8
}

// DefaultConnParams are good for most.
func DefaultConnParams() ConnParams {
	return ConnParams{
		Access: AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic |
			AccessFlushGlobal,
		SGIDIndex: -1, HopLimit: defaultHopLimit,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, // 67 ms, for ever, 0.64 ms
		MaxRdAtomic: 16, MaxDestRdAtomic: 16,
	}
}

// Info returns what a peer needs to know to connect to this queue pair.
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

// pathMTU returns the MTU asked for, or the least of what the ports can do.
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

// Connect takes the queue pair from RESET to RTS. For UD the peer counts nothing;
// each work request names its own.
func (q *QP) Connect(remote ConnInfo, p ConnParams) error {
	if err := q.ToInit(p); err != nil {
		return err
	}
	if err := q.ToRTR(remote, p); err != nil {
		return err
	}
	return q.ToRTS(p)
}

// ToInit takes the queue pair from RESET to INIT, where receives can be posted.
func (q *QP) ToInit(p ConnParams) error {
	mask := AttrState | AttrPKeyIndex | AttrPort
	if q.typ == UD {
		mask |= AttrQKey
	} else {
		mask |= AttrAccessFlags
	}
	return q.Modify(QPAttr{State: QPInit, Port: 1, Access: p.Access, QKey: p.QKey}, mask)
}

// ToRTR takes the queue pair from INIT to RTR: it receives from the peer.
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

// ToRTS takes the queue pair from RTR to RTS: it sends.
func (q *QP) ToRTS(p ConnParams) error {
	mask := AttrState | AttrSQPSN
	if q.typ == RC {
		mask |= AttrTimeout | AttrRetryCnt | AttrRNRRetry | AttrMaxRdAtomic
	}
	return q.Modify(QPAttr{State: QPRTS, SQPSN: q.psn, Timeout: p.Timeout, RetryCnt: p.RetryCnt, RNRRetry: p.RNRRetry,
		MaxRdAtomic: uint8(min(int(p.MaxRdAtomic), q.ctx.attr.MaxQPInitRdAtom))}, mask)
}
