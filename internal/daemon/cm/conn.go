package cm

import (
	"encoding/binary"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// State is the state of a connection (IBTA vol.1 12.9.7).
type State uint8

// States of a connection.
const (
	StateClosed      State = iota // ended; the agent has no record of it
	StateREQSent                  // waits for REP
	StateREQReceived              // waits for the owner
	StateREPSent                  // waits for RTU
	StateREPReceived              // waits for the owner
	StateEstablished
	StateDREQSent     // waits for DREP
	StateDREQReceived // waits for the owner
	StateTimewait     // waits until no packets remain in the network
)

var stateNames = [...]string{"closed", "REQ sent", "REQ received", "REP sent", "REP received",
	"established", "DREQ sent", "DREQ received", "timewait"}

func (s State) String() string { return stateNames[s] }

// Conn is a connection, from the first message to the end of timewait.
type Conn struct {
	Ctx any // for the owner

	agent    *Agent
	handler  Handler // nil: the owner has closed it
	gone     func()  // see CloseThen; nil: none
	state    State
	route    rocev2.MADRoute
	id       uint32
	remoteID uint32
	tid      uint64
	passive  bool
	localQPN bth.QPN
	attr     QPAttr
	listener *Listener // that counts it, see counted
	counted  counted
	node     list.Node[*Conn] // in the listener's unanswered connections
	altPath  bool             // REQ has an alternate path

	timer    timer
	interval time.Duration // between transmissions of m
	retries  uint8         // for each message
	left     uint8         // remaining retries of m
	mra      uint8         // service timeout that we request
	m        [mad.Len]byte // message to retransmit, on a timeout or on a duplicate
}

// defaultMRA is the service timeout in the answer to a duplicate request whose owner has not decided: 69 s, as in Linux's
// rdma_cm.
const defaultMRA = 24

// State returns the state of the connection.
func (c *Conn) State() State { return c.state }

// Route returns the route to the peer.
func (c *Conn) Route() rocev2.MADRoute { return c.route }

// QPAttr returns the attributes of the local queue pair.
func (c *Conn) QPAttr() QPAttr { return c.attr }

// newConn returns a new connection in the agent's tables.
func (a *Agent) newConn(r rocev2.MADRoute, h Handler) *Conn {
	c := &Conn{agent: a, handler: h, route: r, id: a.newID(), mra: defaultMRA}
	c.timer.Item, c.node.Item = c, c
	a.conns[c.id] = c
	return c
}

// peerQP returns the key of the peer's queue pair.
func (c *Conn) peerQP() peerQP { return peerQP{c.route.DGID, c.attr.RemoteQPN} }

// setState changes the state, stops the timer and ends the waiting for an answer of the peer.
func (c *Conn) setState(s State) {
	c.agent.timers.Remove(&c.timer)
	if c.counted == unanswered {
		c.count(nothing)
	}
	c.state = s
}

// leaveQP removes the peer's queue pair from the connected ones.
func (c *Conn) leaveQP() {
	if k := c.peerQP(); c.agent.peers[k] == c {
		delete(c.agent.peers, k)
	}
}

// forget ends the connection without timewait.
func (c *Conn) forget() {
	c.setState(StateClosed)
	c.leaveQP()
	delete(c.agent.conns, c.id)
	if c.gone != nil {
		c.gone()
	}
	if c.passive {
		delete(c.agent.requests, peerID{c.route.DGID, c.remoteID})
	}
}

// emit reports e to the owner. It must be the last step of an input, because the owner may do anything to the connection.
func (c *Conn) emit(now mono.Time, e *Event) {
	if c.handler != nil {
		c.handler.CMEvent(now, c, nil, e)
	}
}

// transmit sends m and retransmits it until setState.
func (c *Conn) transmit(now mono.Time) {
	c.left = c.retries
	c.agent.timers.Set(&c.timer, now.Add(c.interval))
	c.agent.send(now, c.route, &c.m)
}

// repeat retransmits m.
func (c *Conn) repeat(now mono.Time) {
	c.agent.ctr.Retries.count(attrOf(&c.m))
	c.agent.send(now, c.route, &c.m)
}

// expired follows a timeout.
func (c *Conn) expired(now mono.Time) {
	if c.state == StateTimewait {
		c.forget()
		c.emit(now, &Event{Kind: TimewaitExit})
		return
	}
	if c.left > 0 {
		c.left--
		c.agent.timers.Set(&c.timer, now.Add(c.interval))
		c.repeat(now)
		return
	}
	if c.state == StateDREQSent {
		c.timewait(now)
		c.emit(now, &Event{Kind: DisconnectReplied, TimedOut: true})
		return
	}
	c.giveUp(now)
}

// giveUp ends a connection whose peer does not answer.
func (c *Conn) giveUp(now mono.Time) {
	c.sendREJ(now, mad.ReasonTimeout, nil, nil)
	c.forget()
	c.emit(now, &Event{Kind: Unreachable})
}

// timewait starts the interval in which packets of the connection may still arrive (IBTA vol.1 12.9.8.4).
func (c *Conn) timewait(now mono.Time) {
	c.setState(StateTimewait)
	c.leaveQP()
	c.agent.timers.Set(&c.timer, now.Add(2*timeout(c.attr.Timeout)))
}

// sendREJ rejects the peer's last message. A timeout names our channel adapter, which identifies the sender (IBTA vol.1
// 12.6.7.2).
func (c *Conn) sendREJ(now mono.Time, reason mad.Reason, ari, private []byte) {
	r := mad.REJ{
		LocalCommID: c.id, RemoteCommID: c.remoteID, Answers: mad.MsgOther,
		Reason: reason, ARI: ari, PrivateData: private,
	}
	switch c.state {
	case StateREQReceived:
		r.Answers, r.LocalCommID = mad.MsgREQ, 0
	case StateREPReceived:
		r.Answers = mad.MsgREP
	}
	if reason == mad.ReasonTimeout {
		r.ARI = binary.BigEndian.AppendUint64(nil, c.agent.cfg.GUID)
	}
	r.Put(start(&c.agent.out, mad.AttrREJ, c.tid))
	c.agent.send(now, c.route, &c.agent.out)
}

// sendMRA requests more time to answer the peer's last message.
func (c *Conn) sendMRA(now mono.Time, private []byte) {
	r := mad.MRA{LocalCommID: c.id, RemoteCommID: c.remoteID, ServiceTimeout: c.mra, PrivateData: private}
	if c.state == StateREPReceived {
		r.Answers = mad.MsgREP
	}
	r.Put(start(&c.agent.out, mad.AttrMRA, c.tid))
	c.agent.send(now, c.route, &c.agent.out)
}

// Reject rejects the reported request or reply and ends the connection.
func (c *Conn) Reject(now mono.Time, reason mad.Reason, ari, private []byte) error {
	if c.state != StateREQReceived && c.state != StateREPReceived {
		return ErrState
	}
	if len(ari) > mad.ARILen || len(private) > mad.REJPrivateLen {
		return ErrPrivateData
	}
	c.count(nothing)
	c.sendREJ(now, reason, ari, private)
	c.forget()
	return nil
}

// Delay informs the peer that the decision on its request or reply takes up to 4.096 us * 2^serviceTimeout. Without Delay,
// the agent sends that on a duplicate message.
func (c *Conn) Delay(now mono.Time, serviceTimeout uint8, private []byte) error {
	if c.state != StateREQReceived && c.state != StateREPReceived {
		return ErrState
	}
	if serviceTimeout > 31 {
		return ErrInvalid
	}
	if len(private) > mad.MRAPrivateLen {
		return ErrPrivateData
	}
	c.mra = serviceTimeout
	c.sendMRA(now, private)
	return nil
}

// Close ends the connection for its owner, in any state. No more events follow. The agent informs the peer and completes
// the remaining states.
func (c *Conn) Close(now mono.Time) { c.CloseThen(now, nil) }

// CloseThen is Close. It calls gone, if not nil, when the connection uses no more memory of the agent.
func (c *Conn) CloseThen(now mono.Time, gone func()) {
	if c.state == StateClosed && gone != nil {
		gone()
		return
	}
	c.handler, c.gone = nil, gone
	c.count(nothing)
	switch c.state {
	case StateREQSent:
		c.sendREJ(now, mad.ReasonTimeout, nil, nil)
		c.forget()
	case StateREQReceived, StateREPSent, StateREPReceived:
		c.sendREJ(now, mad.ReasonConsumerDefined, nil, nil)
		c.forget()
	case StateEstablished:
		c.sendDREQ(now, nil)
	case StateDREQReceived:
		c.sendDREP(now, nil)
	}
}
