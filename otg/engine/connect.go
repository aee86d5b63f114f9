package engine

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Queue pairs connect by the messages of rdma_cm for a TCP port of this number. Behind rdma_cm's header, the private data shows
// the memory of the queue pair and its first PSN. A peer without them gets and gives PSNs as the messages of IBTA do.
const (
	servicePort = 18515
	portSpace   = 0x0106 // TCP
	shownMagic  = 0x4f544732
	shownLen    = 32
)

// Parameters of connection messages: 4.096 us * 2^18 is a second.
const (
	cmTimeout = 18
	cmRetries = 7
	rdAtomic  = 16
)

// shown is the information in private data that a queue pair sends to its peer.
type shown struct {
	va   uint64
	rkey uint32
	psn  uint32
	num  uint32
	name uint64 // identity of the queue pair by its name
}

func (s shown) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, shownMagic)
	b = binary.BigEndian.AppendUint64(b, s.va)
	b = binary.BigEndian.AppendUint32(b, s.rkey)
	b = binary.BigEndian.AppendUint32(b, s.psn)
	b = binary.BigEndian.AppendUint32(b, s.num)
	return binary.BigEndian.AppendUint64(b, s.name)
}

func (s *shown) decode(b []byte) bool {
	if len(b) < shownLen || binary.BigEndian.Uint32(b) != shownMagic {
		return false
	}
	s.va, s.rkey, s.psn = binary.BigEndian.Uint64(b[4:]), binary.BigEndian.Uint32(b[12:]), binary.BigEndian.Uint32(b[16:])&0xffffff
	s.num, s.name = binary.BigEndian.Uint32(b[20:])&0xffffff, binary.BigEndian.Uint64(b[24:])
	return true
}

// identity returns a number for a name, which queue pairs and raw flows have on the wire.
func identity(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64()
}

// shows returns the information that q sends to its peer.
func (q *pair) shows() shown {
	return shown{q.cfg.VirtualAddress, q.cfg.RemoteKey, q.cfg.PSN, uint32(q.q.Num()), identity(q.cfg.Name)}
}

// agree takes what the peer shows. told is the PSN that its message gives to q, and asked the one that q's message gave.
func (q *pair) agree(private []byte, told, asked bth.PSN) {
	q.ownPSN, q.farPSN = bth.MakePSN(q.cfg.PSN), asked
	if q.far.decode(private) {
		q.farPSN = bth.MakePSN(q.far.psn)
		return
	}
	q.far, q.ownPSN = shown{}, told
}

// listen accepts connections.
func (h *host) listen() error {
	_, err := h.agent.Listen(cm.ListenParam{ServiceID: mad.IPServiceID(portSpace, servicePort), Backlog: 4096}, h)
	return err
}

// count counts a connection message.
func (m *messages) count(a mad.Attr) {
	switch a {
	case mad.AttrREQ:
		m.req++
	case mad.AttrREP:
		m.rep++
	case mad.AttrRTU:
		m.rtu++
	case mad.AttrDREQ:
		m.dreq++
	case mad.AttrDREP:
		m.drep++
	case mad.AttrREJ:
		m.rej++
	default:
		m.other++
	}
}

// accept lets q accept connections, and ends a failed one. The end in another engine learns that the connection has ended.
func (q *pair) accept(now mono.Time) {
	q.up = true
	if q.state == pairFailed && q.cfg.Elsewhere {
		q.close(now)
	}
}

// connect begins to connect q if it is wanted, active and down.
func (q *pair) connect(now mono.Time) {
	if r := q.remote; r != nil && r.state == pairFailed && q.state == pairUp {
		q.disconnect(now)
	}
	if !q.up || !q.cfg.Active || q.state == pairConnecting || q.state == pairUp {
		return
	}
	q.close(now)
	own, far := q.peer.address.Prefix.Addr(), q.peer.cfg.Destination
	private := (&mad.IPCM{Src: own, Dst: far, SrcPort: servicePort}).Append(nil)
	asked := bth.MakePSN(q.askedPSN())
	var err error
	q.conn, err = q.host.agent.Connect(now, &cm.ConnectParam{
		Route: rocev2.MADRoute{SGID: q.gid(), DGID: inet.GIDOf(far)}, ServiceID: mad.IPServiceID(portSpace, servicePort),
		Type: mad.RC, QPN: q.q.Num(), StartingPSN: asked, ResponderResources: rdAtomic, InitiatorDepth: rdAtomic,
		RetryCount: q.host.port.cfg.RoCE.retries(), RNRRetry: 7, PathMTU: min(pathMTU(q.peer.cfg.PathMTU), q.host.core.PortAttr().ActiveMTU),
		LocalAckTimeout: timeoutCode(q.host.port.cfg.RoCE.Timeout), LocalCMTimeout: cmTimeout, RemoteCMTimeout: cmTimeout,
		MaxCMRetries: cmRetries, PrivateData: q.shows().append(private),
	}, q.host)
	if err != nil {
		q.fail(err.Error())
		return
	}
	q.conn.Ctx, q.state = q, pairConnecting
}

// askedPSN returns the first PSN that q gives to its peer: its own choice, if the peer is in this process.
func (q *pair) askedPSN() uint32 {
	if q.remote != nil {
		return q.remote.cfg.PSN
	}
	return 0
}

// disconnect ends the connection of q, or the attempt.
func (q *pair) disconnect(now mono.Time) {
	if q.state != pairDown && q.state != pairFailed {
		q.state = pairDown
		_ = q.reset(now)
	}
	q.close(now)
}

// close ends the use of the connection, which the agent completes.
func (q *pair) close(now mono.Time) {
	if c := q.conn; c != nil {
		q.conn, c.Ctx = nil, nil
		c.Close(now)
	}
}

// fail records the reason why q is not connected.
func (q *pair) fail(why string) {
	q.state, q.lastErr, q.peer.lastErr = pairFailed, why, why
}

// broken follows a completion in error. The next start connects again.
func (q *pair) broken(why string) {
	if q.state == pairUp {
		q.fail(why)
	}
}

// CMEvent implements cm.Handler.
func (h *host) CMEvent(now mono.Time, c *cm.Conn, _ *cm.SIDR, e *cm.Event) {
	if e.Kind == cm.ConnectRequest {
		h.requested(now, c, e)
		return
	}
	q, _ := c.Ctx.(*pair)
	if q == nil || q.conn != c {
		if e.Kind == cm.Disconnected && e.DREQ {
			_ = c.DisconnectReply(now, nil)
		}
		return
	}
	a := c.QPAttr()
	switch e.Kind {
	case cm.ConnectReply:
		q.agree(e.PrivateData, a.SQPSN, a.RQPSN)
		err := q.ready(now, &a)
		if err == nil {
			err = q.run(now, &a)
		}
		if err == nil {
			err = c.Establish(now, nil)
		}
		if err != nil {
			_ = c.Reject(now, mad.ReasonConsumerDefined, nil, nil)
			q.conn = nil
			q.fail(err.Error())
		}
	case cm.Established:
		if err := q.run(now, &a); err != nil {
			q.fail(err.Error())
		}
	case cm.Rejected:
		q.gone(now, fmt.Sprintf("rejected by %s: %v", a.Route.DGID.Addr(), e.Reason))
	case cm.Unreachable:
		q.gone(now, fmt.Sprintf("no answer from %s", a.Route.DGID.Addr()))
	case cm.Disconnected:
		if e.DREQ {
			_ = c.DisconnectReply(now, nil)
		}
		q.gone(now, "disconnected by the peer")
	}
}

// gone follows the end of the connection of q by its peer.
func (q *pair) gone(now mono.Time, why string) {
	_ = q.reset(now)
	q.close(now)
	q.fail(why)
}

// requested accepts or rejects a request.
func (h *host) requested(now mono.Time, c *cm.Conn, e *cm.Event) {
	var ip mad.IPCM
	private := e.PrivateData
	if rest, err := ip.Decode(private); err == nil {
		private = rest
	}
	q := h.passive(c, e, private)
	if q == nil {
		_ = c.Reject(now, mad.ReasonConsumerDefined, nil, nil)
		return
	}
	q.close(now)
	a := c.QPAttr()
	asked := bth.MakePSN(q.askedPSN())
	q.agree(private, a.SQPSN, asked)
	a.MaxRdAtomic, a.MaxDestRdAtomic = min(e.Conn.InitiatorDepth, rdAtomic), min(e.Conn.ResponderResources, rdAtomic)
	q.conn, c.Ctx, q.state = c, q, pairConnecting
	err := q.ready(now, &a)
	if err == nil {
		err = c.Accept(now, &cm.AcceptParam{QPN: q.q.Num(), StartingPSN: q.farPSN, ResponderResources: a.MaxDestRdAtomic,
			InitiatorDepth: a.MaxRdAtomic, RNRRetry: 7, PrivateData: q.shows().append(nil)})
	}
	if err != nil {
		_ = c.Reject(now, mad.ReasonConsumerDefined, nil, nil)
		q.conn = nil
		q.fail(err.Error())
	}
}

// passive returns the queue pair that accepts a request: the one that expects the requesting queue pair, else a free one that
// expects none.
func (h *host) passive(c *cm.Conn, e *cm.Event, private []byte) (free *pair) {
	r := c.Route()
	var from shown
	from.decode(private)
	for _, p := range h.peers {
		if inet.GIDOf(p.address.Prefix.Addr()) != r.SGID || !p.cfg.Destination.IsUnspecified() && inet.GIDOf(p.cfg.Destination) != r.DGID {
			continue
		}
		for _, q := range p.pairs {
			switch {
			case !q.up || q.cfg.Active || e.Conn.Type != mad.RC:
			case q.cfg.Elsewhere:
				if from.name == identity(q.cfg.Remote) {
					return q
				}
			case q.remote != nil:
				if q.remote.q.Num() == e.Conn.RemoteQPN && q.remote.gid() == r.DGID {
					return q
				}
			case q.state != pairUp && q.state != pairConnecting && free == nil:
				free = q
			}
		}
	}
	return free
}
