package cm

import (
	"math/bits"
	"math/rand/v2"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Agent is the connection manager of one NIC.
type Agent struct {
	cfg       Config
	ids       *rand.ChaCha8
	conns     map[uint32]*Conn // by local communication ID
	requests  map[peerID]*Conn // passive ones, by the peer's communication ID
	peers     map[peerQP]*Conn // by the peer's queue pair; none in timewait
	queries   map[uint32]*SIDR // our SIDR_REQs, by request ID
	asked     map[peerID]*SIDR // SIDR_REQs of peers
	listeners map[service]*Listener
	masked    []*Listener // those with a mask
	timers    sched.Deadlines[expirer]
	ctr       Counters
	out       [mad.Len]byte // a datagram without retransmission
}

// peerID identifies an exchange that a peer has started.
type peerID struct {
	gid inet.GID
	id  uint32
}

// peerQP identifies a queue pair of a peer.
type peerQP struct {
	gid inet.GID
	qpn bth.QPN
}

// New returns an agent without connections.
func New(cfg Config) *Agent {
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 65536
	}
	return &Agent{
		cfg: cfg, ids: rand.NewChaCha8(cfg.Seed),
		conns: map[uint32]*Conn{}, requests: map[peerID]*Conn{}, peers: map[peerQP]*Conn{},
		queries: map[uint32]*SIDR{}, asked: map[peerID]*SIDR{},
		listeners: map[service]*Listener{},
	}
}

// Len returns the number of connections and SIDR exchanges in all states.
func (a *Agent) Len() int { return len(a.conns) + len(a.queries) + len(a.asked) }

// NextTimeout returns when Advance is due.
func (a *Agent) NextTimeout() mono.Time { return a.timers.Next() }

// Advance fires the timers that are due, each once: retransmissions, failures and the end of timewait.
func (a *Agent) Advance(now mono.Time) {
	for range a.timers.Len() {
		t := a.timers.Take(now)
		if t == nil {
			return
		}
		t.Item.expired(now)
	}
}

// newID returns a communication or request ID that is not in use. It is unpredictable, so that an off-path attacker can
// neither reset a connection nor answer for a peer.
func (a *Agent) newID() uint32 {
	for {
		id := uint32(a.ids.Uint64())
		if id != 0 && a.conns[id] == nil && a.queries[id] == nil {
			return id
		}
	}
}

// tidAgent is the upper half of transaction IDs: in Linux the number of the MAD client. The connection manager is the
// second client.
const tidAgent = 2 << 32

// tid returns the transaction ID of an exchange with the local ID id. Linux stores the ID there in the byte order of a
// little-endian machine.
func tid(id uint32) uint64 { return tidAgent | uint64(bits.ReverseBytes32(id)) }

// send passes a datagram to the port.
func (a *Agent) send(now mono.Time, to rocev2.MADRoute, m *[mad.Len]byte) {
	if a.cfg.Port.SendMAD(now, to, m[:]) != nil {
		a.ctr.SendErrors++
		return
	}
	a.ctr.Sent.count(attrOf(m))
}

// attrOf returns the kind of a message that we have built.
func attrOf(m *[mad.Len]byte) mad.Attr {
	var h mad.Header
	_ = h.Decode(m[:]) // cannot fail: we have built it
	return h.Attr
}

// start writes the header of a message into m.
func start(m *[mad.Len]byte, attr mad.Attr, tid uint64) []byte {
	h := mad.CMHeader(attr, tid)
	h.Put(m[:])
	return m[:]
}

// message is a received datagram of the communication manager.
type message struct {
	now  mono.Time
	from rocev2.MADRoute
	mad.Header
	b []byte
}

// ReceiveMAD handles a management datagram from the peer of the route from.
func (a *Agent) ReceiveMAD(now mono.Time, from rocev2.MADRoute, b []byte) {
	m := message{now: now, from: from, b: b}
	if m.Decode(b) != nil || m.Class != mad.ClassCM || m.ClassVersion != mad.CMVersion {
		a.ctr.Malformed++
		return
	}
	a.ctr.Received.count(m.Attr)
	switch {
	case m.Method == mad.MethodGet && m.Attr == mad.AttrClassPortInfo:
		a.describe(&m)
	case m.Method != mad.MethodSend || handlers[m.Attr] == nil:
		a.ctr.Malformed++
	default:
		handlers[m.Attr](a, &m)
	}
}

// handlers handle the messages of the connection manager.
var handlers = map[mad.Attr]func(*Agent, *message){
	mad.AttrREQ:     (*Agent).receiveREQ,
	mad.AttrMRA:     (*Agent).receiveMRA,
	mad.AttrREJ:     (*Agent).receiveREJ,
	mad.AttrREP:     (*Agent).receiveREP,
	mad.AttrRTU:     (*Agent).receiveRTU,
	mad.AttrDREQ:    (*Agent).receiveDREQ,
	mad.AttrDREP:    (*Agent).receiveDREP,
	mad.AttrSIDRREQ: (*Agent).receiveSIDRREQ,
	mad.AttrSIDRREP: (*Agent).receiveSIDRREP,
	mad.AttrLAP:     (*Agent).refuseLAP,
	mad.AttrAPR:     func(a *Agent, _ *message) { a.ctr.Unexpected++ }, // we send no LAP
}

// describe answers a request for our ClassPortInfo (IBTA vol.1 12.9.1).
func (a *Agent) describe(m *message) {
	h := m.Header
	h.Method, h.Status = mad.MethodGetResp, mad.StatusOK
	h.Put(a.out[:])
	info := mad.ClassPortInfo{
		BaseVersion: 1, ClassVersion: mad.CMVersion, RespTime: 18,
		Capabilities: mad.CapReliableConnection | mad.CapUnreliableConnection | mad.CapSIDR,
	}
	info.Put(a.out[:])
	a.send(m.now, m.from, &a.out)
}

// refuseLAP rejects a request for an alternate path, which RoCE does not have.
func (a *Agent) refuseLAP(m *message) {
	var lap mad.Notice
	lap.Decode(m.Attr, m.b)
	if a.known(m, lap.LocalCommID, lap.RemoteCommID) == nil {
		return
	}
	r := mad.APR{LocalCommID: lap.RemoteCommID, RemoteCommID: lap.LocalCommID, Status: mad.APUnsupported}
	r.Put(start(&a.out, mad.AttrAPR, m.TID))
	a.send(m.now, m.from, &a.out)
}

// known returns the connection with the peer's ID remote and our ID local if the message comes from its peer. Otherwise it
// counts the message as unexpected and returns nil.
func (a *Agent) known(m *message, remote, local uint32) *Conn {
	c := a.conns[local]
	if c == nil || c.remoteID != remote || c.route.DGID != m.from.DGID {
		a.ctr.Unexpected++
		return nil
	}
	return c
}

// refuse sends REJ for a message without a connection.
func (a *Agent) refuse(m *message, r mad.REJ) {
	r.Put(start(&a.out, mad.AttrREJ, m.TID))
	a.send(m.now, m.from, &a.out)
}
