package cm_test

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

const service = 0x01061d2f

var errSend = fmt.Errorf("port is closed")

// datagram is a datagram in transit.
type datagram struct {
	to   *side
	from rocev2.MADRoute
	b    []byte
}

// side is an agent, its port and the owner of its connections.
type side struct {
	name  string
	gid   inet.GID
	agent *cm.Agent
	world *world
	down  bool // SendMAD fails

	conn  *cm.Conn // the newest
	sidr  *cm.SIDR
	lis   *cm.Listener
	conns []*cm.Conn
	react func(s *side, now mono.Time, c *cm.Conn, x *cm.SIDR, e *cm.Event)
}

// world consists of two agents and the link between them.
type world struct {
	a, b *side
	now  mono.Time
	air  []datagram
	log  strings.Builder
}

func newWorld(seed byte) *world {
	w := &world{}
	w.a, w.b = w.side("a", 1, seed), w.side("b", 2, seed)
	return w
}

func (w *world) side(name string, addr, seed byte) *side {
	s := &side{name: name, gid: inet.GID{10: 0xff, 11: 0xff, 12: 198, 13: 18, 15: addr}, world: w}
	s.agent = cm.New(cm.Config{Port: s, GUID: 0xff_fe00_0000 + uint64(addr), Seed: [32]byte{addr, seed}, MaxConns: 8})
	return s
}

func (s *side) peer() *side {
	if s == s.world.a {
		return s.world.b
	}
	return s.world.a
}

func (s *side) SendMAD(_ mono.Time, to rocev2.MADRoute, m []byte) error {
	if s.down {
		return errSend
	}
	dst := s.peer()
	if to.DGID == s.gid {
		dst = s
	}
	from := rocev2.MADRoute{SGID: to.DGID, DGID: to.SGID, TrafficClass: to.TrafficClass}
	s.world.air = append(s.world.air, datagram{dst, from, bytes.Clone(m)})
	return nil
}

// portMTU is the path MTU of both ports.
const portMTU = 3

func (s *side) PortAttr() rocev2.PortAttr { return rocev2.PortAttr{ActiveMTU: portMTU} }

func (s *side) route() rocev2.MADRoute {
	return rocev2.MADRoute{SGID: s.gid, DGID: s.peer().gid, HopLimit: 64, FlowLabel: 0xc2688}
}

var eventNames = map[cm.EventKind]string{
	cm.ConnectRequest: "connect request", cm.ConnectReply: "connect reply", cm.Established: "established",
	cm.Rejected: "rejected", cm.Unreachable: "unreachable", cm.DelayRequested: "delay requested",
	cm.Disconnected: "disconnected", cm.DisconnectReplied: "disconnect replied", cm.TimewaitExit: "timewait exit",
	cm.SIDRRequest: "SIDR request", cm.SIDRReply: "SIDR reply",
}

// CMEvent logs the event and stores its connection.
func (s *side) CMEvent(now mono.Time, c *cm.Conn, x *cm.SIDR, e *cm.Event) {
	if e.Kind == cm.ConnectRequest {
		s.conn = c
		s.conns = append(s.conns, c)
	}
	if e.Kind == cm.SIDRRequest {
		s.sidr = x
	}
	fmt.Fprintf(&s.world.log, "%s: %s", s.name, eventNames[e.Kind])
	if e.Reason != 0 {
		fmt.Fprintf(&s.world.log, " reason=%d", e.Reason)
	}
	if e.Kind == cm.Disconnected {
		fmt.Fprintf(&s.world.log, " dreq=%v", e.DREQ)
	}
	if e.TimedOut {
		s.world.log.WriteString(" timed out")
	}
	if x != nil && e.Kind != cm.SIDRRequest {
		fmt.Fprintf(&s.world.log, " status=%d qpn=%#x qkey=%#x", e.SIDR.Status, e.SIDR.QPN, e.SIDR.QKey)
	}
	if p := bytes.TrimRight(e.PrivateData, "\x00"); len(p) > 0 {
		fmt.Fprintf(&s.world.log, " %q", p)
	}
	s.world.log.WriteByte('\n')
	if s.react != nil {
		s.react(s, now, c, x, e)
	}
}

func (s *side) param(private string) *cm.ConnectParam {
	return &cm.ConnectParam{
		Route: s.route(), ServiceID: service, Type: mad.RC, QPN: 0x11, StartingPSN: bth.MakePSN(0x909dfc),
		ResponderResources: 3, InitiatorDepth: 4, RetryCount: 7, RNRRetry: 6, PathMTU: portMTU,
		LocalAckTimeout: 19, LocalCMTimeout: 20, RemoteCMTimeout: 20, MaxCMRetries: 3, PrivateData: []byte(private),
	}
}

func (s *side) connect(p *cm.ConnectParam) error {
	c, err := s.agent.Connect(s.world.now, p, s)
	if err == nil {
		s.conn = c
		s.conns = append(s.conns, c)
	}
	return err
}

func accept(qpn bth.QPN, private string) *cm.AcceptParam {
	return &cm.AcceptParam{
		QPN: qpn, StartingPSN: bth.MakePSN(0x36c7a9), ResponderResources: 2, InitiatorDepth: 1, TargetAckDelay: 15,
		RNRRetry: 5, PrivateData: []byte(private),
	}
}

var attrNames = map[mad.Attr]string{
	mad.AttrREQ: "REQ", mad.AttrMRA: "MRA", mad.AttrREJ: "REJ", mad.AttrREP: "REP", mad.AttrRTU: "RTU",
	mad.AttrDREQ: "DREQ", mad.AttrDREP: "DREP", mad.AttrSIDRREQ: "SIDR_REQ", mad.AttrSIDRREP: "SIDR_REP",
	mad.AttrLAP: "LAP", mad.AttrAPR: "APR", mad.AttrClassPortInfo: "ClassPortInfo",
}

// describe returns the fields of a datagram that distinguish the transitions.
func (d *datagram) describe() string {
	var h mad.Header
	if h.Decode(d.b) != nil {
		return "->" + d.to.name + " malformed"
	}
	s := "->" + d.to.name + " " + attrNames[h.Attr]
	switch h.Attr {
	case mad.AttrREJ:
		var r mad.REJ
		r.Decode(d.b)
		s += fmt.Sprintf(" answers=%d reason=%d ari=%x", r.Answers, r.Reason, r.ARI)
	case mad.AttrMRA:
		var r mad.MRA
		r.Decode(d.b)
		s += fmt.Sprintf(" answers=%d timeout=%d", r.Answers, r.ServiceTimeout)
	case mad.AttrClassPortInfo:
		var p mad.ClassPortInfo
		p.Decode(d.b)
		s += fmt.Sprintf(" method=%#x version=%d capabilities=%#x", h.Method, p.ClassVersion, p.Capabilities)
	}
	return s
}

// deliver delivers the oldest datagram.
func (w *world) deliver() {
	d := w.air[0]
	w.air = w.air[1:]
	d.to.agent.ReceiveMAD(w.now, d.from, d.b)
}

// advance advances the clock by d and fires the timers that expire.
func (w *world) advance(d time.Duration) {
	end := w.now.Add(d)
	for {
		next := w.a.agent.NextTimeout().Min(w.b.agent.NextTimeout())
		if next > end {
			w.now = end
			return
		}
		w.now = next
		w.a.agent.Advance(w.now)
		w.b.agent.Advance(w.now)
	}
}
