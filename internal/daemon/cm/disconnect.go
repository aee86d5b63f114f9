package cm

import (
	"roced.io/roced/bth/mad"
	"roced.io/roced/plugin/mono"
)

// Disconnect sends the DREQ. DisconnectReplied follows, then TimewaitExit.
func (c *Conn) Disconnect(now mono.Time, private []byte) error {
	if c.state != StateEstablished {
		return ErrState
	}
	if len(private) > mad.DREQPrivateLen {
		return ErrPrivateData
	}
	c.sendDREQ(now, private)
	return nil
}

func (c *Conn) sendDREQ(now mono.Time, private []byte) {
	c.setState(StateDREQSent)
	c.leaveQP()
	n := mad.Notice{
		LocalCommID: c.id, RemoteCommID: c.remoteID, RemoteQPN: uint32(c.attr.RemoteQPN), PrivateData: private,
	}
	n.Put(mad.AttrDREQ, start(&c.m, mad.AttrDREQ, tid(c.id)))
	c.transmit(now)
}

// DisconnectReply answers the peer's DREQ. TimewaitExit follows.
func (c *Conn) DisconnectReply(now mono.Time, private []byte) error {
	if c.state != StateDREQReceived {
		return ErrState
	}
	if len(private) > mad.DREPPrivateLen {
		return ErrPrivateData
	}
	c.sendDREP(now, private)
	return nil
}

func (c *Conn) sendDREP(now mono.Time, private []byte) {
	c.putNotice(&c.m, mad.AttrDREP, private)
	c.agent.send(now, c.route, &c.m)
	c.timewait(now)
}

// putNotice writes an RTU or DREP into m.
func (c *Conn) putNotice(m *[mad.Len]byte, attr mad.Attr, private []byte) {
	n := mad.Notice{LocalCommID: c.id, RemoteCommID: c.remoteID, PrivateData: private}
	n.Put(attr, start(m, attr, c.tid))
}

// receiveDREQ handles the peer's request to end the connection. It confirms the end of an unknown connection, so that the
// peer does not wait.
func (a *Agent) receiveDREQ(m *message) {
	var r mad.Notice
	r.Decode(m.Attr, m.b)
	c := a.known(m, r.LocalCommID, r.RemoteCommID)
	if c == nil {
		n := mad.Notice{LocalCommID: r.RemoteCommID, RemoteCommID: r.LocalCommID}
		n.Put(mad.AttrDREP, start(&a.out, mad.AttrDREP, m.TID))
		a.send(m.now, m.from, &a.out)
		return
	}
	if r.RemoteQPN != uint32(c.localQPN) {
		a.ctr.Malformed++
		return
	}
	switch c.state {
	case StateREPSent, StateEstablished:
		c.setState(StateDREQReceived)
		c.leaveQP()
		c.tid = m.TID
		c.emit(m.now, &Event{Kind: Disconnected, DREQ: true, PrivateData: r.PrivateData})
	case StateDREQSent: // both sides at the same time
		c.tid = m.TID
		c.sendDREP(m.now, nil)
		c.emit(m.now, &Event{Kind: DisconnectReplied, PrivateData: r.PrivateData})
	case StateTimewait: // our DREP was lost
		a.ctr.Duplicates.count(m.Attr)
		c.tid = m.TID
		c.putNotice(&c.m, mad.AttrDREP, nil)
		c.repeat(m.now)
	default:
		a.ctr.Duplicates.count(m.Attr)
	}
}

// receiveDREP handles the answer to our DREQ.
func (a *Agent) receiveDREP(m *message) {
	var r mad.Notice
	r.Decode(m.Attr, m.b)
	c := a.known(m, r.LocalCommID, r.RemoteCommID)
	switch {
	case c == nil:
	case c.state == StateDREQSent:
		c.timewait(m.now)
		c.emit(m.now, &Event{Kind: DisconnectReplied, PrivateData: r.PrivateData})
	default:
		a.ctr.Duplicates.count(m.Attr)
	}
}
