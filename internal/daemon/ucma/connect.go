package ucma

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/bth"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// Protocol parameters that Linux's rdma_cm chooses for programs.
const (
	cmTimeout   = 20 // 4.3 s
	cmRetries   = 15
	targetDelay = 15         // local CA ACK delay of rxe
	defaultQKey = 0x01234567 // RDMA_UDP_QKEY
)

func (i *id) connect(q *request, r *rdmacm.Connect) error {
	if r.ConnParam.Valid == 0 || i.state != stateRouteResolved {
		return unix.EINVAL
	}
	return i.request(&r.ConnParam)
}

// request sends a connection or service request to the remote end of the route.
func (i *id) request(p *rdmacm.ConnParam) (err error) {
	i.qpn, i.srq = p.QPNum, p.SRQ != 0
	h := mad.IPCM{Src: i.src.Addr(), Dst: i.dst.Addr(), SrcPort: i.src.Port()}
	private := append(h.Append(nil), p.Private()...)
	if i.qpType == qpUD {
		err = i.ask4QP(private)
	} else {
		err = i.sendREQ(p, private)
	}
	if err == nil {
		i.state = stateConnect
	}
	return err
}

// connect sends the REQ.
func (i *id) sendREQ(p *rdmacm.ConnParam, private []byte) error {
	typ := mad.RC
	if i.qpType == qpUC {
		typ = mad.UC
	}
	i.respRes, i.initDepth = p.ResponderResources, p.InitiatorDepth
	return i.nic.do(func(now mono.Time, _ *rocev2.NIC) (err error) {
		i.conn, err = i.nic.agent.Connect(now, &cm.ConnectParam{
			Route: i.route, ServiceID: i.serviceID(i.dst.Port()), Type: typ, QPN: bth.QPN(p.QPNum), StartingPSN: i.psn,
			ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
			RetryCount: min(p.RetryCount, 7), RNRRetry: min(p.RNRRetryCount, 7), FlowControl: p.FlowControl != 0, SRQ: i.srq,
			PathMTU: i.mtu, LocalAckTimeout: i.ackTimeout(), LocalCMTimeout: cmTimeout, RemoteCMTimeout: cmTimeout,
			MaxCMRetries: cmRetries, PrivateData: private,
		}, i.nic)
		if err == nil {
			i.nic.srv.conns[i.conn] = i
		}
		return err
	})
}

// connectTo creates and connects an identifier in the steps CREATE_ID, RESOLVE_ADDR, RESOLVE_ROUTE and CONNECT. An
// event reports the step that fails, or the result.
func (c *device) connectTo(q *request, r *rdmacm.ConnectTo) error {
	if r.ConnParam.Valid == 0 || int(r.DstSize) > len(r.DstAddr) {
		return unix.EINVAL
	}
	i, err := c.makeID(r.UID, r.PS, 0)
	if err != nil {
		return err
	}
	i.then = &r.ConnParam
	if err := c.resolve(i.num, r.TimeoutMS, nil, r.DstAddr[:r.DstSize]); err != nil {
		i.destroy()
		return err
	}
	q.resp = rdmacm.CreateIDResp{ID: i.num}
	return nil
}

// proceed continues connectTo after address resolution.
func (i *id) proceed() {
	p := i.then
	i.then = nil
	err := i.routed()
	if err == nil {
		err = i.request(p)
	}
	if err != nil {
		i.emit(rdmacm.EventConnectError, -int32(errnoOf(err)))
	}
}

// ask4QP sends the SIDR_REQ.
func (i *id) ask4QP(private []byte) error {
	return i.nic.do(func(now mono.Time, _ *rocev2.NIC) (err error) {
		i.sidr, err = i.nic.agent.Resolve(now, &cm.SIDRParam{Route: i.route, ServiceID: i.serviceID(i.dst.Port()),
			Timeout: cmTimeout, MaxCMRetries: cmRetries, PrivateData: private}, i.nic)
		if err == nil {
			i.nic.srv.sidrs[i.sidr] = i
		}
		return err
	})
}

// acceptConn accepts a request or, without parameters, confirms a reply.
func (i *id) acceptConn(q *request, r *rdmacm.Accept) error {
	if i.state != stateConnect || i.conn == nil && i.sidr == nil {
		return unix.EINVAL
	}
	p := &r.ConnParam
	err := i.nic.do(func(now mono.Time, _ *rocev2.NIC) error {
		switch {
		case p.Valid == 0 && i.conn != nil:
			return i.conn.Establish(now, nil)
		case p.Valid == 0:
			return unix.EINVAL
		case i.sidr != nil:
			return i.sidr.Reply(now, &cm.SIDRReplyParam{Status: mad.SIDRSuccess, QPN: bth.QPN(p.QPNum), QKey: i.setQKey(p.QKey),
				PrivateData: p.Private()})
		}
		i.respRes, i.initDepth = p.ResponderResources, p.InitiatorDepth
		return i.conn.Accept(now, &cm.AcceptParam{QPN: bth.QPN(p.QPNum), StartingPSN: i.psn,
			ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, TargetAckDelay: targetDelay,
			RNRRetry: min(p.RNRRetryCount, 7), FlowControl: p.FlowControl != 0, SRQ: p.SRQ != 0, PrivateData: p.Private()})
	})
	switch {
	case p.Valid == 0:
	case err == nil:
		i.uid, i.qpn, i.srq = r.UID, p.QPNum, p.SRQ != 0
	case i.conn != nil: // as rdma_accept() of Linux: the peer need not wait for its timeout
		_ = i.nic.do(func(now mono.Time, _ *rocev2.NIC) error {
			return i.conn.Reject(now, mad.ReasonConsumerDefined, nil, nil)
		})
	}
	return err
}

// setQKey sets and returns the Q_Key of i; 0 selects the default.
func (i *id) setQKey(key uint32) uint32 {
	if key == 0 {
		key = defaultQKey
	}
	i.qkey = key
	return key
}

func (i *id) reject(q *request, r *rdmacm.Reject) error {
	private := r.PrivateData[:r.PrivateDataLen]
	reason := mad.Reason(r.Reason)
	switch reason {
	case 0:
		reason = mad.ReasonConsumerDefined
	case mad.ReasonConsumerDefined, reasonVendorOption:
	default:
		return unix.EINVAL
	}
	if i.conn == nil && i.sidr == nil {
		return unix.EINVAL
	}
	return i.nic.do(func(now mono.Time, _ *rocev2.NIC) error {
		if i.sidr != nil {
			return i.sidr.Reply(now, &cm.SIDRReplyParam{Status: mad.SIDRRejectedByProvider, PrivateData: private})
		}
		return i.conn.Reject(now, reason, nil, private)
	})
}

// reasonVendorOption is the reason "vendor option is not supported" (IB_CM_REJ_VENDOR_OPTION_NOT_SUPPORTED).
const reasonVendorOption mad.Reason = 35

// disconnect starts or answers the teardown of a connection. In other states it does nothing, as in Linux.
func (i *id) disconnect(q *request, r *rdmacm.Disconnect) error {
	if i.conn == nil {
		return unix.EINVAL
	}
	return i.nic.do(func(now mono.Time, _ *rocev2.NIC) error {
		switch i.conn.State() {
		case cm.StateEstablished:
			return i.conn.Disconnect(now, nil)
		case cm.StateDREQReceived:
			return i.conn.DisconnectReply(now, nil)
		}
		return nil
	})
}

func (i *id) notify(q *request, r *rdmacm.Notify) error {
	if r.Event != rdmacm.NotifyCommEst || i.conn == nil {
		return unix.EINVAL
	}
	return i.nic.do(func(now mono.Time, _ *rocev2.NIC) error { return i.conn.CommEstablished(now) })
}

// cmEvent reports a change of a connection or an exchange to the program.
func (i *id) cmEvent(e *told) {
	if i.unknown() {
		return // as in Linux; the program gets the error when it accepts
	}
	switch e.Kind {
	case cm.ConnectReply:
		i.respRes, i.initDepth = e.Conn.ResponderResources, e.Conn.InitiatorDepth
		ev := i.emit(rdmacm.EventConnectResponse, 0)
		ev.put(connParam(&e.Conn, e.PrivateData))
		ev.agreed = &e.agreed
	case cm.Established:
		i.emit(rdmacm.EventEstablished, 0).put(connParam(&e.Conn, e.PrivateData))
	case cm.SIDRReply:
		i.setQKey(e.SIDR.QKey)
		i.emit(rdmacm.EventEstablished, 0).put(i.udParam(e))
	case cm.Rejected:
		i.refused(e)
	case cm.Unreachable:
		i.emit(rdmacm.EventUnreachable, -int32(unix.ETIMEDOUT))
	case cm.Disconnected, cm.DisconnectReplied:
		i.disconnected(e)
	case cm.TimewaitExit:
		i.emit(rdmacm.EventTimewaitExit, 0)
	}
}

func (i *id) refused(e *told) {
	if i.sidr != nil {
		i.emit(rdmacm.EventUnreachable, int32(e.SIDR.Status))
		return
	}
	i.emit(rdmacm.EventRejected, int32(e.Reason)).put(connParam(&e.Conn, e.PrivateData))
}

func (i *id) disconnected(e *told) {
	if i.state != stateConnect {
		return // both sides disconnected at the same time
	}
	i.state = stateDisconnected
	var status int32
	if e.TimedOut {
		status = -int32(unix.ETIMEDOUT)
	}
	i.emit(rdmacm.EventDisconnected, status).put(connParam(&e.Conn, e.PrivateData))
}

// udParam returns the address of the queue pair in a SIDR_REP.
func (i *id) udParam(e *told) (p rdmacm.UDParam) {
	p = rdmacm.UDParam{QPNum: uint32(e.SIDR.QPN), QKey: e.SIDR.QKey, AHAttr: i.ahAttr()}
	p.PrivateDataLen = uint8(copy(p.PrivateData[:], e.PrivateData))
	return p
}

// ahAttr returns the address vector of the route.
func (i *id) ahAttr() uverbs.AHAttr { return ahAttr(&i.route, i.sgid) }

func ahAttr(r *rocev2.MADRoute, sgid uint8) uverbs.AHAttr {
	return uverbs.AHAttr{IsGlobal: 1, PortNum: 1, GRH: uverbs.GlobalRoute{DGID: r.DGID, FlowLabel: r.FlowLabel,
		SGIDIndex: sgid, HopLimit: r.HopLimit, TrafficClass: r.TrafficClass}}
}
