package cm

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// receiveREQ handles a request for a connection.
func (a *Agent) receiveREQ(m *message) {
	var r mad.REQ
	r.Decode(m.b)
	if c := a.requests[peerID{m.from.DGID, r.LocalCommID}]; c != nil {
		a.ctr.Duplicates.count(m.Attr)
		if c.state == StateREQReceived {
			c.sendMRA(m.now, nil)
		}
		return // the timer retransmits a lost REP
	}
	l := a.find(r.ServiceID, m.from.SGID, false)
	reason := a.admit(m, &r, l)
	switch {
	case reason == 0 && l.full():
		a.ctr.BacklogFull++ // the peer retries, as with ucma_event_handler() of Linux
		return
	case reason == 0:
		a.request(m, &r, l)
		return
	}
	rej := mad.REJ{RemoteCommID: r.LocalCommID, Answers: mad.MsgREQ, Reason: reason}
	switch reason { // the acceptable value (IBTA vol.1 12.6.7.2)
	case mad.ReasonInvalidGID:
		rej.ARI = m.from.SGID[:]
	case mad.ReasonInvalidMTU:
		rej.ARI = []byte{byte(a.cfg.Port.PortAttr().ActiveMTU)}
	}
	a.refuse(m, rej)
}

// admit returns the reason for rejecting a request, zero to accept it.
func (a *Agent) admit(m *message, r *mad.REQ, l *Listener) mad.Reason {
	switch {
	case r.LocalCommID == 0:
		a.ctr.Malformed++
		return mad.ReasonInvalidCommID
	case r.LocalQPN < 2:
		a.ctr.Malformed++
		return mad.ReasonNoQP
	case r.Type > mad.UC:
		return mad.ReasonInvalidTransportType
	case qp.MTU(r.PathMTU).Bytes() == 0, qp.MTU(r.PathMTU) > a.cfg.Port.PortAttr().ActiveMTU:
		a.ctr.InvalidMTU++
		return mad.ReasonInvalidMTU
	case r.Primary.LocalGID != m.from.DGID || r.Primary.RemoteGID != m.from.SGID:
		return mad.ReasonInvalidGID
	case l == nil:
		a.ctr.NoService++
		return mad.ReasonInvalidServiceID
	case a.Len() >= a.cfg.MaxConns:
		a.ctr.LimitConnections++
		return mad.ReasonNoResources
	}
	return 0
}

// Bounds of the timers that a REQ imposes, which an attacker can send under any address: the interval between two REPs, and
// the time until the agent gives up a silent peer. Linux's rdma_cm requests 4.4 s and 70 s.
const (
	maxInterval   = 9 * time.Second
	maxUnanswered = 72 * time.Second
)

// request creates the connection of an admitted REQ and reports it.
func (a *Agent) request(m *message, r *mad.REQ, l *Listener) {
	c := a.newConn(rocev2.MADRoute{
		SGID: m.from.SGID, DGID: m.from.DGID, TrafficClass: r.Primary.TrafficClass,
		HopLimit: r.Primary.HopLimit, FlowLabel: r.Primary.FlowLabel,
	}, l.handler)
	c.setState(StateREQReceived)
	c.passive, c.remoteID, c.tid = true, r.LocalCommID, m.TID
	c.altPath = r.Alternate.LocalGID != [16]byte{}
	c.attr = QPAttr{
		Route: c.route, RemoteQPN: bth.QPN(r.LocalQPN), SQPSN: bth.MakePSN(r.StartingPSN), PathMTU: qp.MTU(r.PathMTU),
		Timeout: r.Primary.LocalAckTimeout, RetryCount: r.RetryCount, RNRRetry: r.RNRRetry,
	}
	c.interval = min(timeout(r.LocalCMTimeout)+timeout(r.Primary.LocalAckTimeout), maxInterval)
	c.retries = min(r.MaxCMRetries, uint8(maxUnanswered/c.interval-1))
	a.requests[peerID{c.route.DGID, c.remoteID}] = c
	if k := c.peerQP(); a.peers[k] == nil {
		a.peers[k] = c
	}
	c.listener = l
	c.count(unread)
	c.emit(m.now, &Event{Kind: ConnectRequest, PrivateData: r.PrivateData, Conn: ConnInfo{
		Listener: l, ServiceID: r.ServiceID, Type: r.Type,
		RemoteQPN: c.attr.RemoteQPN, ResponderResources: r.InitiatorDepth, InitiatorDepth: r.ResponderResources,
		RetryCount: r.RetryCount, RNRRetry: r.RNRRetry, FlowControl: r.FlowControl, SRQ: r.SRQ,
		PathMTU: c.attr.PathMTU,
	}})
}

// complete ends the handshake of a passive connection, whose peer has received our REP, and reports it.
//
// An older connection with the same queue pair of the peer is stale: the peer has no record of it. According to the
// specification a REQ proves that, and is rejected (IBTA vol.1 12.9.8.3.1). But an attacker that forges addresses can send
// REQs, and only the peer can know the IDs of our REP. So the agent sends the REP first, and does not reject a peer that
// has restarted.
func (c *Conn) complete(now mono.Time, private []byte) {
	a, k := c.agent, c.peerQP()
	old := a.peers[k]
	a.peers[k] = c
	c.setState(StateEstablished)
	if old != nil && old != c {
		a.ctr.Stale++
		old.stale(now)
	}
	c.emit(now, &Event{Kind: Established, PrivateData: private})
}

// stale ends a connection whose peer uses its queue pair for another connection.
func (c *Conn) stale(now mono.Time) {
	if c.state == StateEstablished {
		c.timewait(now)
		c.emit(now, &Event{Kind: Disconnected})
		return
	}
	c.forget()
	c.emit(now, &Event{Kind: Rejected, Reason: mad.ReasonStaleConnection})
}

func (p *AcceptParam) check() error {
	if len(p.PrivateData) > mad.REPPrivateLen {
		return ErrPrivateData
	}
	if p.QPN < 2 || p.QPN > bth.MaxQPN || p.TargetAckDelay > 31 || p.RNRRetry > 7 {
		return ErrInvalid
	}
	return nil
}

// Accept sends the REP. The queue pair must be able to receive. Established, Rejected or Unreachable follows.
func (c *Conn) Accept(now mono.Time, p *AcceptParam) error {
	if c.state != StateREQReceived {
		return ErrState
	}
	if err := p.check(); err != nil {
		return err
	}
	c.setState(StateREPSent)
	c.count(unanswered)
	c.localQPN = p.QPN
	c.attr.RQPSN, c.attr.MaxRdAtomic, c.attr.MaxDestRdAtomic = p.StartingPSN, p.InitiatorDepth, p.ResponderResources
	r := mad.REP{
		LocalCommID: c.id, RemoteCommID: c.remoteID, LocalQKey: p.QKey, LocalQPN: uint32(p.QPN),
		StartingPSN: p.StartingPSN.Uint32(), ResponderResources: p.ResponderResources,
		InitiatorDepth: p.InitiatorDepth, TargetAckDelay: p.TargetAckDelay, FlowControl: p.FlowControl,
		RNRRetry: p.RNRRetry, SRQ: p.SRQ, LocalCAGUID: c.agent.cfg.GUID, PrivateData: p.PrivateData,
	}
	if c.altPath {
		r.FailoverAccepted = failoverUnsupported
	}
	r.Put(start(&c.m, mad.AttrREP, c.tid))
	l := c.listener
	c.transmit(now)
	l.limitUnanswered(now)
	return nil
}

// failoverUnsupported in a REP means that there are no alternate paths (IBTA vol.1 12.7.36).
const failoverUnsupported = 1

// CommEstablished reports data on a connection whose RTU has not arrived (IBTA vol.1 12.9.7.2: communication established).
func (c *Conn) CommEstablished(now mono.Time) error {
	switch c.state {
	case StateREPSent:
		c.complete(now, nil)
	case StateEstablished: // the RTU has arrived first
	default:
		return ErrState
	}
	return nil
}

// receiveRTU handles the end of the handshake.
func (a *Agent) receiveRTU(m *message) {
	var r mad.Notice
	r.Decode(m.Attr, m.b)
	c := a.known(m, r.LocalCommID, r.RemoteCommID)
	switch {
	case c == nil:
	case c.state == StateREPSent:
		c.complete(m.now, r.PrivateData)
	default:
		a.ctr.Duplicates.count(m.Attr)
	}
}

// receiveMRA extends the time for the peer's answer.
func (a *Agent) receiveMRA(m *message) {
	var r mad.MRA
	r.Decode(m.b)
	c := a.conns[r.RemoteCommID]
	if c == nil || c.route.DGID != m.from.DGID || c.state != StateREQSent && c.state != StateREPSent {
		a.ctr.Unexpected++
		return
	}
	a.timers.Set(&c.timer, m.now.Add(timeout(r.ServiceTimeout)+c.interval))
	c.emit(m.now, &Event{Kind: DelayRequested, PrivateData: r.PrivateData})
}

// receiveREJ handles a rejection.
func (a *Agent) receiveREJ(m *message) {
	var r mad.REJ
	r.Decode(m.b)
	c := a.conns[r.RemoteCommID]
	if r.RemoteCommID == 0 && r.Reason == mad.ReasonTimeout { // the peer does not know our ID
		c = a.requests[peerID{m.from.DGID, r.LocalCommID}]
	}
	if c == nil || c.route.DGID != m.from.DGID ||
		r.LocalCommID != 0 && c.remoteID != 0 && c.remoteID != r.LocalCommID {
		a.ctr.Unexpected++
		return
	}
	switch c.state {
	case StateREQSent, StateREQReceived, StateREPSent, StateREPReceived:
		c.forget()
		c.emit(m.now, &Event{Kind: Rejected, Reason: r.Reason, ARI: r.ARI, PrivateData: r.PrivateData})
	case StateEstablished: // the peer has not received our RTU, or has no record of us
		c.timewait(m.now)
		c.emit(m.now, &Event{Kind: Disconnected, PrivateData: r.PrivateData})
	case StateDREQSent:
		c.timewait(m.now)
		c.emit(m.now, &Event{Kind: DisconnectReplied})
	default:
		a.ctr.Duplicates.count(m.Attr)
	}
}
