package cm

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// SIDR is one resolution of a service ID to a queue pair for datagrams, on the requesting or the replying side (IBTA vol.1
// 12.11).
type SIDR struct {
	agent    *Agent // nil after the end
	handler  Handler
	route    rocev2.MADRoute
	id       uint32 // request ID, of the requesting side
	tid      uint64
	service  uint64
	listener *Listener // on the replying side
	unread   bool      // the owner has not read the request

	timer    timer
	interval time.Duration
	left     uint8
	m        [mad.Len]byte // SIDR_REQ
}

// Route returns the route to the peer.
func (s *SIDR) Route() rocev2.MADRoute { return s.route }

// Resolve sends a SIDR_REQ. h gets the outcome: SIDRReply, Rejected or Unreachable.
func (a *Agent) Resolve(now mono.Time, p *SIDRParam, h Handler) (*SIDR, error) {
	if len(p.PrivateData) > mad.SIDRREQPrivateLen {
		return nil, ErrPrivateData
	}
	if h == nil || p.Timeout > 31 || p.MaxCMRetries > 15 {
		return nil, ErrInvalid
	}
	if a.Len() >= a.cfg.MaxConns {
		return nil, ErrLimit
	}
	s := &SIDR{
		agent: a, handler: h, route: p.Route, id: a.newID(), service: p.ServiceID,
		interval: timeout(p.Timeout), left: p.MaxCMRetries,
	}
	s.tid = tid(s.id)
	s.timer.Item = s
	r := mad.SIDRREQ{RequestID: s.id, PKey: bth.DefaultPKey, ServiceID: p.ServiceID, PrivateData: p.PrivateData}
	r.Put(start(&s.m, mad.AttrSIDRREQ, s.tid))
	a.queries[s.id] = s
	a.timers.Set(&s.timer, now.Add(s.interval))
	a.send(now, s.route, &s.m)
	return s, nil
}

// expired follows a timeout.
func (s *SIDR) expired(now mono.Time) {
	if s.left == 0 {
		s.finish(now, &Event{Kind: Unreachable})
		return
	}
	s.left--
	s.agent.ctr.Retries.count(mad.AttrSIDRREQ)
	s.agent.timers.Set(&s.timer, now.Add(s.interval))
	s.agent.send(now, s.route, &s.m)
}

// forget ends the exchange.
func (s *SIDR) forget() {
	a := s.agent
	s.agent = nil
	a.timers.Remove(&s.timer)
	if s.listener != nil {
		s.Read()
		delete(a.asked, peerID{s.route.DGID, s.id})
	} else {
		delete(a.queries, s.id)
	}
}

// Read reports that the program has read the request, as Conn.Read does.
func (s *SIDR) Read() {
	if s.unread {
		s.unread = false
		s.listener.pending--
	}
}

// finish ends the exchange and reports e to the owner.
func (s *SIDR) finish(now mono.Time, e *Event) {
	s.forget()
	s.handler.CMEvent(now, nil, s, e)
}

// receiveSIDRREQ handles a request for a queue pair.
func (a *Agent) receiveSIDRREQ(m *message) {
	var r mad.SIDRREQ
	r.Decode(m.b)
	key := peerID{m.from.DGID, r.RequestID}
	if a.asked[key] != nil {
		a.ctr.Duplicates.count(m.Attr)
		return
	}
	l := a.find(r.ServiceID, m.from.SGID, true)
	s := &SIDR{agent: a, route: m.from, id: r.RequestID, tid: m.TID, service: r.ServiceID, listener: l}
	switch {
	case l == nil:
		a.ctr.NoService++
		s.sendREP(m.now, &SIDRReplyParam{Status: mad.SIDRUnsupportedServiceID})
		return
	case l.full():
		a.ctr.BacklogFull++ // the peer retries
		return
	case a.Len() >= a.cfg.MaxConns:
		a.ctr.LimitConnections++
		return
	}
	s.handler = l.handler
	l.pending++
	s.unread = true
	a.asked[key] = s
	s.handler.CMEvent(m.now, nil, s, &Event{
		Kind: SIDRRequest, PrivateData: r.PrivateData,
		SIDR: SIDRInfo{Listener: l, ServiceID: r.ServiceID},
	})
}

// Reply answers the request and ends the exchange.
func (s *SIDR) Reply(now mono.Time, p *SIDRReplyParam) error {
	if s.agent == nil || s.listener == nil {
		return ErrState
	}
	if len(p.PrivateData) > mad.SIDRREPPrivateLen {
		return ErrPrivateData
	}
	if p.QPN > bth.MaxQPN {
		return ErrInvalid
	}
	s.sendREP(now, p)
	s.forget()
	return nil
}

func (s *SIDR) sendREP(now mono.Time, p *SIDRReplyParam) {
	r := mad.SIDRREP{
		RequestID: s.id, Status: p.Status, QPN: uint32(p.QPN), ServiceID: s.service, QKey: p.QKey,
		PrivateData: p.PrivateData,
	}
	r.Put(start(&s.agent.out, mad.AttrSIDRREP, s.tid))
	s.agent.send(now, s.route, &s.agent.out)
}

// receiveSIDRREP handles the answer to our request.
func (a *Agent) receiveSIDRREP(m *message) {
	var r mad.SIDRREP
	r.Decode(m.b)
	s := a.queries[r.RequestID]
	if s == nil || s.route.DGID != m.from.DGID {
		a.ctr.Unexpected++
		return
	}
	e := Event{Kind: SIDRReply, PrivateData: r.PrivateData, SIDR: SIDRInfo{
		ServiceID: r.ServiceID, QPN: bth.QPN(r.QPN), QKey: r.QKey, Status: r.Status,
	}}
	if r.Status != mad.SIDRSuccess {
		e.Kind, e.ARI = Rejected, r.Info
	}
	s.finish(m.now, &e)
}

// Close ends the exchange for its owner, in any state. No more events follow. It rejects a waiting peer.
func (s *SIDR) Close(now mono.Time) {
	if s.agent == nil {
		return
	}
	if s.listener != nil {
		s.sendREP(now, &SIDRReplyParam{Status: mad.SIDRRejectedByProvider})
	}
	s.forget()
}
