package ucma

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/daemon/cm"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// maxBacklog is the maximum and default backlog of a listener.
const maxBacklog = 1024

// listener is a listening identifier's listener on one NIC.
type listener struct {
	nic *nic
	l   *cm.Listener
}

// serviceID returns the service ID of a port in i's port space.
func (i *id) serviceID(port uint16) uint64 { return mad.IPServiceID(uint16(i.ps), port) }

func (i *id) listen(q *request, r *rdmacm.Listen) error {
	if i.state == stateIdle {
		if err := i.bind(endpointOf(netip.IPv4Unspecified(), 0)); err != nil {
			return err
		}
	}
	if i.state != stateBound {
		return unix.EINVAL
	}
	if i.src.family == afIB {
		return unix.EOPNOTSUPP
	}
	if err := i.claimPort(); err != nil {
		return err
	}
	i.backlog = int(r.Backlog)
	if r.Backlog == 0 || r.Backlog > maxBacklog {
		i.backlog = maxBacklog
	}
	if err := i.startListening(); err != nil {
		i.closeListeners()
		return err
	}
	i.state = stateListen
	return nil
}

// claimPort reserves the port of i before i listens. With RDMA_OPTION_ID_REUSEADDR, identifiers share a port only
// while none of them listens. Otherwise another user could steal connections from a listener (Linux, rdma_listen).
func (i *id) claimPort() error {
	if !i.reuseAddr {
		return nil
	}
	i.reuseAddr = false
	if err := i.ctx.srv.clash(i, i.src); err != nil {
		i.reuseAddr = true
		return err
	}
	return nil
}

// startListening listens on the NIC of i, or on all NICs of the context if i has none.
func (i *id) startListening() error {
	if i.nic != nil {
		return i.listenOn(i.nic)
	}
	for _, n := range i.ctx.nics {
		if err := i.listenOn(n); err != nil {
			return err
		}
	}
	return nil
}

// listenOn listens on a NIC.
func (i *id) listenOn(n *nic) error {
	p := cm.ListenParam{ServiceID: i.serviceID(i.src.Port()), Backlog: i.backlog, Datagram: i.qpType == qpUD}
	switch {
	case i.nic != nil:
		p.Local = i.route.SGID
	case i.onlyFamily(i.src) && i.src.family == unix.AF_INET:
		p.Family = cm.IPv4
	case i.onlyFamily(i.src):
		p.Family = cm.IPv6
	}
	return n.do(func(now mono.Time, _ *rocev2.NIC) error {
		l, err := n.agent.Listen(p, n)
		if err != nil {
			return err
		}
		l.Ctx = i
		i.listeners = append(i.listeners, listener{n, l})
		return nil
	})
}

// closeListeners closes all listeners of i.
func (i *id) closeListeners() {
	for _, l := range i.listeners {
		_ = l.nic.do(func(now mono.Time, _ *rocev2.NIC) error { l.l.Close(now); return nil })
	}
	i.listeners = nil
}

// CMEvent passes an event of the connection manager from the shard to the server.
func (n *nic) CMEvent(_ mono.Time, c *cm.Conn, s *cm.SIDR, e *cm.Event) {
	if e.Kind == cm.DelayRequested {
		return // not reported to programs, because a peer may repeat it without limit
	}
	t := told{Event: *e, conn: c, sidr: s}
	t.PrivateData = append([]byte(nil), e.PrivateData...)
	t.ARI = nil // rdma_cm events have no field for it
	if c != nil {
		t.route, t.agreed = c.Route(), c.QPAttr()
	} else {
		t.route = s.Route()
	}
	n.srv.post(func() { n.take(&t) })
}

// told is an event with a snapshot of its connection or exchange.
type told struct {
	cm.Event
	conn   *cm.Conn
	sidr   *cm.SIDR
	route  rocev2.MADRoute
	agreed cm.QPAttr
}

// take handles an event. The caller holds the server's lock.
func (n *nic) take(e *told) {
	switch e.Kind {
	case cm.ConnectRequest:
		n.requested(e.Conn.Listener, e.Conn.ServiceID, e)
	case cm.SIDRRequest:
		n.requested(e.SIDR.Listener, e.SIDR.ServiceID, e)
	default:
		i := n.srv.conns[e.conn]
		if e.conn == nil {
			i = n.srv.sidrs[e.sidr]
		}
		if i != nil { // nil: its owner has gone
			i.cmEvent(e)
		}
	}
}

// requested creates the identifier of a request, or refuses the request.
func (n *nic) requested(l *cm.Listener, sid uint64, e *told) {
	c, s, route := e.conn, e.sidr, e.route
	var h mad.IPCM
	private, err := h.Decode(e.PrivateData)
	on, _ := l.Ctx.(*id)
	if err == nil && (on == nil || n.srv.ids[on.num] != on || on.state != stateListen) {
		err = unix.ENOENT
	}
	switch {
	case err != nil:
	case inet.GIDOf(h.Dst) != route.SGID, inet.GIDOf(h.Src) != route.DGID:
		err = unix.EADDRNOTAVAIL // in RoCE, the IP addresses equal the GIDs
	case on.src.alias(route.SGID.Addr()) && route.SGID != route.DGID:
		err = unix.EADDRNOTAVAIL // a listener on a loopback address is not reachable for others
	}
	var i *id
	if err == nil {
		i, err = n.srv.newID(on.ctx, on.ps, on.qpType)
	}
	if err != nil {
		_ = n.do(func(now mono.Time, _ *rocev2.NIC) error {
			if c != nil {
				c.Close(now)
			} else {
				s.Close(now)
			}
			return nil
		})
		return
	}
	i.passive, i.state, i.nic, i.conn, i.sidr = true, stateConnect, n, c, s
	i.timeout, i.respRes, i.initDepth = on.timeout, e.Conn.ResponderResources, e.Conn.InitiatorDepth
	i.src, i.dst = endpointOf(h.Dst, uint16(sid)), endpointOf(h.Src, h.SrcPort)
	if err := i.adopt(e); err != nil {
		i.destroy()
		return
	}
	ev := &event{counted: on, request: i, resp: rdmacm.EventResp{UID: on.uid, ID: i.num, Event: rdmacm.EventConnectRequest}}
	if c != nil {
		n.srv.conns[c], ev.agreed = i, &e.agreed
		ev.put(connParam(&e.Conn, private))
	} else {
		n.srv.sidrs[s] = i
		var p rdmacm.UDParam
		p.PrivateDataLen = uint8(copy(p.PrivateData[:], private))
		ev.put(p)
	}
	on.ctx.queue(ev)
}

// read frees the place of a request in the backlog: the program has read its event.
func (i *id) read() {
	_ = i.nic.do(func(mono.Time, *rocev2.NIC) error {
		if i.conn != nil {
			i.conn.Read()
		} else if i.sidr != nil {
			i.sidr.Read()
		}
		return nil
	})
}

// adopt sets the route of a request.
func (i *id) adopt(e *told) error {
	i.route, i.mtu = e.route, e.Conn.PathMTU
	return i.nic.do(func(_ mono.Time, core *rocev2.NIC) (err error) {
		if i.mtu == 0 {
			i.mtu = core.PortAttr().ActiveMTU
		}
		i.sgid, err = sgidIndex(core, i.route.SGID)
		return err
	})
}

// connParam returns the parameters of the peer's REQ or REP for an event.
func connParam(c *cm.ConnInfo, private []byte) (p rdmacm.ConnParam) {
	p = rdmacm.ConnParam{QPNum: uint32(c.RemoteQPN), ResponderResources: c.ResponderResources, InitiatorDepth: c.InitiatorDepth,
		RetryCount: c.RetryCount, RNRRetryCount: c.RNRRetry, SRQ: flag(c.SRQ), FlowControl: flag(c.FlowControl)}
	p.PrivateDataLen = uint8(copy(p.PrivateData[:], private))
	return p
}

func flag(set bool) uint8 {
	if set {
		return 1
	}
	return 0
}
