package dut

import (
	"fmt"
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// manager is the connection manager of nicAgent, as rdma_cm has it.
type manager struct {
	*cm.Agent
	conns     map[string]*cm.Conn // by the name of their listener, or by their own
	asked     map[string]*cm.SIDR // likewise
	listeners map[string]*cm.Listener
}

func (m *manager) start(a *nicAgent, seed [32]byte) {
	m.conns, m.asked, m.listeners = map[string]*cm.Conn{}, map[string]*cm.SIDR{}, map[string]*cm.Listener{}
	m.Agent = cm.New(cm.Config{Port: a.nic, GUID: 1, Seed: seed})
	a.nic.SetGSI(m.Agent)
}

// owner reports the events of a listener or connection under its name.
type owner struct {
	a    *nicAgent
	name string
}

// managerEvents are the events of rdma_cm without RDMA_CM_EVENT_.
var managerEvents = map[cm.EventKind]string{cm.ConnectRequest: "CONNECT_REQUEST", cm.ConnectReply: "CONNECT_RESPONSE",
	cm.Established: "ESTABLISHED", cm.Rejected: "REJECTED", cm.Unreachable: "UNREACHABLE", cm.Disconnected: "DISCONNECTED",
	cm.DisconnectReplied: "DISCONNECTED", cm.TimewaitExit: "TIMEWAIT_EXIT", cm.SIDRRequest: "CONNECT_REQUEST", cm.SIDRReply: "ESTABLISHED"}

// CMEvent implements cm.Handler.
func (o owner) CMEvent(_ mono.Time, c *cm.Conn, s *cm.SIDR, e *cm.Event) {
	if e.Kind == cm.ConnectRequest {
		o.a.cm.conns[o.name] = c
	}
	if e.Kind == cm.SIDRRequest {
		o.a.cm.asked[o.name] = s
	}
	name := managerEvents[e.Kind]
	if e.Kind == cm.Rejected && s != nil { // cma_sidr_rep_handler of Linux
		name = "UNREACHABLE"
	}
	if name != "" {
		line := fmt.Sprintf("event on=%s type=%s private=%x", o.name, name, userData(e))
		switch c := &e.Conn; e.Kind {
		case cm.ConnectRequest:
			line += fmt.Sprintf(" retry=%d", c.RetryCount)
			fallthrough
		case cm.ConnectReply:
			line += fmt.Sprintf(" resources=%d depth=%d rnr_retry=%d peer=%d", c.ResponderResources, c.InitiatorDepth, c.RNRRetry, c.RemoteQPN)
		case cm.SIDRReply:
			line += fmt.Sprintf(" peer=%d qkey=%d", e.SIDR.QPN, e.SIDR.QKey)
		case cm.Rejected:
			line += fmt.Sprintf(" reason=%d", e.Reason)
		}
		o.a.events = append(o.a.events, line)
	}
}

// userData returns the private data of a message behind the header of rdma_cm, which a REQ has.
func userData(e *cm.Event) []byte {
	const header = 36
	if (e.Kind == cm.ConnectRequest || e.Kind == cm.SIDRRequest) && len(e.PrivateData) >= header {
		return e.PrivateData[header:]
	}
	return e.PrivateData
}

// private returns the private data of the argument "private".
func (r *request) private() (b []byte) {
	if s := r.args["private"]; s != "" {
		_, r.err = fmt.Sscanf(s, "%x", &b)
	}
	return b
}

// datagrams reports whether the argument asks for a service of datagrams.
func (r *request) datagrams() bool { return r.number("udp", 0) != 0 }

// service returns the service ID of an argument, a TCP or UDP port.
func (r *request) service() uint64 {
	const portsTCP, portsUDP = 0x0106, 0x0111
	space := uint16(portsTCP)
	if r.datagrams() {
		space = portsUDP
	}
	return mad.IPServiceID(space, uint16(r.number("port", 7471)))
}

func (a *nicAgent) listen(r *request) (string, error) {
	l, err := a.cm.Listen(cm.ListenParam{ServiceID: r.service(), Datagram: r.datagrams(), Backlog: int(r.number("backlog", 16))}, owner{a, r.args["name"]})
	a.cm.listeners[r.args["name"]] = l
	return "", err
}

// cmRetries is the retry count and the RNR retry count of all REQs and REPs, as of the agent in C.
const cmRetries = 7

func (a *nicAgent) connect(r *request) (string, error) {
	const ackTimeout, mtu1024, hopLimit = 14, 3, 64
	src, dst := r.addresses()
	route := rocev2.MADRoute{SGID: inet.GIDOf(src), DGID: inet.GIDOf(dst), HopLimit: hopLimit}
	if r.datagrams() {
		_, err := a.cm.Resolve(a.now, &cm.SIDRParam{Route: route, ServiceID: r.service(),
			Timeout: uint8(r.number("cm_timeout", 20)), MaxCMRetries: uint8(r.number("cm_retries", 15)), PrivateData: r.header(src, dst)}, owner{a, r.args["name"]})
		return "", err
	}
	c, err := a.cm.Connect(a.now, &cm.ConnectParam{Route: route,
		ServiceID: r.service(), QPN: bth.QPN(r.number("qpn", 2)), StartingPSN: r.psn(), ResponderResources: uint8(r.number("resources", 1)),
		InitiatorDepth: uint8(r.number("depth", 1)), RetryCount: cmRetries, RNRRetry: cmRetries, PathMTU: mtu1024, LocalAckTimeout: ackTimeout,
		LocalCMTimeout: uint8(r.number("cm_timeout", 20)), RemoteCMTimeout: uint8(r.number("cm_timeout", 20)),
		MaxCMRetries: uint8(r.number("cm_retries", 15)), PrivateData: r.header(src, dst)}, owner{a, r.args["name"]})
	a.cm.conns[r.args["name"]] = c
	return "", err
}

// header returns the private data of a REQ: the header of rdma_cm, and those of the argument.
func (r *request) header(src, dst netip.Addr) []byte {
	data := r.private()
	if data == nil {
		return nil
	}
	ip := mad.IPCM{Src: src, Dst: dst}
	return append(ip.Append(nil), data...)
}

// psn returns the first PSN of the peer's requests.
func (r *request) psn() bth.PSN { return bth.MakePSN(uint32(r.number("psn", 0)) & 0xffffff) }

// datagramKey is the Q_Key of rdma_cm's datagrams (RDMA_UDP_QKEY).
const datagramKey = 0x01234567

func (a *nicAgent) accept(r *request) (string, error) {
	if s := a.cm.asked[r.args["on"]]; s != nil {
		return "", s.Reply(a.now, &cm.SIDRReplyParam{QPN: bth.QPN(r.number("qpn", 2)), QKey: datagramKey, PrivateData: r.private()})
	}
	c, err := find(a.cm.conns, r.args["on"])
	if err != nil {
		return "", err
	}
	return "", c.Accept(a.now, &cm.AcceptParam{QPN: bth.QPN(r.number("qpn", 2)), StartingPSN: r.psn(),
		ResponderResources: uint8(r.number("resources", 1)), InitiatorDepth: uint8(r.number("depth", 1)), RNRRetry: cmRetries, PrivateData: r.private()})
}

func (a *nicAgent) reject(r *request) (string, error) {
	c, err := find(a.cm.conns, r.args["on"])
	if err != nil {
		return "", err
	}
	return "", c.Reject(a.now, mad.Reason(r.number("reason", uint64(mad.ReasonConsumerDefined))), nil, r.private())
}

// attributes describes what rdma_cm gives to the queue pair of a connection.
func attributes(c *cm.Conn) string {
	at := c.QPAttr()
	return fmt.Sprintf("psn=%d rqpsn=%d peer=%d timeout=%d retry=%d rnr_retry=%d rd_atomic=%d dest_rd_atomic=%d mtu=%d", at.SQPSN.Uint32(), at.RQPSN.Uint32(),
		at.RemoteQPN, at.Timeout, at.RetryCount, at.RNRRetry, at.MaxRdAtomic, at.MaxDestRdAtomic, 128<<at.PathMTU)
}

func (a *nicAgent) establish(r *request) (string, error) {
	c, err := find(a.cm.conns, r.args["on"])
	if err != nil {
		return "", err
	}
	return "", c.Establish(a.now, nil)
}

// end ends a listener and its newest connection, or a connection. It reports whether there is one with that name.
func (m *manager) end(now mono.Time, name string) bool {
	l, c := m.listeners[name], m.conns[name]
	if l != nil {
		l.Close(now)
	}
	if c != nil {
		c.Close(now)
	}
	delete(m.listeners, name)
	delete(m.conns, name)
	return l != nil || c != nil
}

func (a *nicAgent) leave(r *request) (string, error) {
	c, err := find(a.cm.conns, r.args["on"])
	if err != nil {
		return "", err
	}
	if c.State() == cm.StateDREQReceived {
		return "", c.DisconnectReply(a.now, nil)
	}
	return "", c.Disconnect(a.now, nil)
}
