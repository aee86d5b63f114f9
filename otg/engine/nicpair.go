package engine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"roced.io/roced/verbs"
)

// nicPair is a queue pair of a NIC of a daemon.
type nicPair struct {
	cfg     QueuePair
	peer    *nicPeer
	port    *nic
	qp      *verbs.QP // nil: not connected
	conn    *verbs.CMConn
	up      bool // wanted
	state   pairState
	cancel  context.CancelFunc // of the connection
	far     shown
	flows   []*nicFlow
	turn    int
	posted  []nicMessage // in progress, oldest first
	last    verbs.Timestamp
	lastErr string
}

// nicMessage is a message in progress.
type nicMessage struct {
	flow *nicFlow
	at   verbs.Timestamp // posted
}

// nicFlow is a flow of the configuration.
type nicFlow struct {
	cfg               Flow
	pair              *nicPair
	group             []*nicFlow
	state             FlowState
	sent, done, fails uint64 // messages
	completion        time.Duration
	lastErr           string
}

// connectTime bounds the messages of rdma_cm for one connection.
const connectTime = 10 * time.Second

func (n *nics) addFlow(c Flow) error {
	q := n.pairs[c.QueuePair]
	if q == nil {
		return fmt.Errorf("flow %s: no queue pair %q", c.Name, c.QueuePair)
	}
	f := &nicFlow{cfg: c, pair: q}
	n.flows = append(n.flows, f)
	if c.Far {
		return nil
	}
	q.flows = append(q.flows, f)
	for _, o := range n.flows {
		if !o.cfg.Far && o.pair.port == q.port && o.cfg.Group == c.Group {
			f.group = append(f.group, o)
			if o != f {
				o.group = append(o.group, f)
			}
		}
	}
	return nil
}

// listen accepts connections at each address.
func (n *nics) listen() error {
	type end struct {
		port *nic
		addr netip.Addr
	}
	seen := map[end]bool{}
	for _, p := range n.peers {
		e := end{p.port, p.addr}
		if seen[e] {
			continue
		}
		seen[e] = true
		l, err := p.port.cm.Listen(netip.AddrPortFrom(p.addr, servicePort), 1024)
		if err != nil {
			return fmt.Errorf("port %s: NIC %s: %w", p.port.cfg.Name, p.port.cfg.Device, err)
		}
		n.work.Go(func() {
			defer l.Close()
			for {
				r, err := l.Next(n.ctx)
				if err != nil {
					n.failed(p.port, err)
					return
				}
				n.requested(p.port, r)
			}
		})
	}
	return nil
}

// failed records the end of a NIC, unless the configuration has ended.
func (n *nics) failed(p *nic, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost(p, err)
}

// create makes the queue pair of the NIC, with receives.
func (q *nicPair) create() error {
	var err error
	q.qp, err = q.port.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: q.port.cq, RecvCQ: q.port.cq, MaxSendWR: nicDepth, MaxRecvWR: nicDepth,
		MaxSendSGE: 1, MaxRecvSGE: 1})
	if err != nil {
		return err
	}
	q.port.byQPN[q.qp.Num()] = q
	return nil
}

// private returns the private data of connection messages.
func (q *nicPair) private() []byte {
	return shown{q.port.mr.Addr(), q.port.mr.RKey(), q.cfg.PSN, q.qp.Num(), identity(q.cfg.Name)}.append(nil)
}

// ready moves the queue pair to RTS with the attributes of the configuration.
func (q *nicPair) ready(remote netip.Addr) error {
	s := &q.port.cfg.RoCE
	p := verbs.DefaultConnParams()
	p.Access = verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead
	if err := q.qp.ToInit(p); err != nil {
		return err
	}
	for range nicDepth {
		if err := q.receive(); err != nil {
			return err
		}
	}
	mtu := pathMTU(q.peer.cfg.PathMTU)
	err := q.qp.Modify(verbs.QPAttr{State: verbs.QPRTR, PathMTU: verbs.MTU(mtu), DestQPN: q.far.num, RQPSN: q.far.psn, MaxDestRdAtomic: rdAtomic,
		MinRNRTimer: 1, AV: verbs.AHAttr{DGID: verbs.GIDOf(remote), SGIDIndex: q.peer.index, TrafficClass: q.cfg.Data.DSCP << 2,
			FlowLabel: labelOf(q.cfg.SourcePort)}},
		verbs.AttrState|verbs.AttrAV|verbs.AttrPathMTU|verbs.AttrDestQPN|verbs.AttrRQPSN|verbs.AttrMaxDestRdAtomic|verbs.AttrMinRNRTimer)
	if err != nil {
		return err
	}
	return q.qp.Modify(verbs.QPAttr{State: verbs.QPRTS, SQPSN: q.cfg.PSN, Timeout: timeoutCode(s.Timeout), RetryCnt: s.retries(), RNRRetry: 7,
		MaxRdAtomic: rdAtomic}, verbs.AttrState|verbs.AttrSQPSN|verbs.AttrTimeout|verbs.AttrRetryCnt|verbs.AttrRNRRetry|verbs.AttrMaxRdAtomic)
}

// labelOf returns a flow label that selects a UDP source port (IBTA annex A17.3.2; Linux rdma_flow_label_to_udp_sport), but not 0,
// for which the NIC selects one.
func labelOf(port uint16) uint32 {
	return 1<<14 | uint32(port&0x3fff^1)
}

// receive posts a receive for the longest message.
func (q *nicPair) receive() error {
	return q.qp.PostRecv(&verbs.RecvWR{SGEs: []verbs.SGE{q.port.mr.SGE(0, len(q.port.mr.Bytes()))}})
}

// connect begins to connect q if it is wanted, active and down.
func (n *nics) connect(q *nicPair) {
	if !q.up || !q.cfg.Active || q.state == pairConnecting || q.state == pairUp || q.port.failed != nil {
		return
	}
	if err := q.create(); err != nil {
		q.disconnect(pairFailed, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(n.ctx, connectTime)
	q.state, q.cancel = pairConnecting, cancel
	qp, param := q.qp, verbs.CMParams{PrivateData: q.private(), ResponderResources: rdAtomic, InitiatorDepth: rdAtomic}
	param.Connect = func(local, remote netip.AddrPort, private []byte) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		switch {
		case q.qp != qp: // disconnected meanwhile
			return context.Canceled
		case local.Addr() != q.peer.addr:
			return fmt.Errorf("NIC %s sends from %s to %s, not from %s", q.port.cfg.Device, local.Addr(), remote.Addr(), q.peer.addr)
		case !q.far.decode(private):
			return fmt.Errorf("%s is not a port of roceotg", remote.Addr())
		}
		return q.ready(remote.Addr())
	}
	n.work.Go(func() {
		defer cancel()
		conn, err := q.port.cm.Dial(ctx, netip.AddrPortFrom(q.peer.cfg.Destination, servicePort), qp, param)
		n.established(q, qp, conn, err)
	})
}

// established follows the last message of a connection, or its failure.
func (n *nics) established(q *nicPair, qp *verbs.QP, conn *verbs.CMConn, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if q.qp != qp { // disconnected meanwhile
		if conn != nil {
			conn.Close()
		}
		return
	}
	if err != nil {
		q.disconnect(pairFailed, whyNot(q.peer.cfg.Destination, err))
		return
	}
	ctx, cancel := context.WithCancel(n.ctx)
	q.conn, q.cancel, q.state, q.lastErr = conn, cancel, pairUp, ""
	n.work.Go(func() {
		err := conn.Wait(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		if q.conn == conn && !errors.Is(err, context.Canceled) {
			q.disconnect(pairFailed, "disconnected by the peer")
		}
	})
	n.pace(q)
	q.post()
}

// whyNot describes the failure of a connection.
func whyNot(to netip.Addr, err error) string {
	var r *verbs.RejectedError
	switch {
	case errors.As(err, &r):
		return fmt.Sprintf("rejected by %s: reason %d", to, r.Reason)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer from %s", to)
	}
	return err.Error()
}

// disconnect ends the connection of q, or the attempt, and destroys its queue pair. Messages in progress do not count.
func (q *nicPair) disconnect(to pairState, why string) {
	if q.cancel != nil {
		q.cancel()
	}
	if q.conn != nil {
		q.conn.Close()
	}
	if q.qp != nil {
		delete(q.port.byQPN, q.qp.Num())
		_ = q.qp.Destroy() // fails if the daemon has ended
	}
	for _, m := range q.posted {
		m.flow.sent--
	}
	q.posted = nil
	q.qp, q.conn, q.cancel, q.state = nil, nil, nil, to
	if why != "" {
		q.lastErr, q.peer.lastErr = why, why
	}
}

// requested accepts or rejects a request.
func (n *nics) requested(p *nic, r *verbs.CMRequest) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var far shown
	q := (*nicPair)(nil)
	if far.decode(r.PrivateData) {
		q = n.passive(p, r, far.name)
	}
	if q == nil {
		_ = r.Reject(nil) // fails if the requester has given up
		return
	}
	q.disconnect(pairDown, "")
	if err := q.create(); err != nil {
		_ = r.Reject(nil)
		q.disconnect(pairFailed, err.Error())
		return
	}
	q.far = far
	ctx, cancel := context.WithTimeout(n.ctx, connectTime)
	q.state, q.cancel = pairConnecting, cancel
	qp := q.qp
	param := verbs.CMParams{PrivateData: q.private(), ResponderResources: rdAtomic, InitiatorDepth: rdAtomic,
		Connect: func(_, remote netip.AddrPort, _ []byte) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if q.qp != qp { // disconnected meanwhile
				return context.Canceled
			}
			return q.ready(remote.Addr())
		}}
	n.work.Go(func() {
		defer cancel()
		conn, err := r.Accept(ctx, qp, param)
		n.established(q, qp, conn, err)
	})
}

// passive returns the queue pair that accepts a request: the one that expects the requesting queue pair, else a free one that
// expects none.
func (n *nics) passive(p *nic, r *verbs.CMRequest, from uint64) (free *nicPair) {
	for _, peer := range n.peers {
		d := peer.cfg.Destination
		if peer.port != p || peer.addr != r.Local.Addr() || !d.IsUnspecified() && d != r.Remote.Addr() {
			continue
		}
		for _, q := range peer.pairs {
			switch {
			case !q.up || q.cfg.Active:
			case q.cfg.Remote != "":
				if identity(q.cfg.Remote) == from {
					return q
				}
			case q.state != pairUp && q.state != pairConnecting && free == nil:
				free = q
			}
		}
	}
	return free
}

// nicOpcodes of the verbs.
var nicOpcodes = map[Verb]verbs.Opcode{Write: verbs.OpWrite, WriteImm: verbs.OpWriteImm, Send: verbs.OpSend, SendImm: verbs.OpSendImm, Read: verbs.OpRead}
