package cm

import (
	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
)

// check rejects values that do not fit their field on the wire.
func (p *ConnectParam) check() error {
	if len(p.PrivateData) > mad.REQPrivateLen {
		return ErrPrivateData
	}
	if p.Type > mad.UC || p.QPN < 2 || p.QPN > bth.MaxQPN || p.PathMTU.Bytes() == 0 || p.RetryCount > 7 ||
		p.RNRRetry > 7 || p.MaxCMRetries > 15 || max(p.LocalAckTimeout, p.LocalCMTimeout, p.RemoteCMTimeout) > 31 {
		return ErrInvalid
	}
	return nil
}

// Connect sends a REQ. h gets the outcome: ConnectReply, Rejected or Unreachable.
func (a *Agent) Connect(now mono.Time, p *ConnectParam, h Handler) (*Conn, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if h == nil {
		return nil, ErrInvalid
	}
	if a.Len() >= a.cfg.MaxConns {
		return nil, ErrLimit
	}
	c := a.newConn(p.Route, h)
	c.setState(StateREQSent)
	c.tid, c.localQPN = tid(c.id), p.QPN
	c.attr = QPAttr{
		Route: p.Route, RQPSN: p.StartingPSN, PathMTU: p.PathMTU, Timeout: p.LocalAckTimeout,
		RetryCount: p.RetryCount,
	}
	c.retries = p.MaxCMRetries
	c.interval = timeout(p.RemoteCMTimeout) + timeout(p.LocalAckTimeout)
	c.putREQ(p)
	c.transmit(now)
	return c, nil
}

// lid is the local identifier in messages of RoCE ports: none.
const lid = 0xffff

func (c *Conn) putREQ(p *ConnectParam) {
	r := mad.REQ{
		LocalCommID: c.id, ServiceID: p.ServiceID, LocalCAGUID: c.agent.cfg.GUID,
		LocalQKey: p.QKey, LocalQPN: uint32(p.QPN),
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		RemoteCMTimeout: p.RemoteCMTimeout, Type: p.Type, FlowControl: p.FlowControl,
		StartingPSN: p.StartingPSN.Uint32(), LocalCMTimeout: p.LocalCMTimeout, RetryCount: p.RetryCount,
		PKey: bth.DefaultPKey, PathMTU: uint8(p.PathMTU), RNRRetry: p.RNRRetry,
		MaxCMRetries: p.MaxCMRetries, SRQ: p.SRQ,
		Primary: mad.Path{
			LocalLID: lid, RemoteLID: lid, LocalGID: p.Route.SGID, RemoteGID: p.Route.DGID,
			FlowLabel: p.Route.FlowLabel, TrafficClass: p.Route.TrafficClass, HopLimit: p.Route.HopLimit,
			LocalAckTimeout: p.LocalAckTimeout,
		},
		PrivateData: p.PrivateData,
	}
	r.Put(start(&c.m, mad.AttrREQ, c.tid))
}

// receiveREP handles the answer to our REQ.
func (a *Agent) receiveREP(m *message) {
	var r mad.REP
	r.Decode(m.b)
	c := a.conns[r.RemoteCommID]
	if c == nil || c.passive || c.route.DGID != m.from.DGID ||
		c.state != StateREQSent && c.remoteID != r.LocalCommID {
		a.ctr.Unexpected++
		a.refuse(m, mad.REJ{RemoteCommID: r.LocalCommID, Answers: mad.MsgREP, Reason: mad.ReasonInvalidCommID})
		return
	}
	switch c.state {
	case StateREQSent:
		c.replied(m, &r)
	case StateREPReceived:
		a.ctr.Duplicates.count(m.Attr)
		c.sendMRA(m.now, nil)
	case StateEstablished, StateDREQSent:
		a.ctr.Duplicates.count(m.Attr)
		c.resendRTU(m.now)
	default:
		a.ctr.Duplicates.count(m.Attr)
	}
}

// replied handles the first REP.
func (c *Conn) replied(m *message, r *mad.REP) {
	a := c.agent
	if r.LocalCommID == 0 || r.LocalQPN < 2 {
		a.ctr.Malformed++
		return
	}
	qpn := bth.QPN(r.LocalQPN)
	if old := a.peers[peerQP{c.route.DGID, qpn}]; old != nil {
		a.refuse(m, mad.REJ{LocalCommID: c.id, RemoteCommID: r.LocalCommID, Answers: mad.MsgREP, Reason: mad.ReasonStaleConnection})
		old.stale(m.now)
		return
	}
	c.setState(StateREPReceived)
	c.remoteID = r.LocalCommID
	t := &c.attr
	t.RemoteQPN, t.SQPSN, t.RNRRetry = qpn, bth.MakePSN(r.StartingPSN), r.RNRRetry
	t.MaxRdAtomic, t.MaxDestRdAtomic = r.ResponderResources, r.InitiatorDepth
	t.Timeout = ackTimeout(r.TargetAckDelay, t.Timeout)
	a.peers[c.peerQP()] = c
	c.emit(m.now, &Event{Kind: ConnectReply, PrivateData: r.PrivateData, Conn: ConnInfo{
		RemoteQPN: qpn, ResponderResources: r.InitiatorDepth, InitiatorDepth: r.ResponderResources,
		RNRRetry: r.RNRRetry, FlowControl: r.FlowControl, SRQ: r.SRQ, PathMTU: t.PathMTU,
	}})
}

// ackTimeout returns the local ACK timeout for a peer whose acknowledgement takes up to delay. proposed was computed with
// our own delay, which is not longer.
func ackTimeout(delay, proposed uint8) uint8 {
	if delay < proposed {
		return proposed
	}
	return min(delay+1, 31)
}

// Establish sends the RTU. The queue pair must be able to receive.
func (c *Conn) Establish(now mono.Time, private []byte) error {
	if c.state != StateREPReceived {
		return ErrState
	}
	if len(private) > mad.RTUPrivateLen {
		return ErrPrivateData
	}
	c.setState(StateEstablished)
	c.putNotice(&c.m, mad.AttrRTU, private)
	c.agent.send(now, c.route, &c.m)
	return nil
}

// resendRTU answers a duplicate REP. m holds the first RTU with its private data until we disconnect.
func (c *Conn) resendRTU(now mono.Time) {
	if c.state == StateEstablished {
		c.repeat(now)
		return
	}
	c.putNotice(&c.agent.out, mad.AttrRTU, nil)
	c.agent.send(now, c.route, &c.agent.out)
}
