package verbs

import (
	"cmp"
	"context"
	"net/netip"

	"roced.io/roced/internal/base/abi/rdmacm"
)

// CMParams are the parameters of one side of a connection by a CM. The zero value
// suits most programs.
type CMParams struct {
	PrivateData        []byte // for the peer: at most 56 bytes in Dial, 196 in Accept
	ResponderResources uint8  // READs and atomics that the peer may have in flight
	InitiatorDepth     uint8  // READs and atomics that this side may have in flight
	RetryCount         uint8  // 0: 7
	RNRRetry           uint8  // 0: 7, without limit
	// Connect, unless nil, moves queue pairs to RTS in place of Dial or Accept. A program needs
	// it for another transport service, or for several queue pairs. In Dial, private is the
	// private data of the peer's Accept. The peer's Accept returns after Connect has returned;
	// if Connect returns an error, the connection is rejected.
	Connect func(local, remote netip.AddrPort, private []byte) error
}

// ready moves q to RTS.
func (p *CMParams) ready(q *QP, a *rdmacm.ConnAttr, local, remote netip.AddrPort, private []byte) error {
	if p.Connect != nil {
		return p.Connect(local, remote, private)
	}
	return q.ready(a)
}

// param encodes the parameters for q. It returns false if the private data is too long.
func (p *CMParams) param(q *QP) (c rdmacm.ConnParam, ok bool) {
	if len(p.PrivateData) >= len(c.PrivateData) {
		return c, false
	}
	c = rdmacm.ConnParam{QPNum: q.num, ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		RetryCount: cmp.Or(p.RetryCount, 7), RNRRetryCount: cmp.Or(p.RNRRetry, 7), Valid: 1}
	if !q.hasRQ {
		c.SRQ = 1
	}
	c.PrivateDataLen = uint8(copy(c.PrivateData[:], p.PrivateData))
	return c, true
}

// CMConn is a connection.
type CMConn struct {
	id *cmID
	// Local and Remote are the ends of the connection.
	Local, Remote netip.AddrPort
	// PrivateData is the private data of the peer at its full length on the wire,
	// padded with zeros. After Dial it is that of the peer's Accept.
	PrivateData []byte
}

// CMListener receives requests for connections.
type CMListener struct {
	id *cmID
	// Addr is the address with the actual port.
	Addr netip.AddrPort
}

// CMRequest is a request for a connection. Call Accept or Reject once.
type CMRequest struct {
	id                 *cmID
	attr               *rdmacm.ConnAttr
	Local, Remote      netip.AddrPort
	PrivateData        []byte // padded with zeros
	ResponderResources uint8  // READs and atomics that the peer may have in flight
	InitiatorDepth     uint8  // READs and atomics that the peer allows in flight towards it
}

// query returns the ends of an identifier.
func (i *cmID) query() (local, remote netip.AddrPort, err error) {
	r, err := cmAsk[rdmacm.QueryAddrResp](i.cm, "query_addr", rdmacm.CmdQuery, rdmacm.Query{ID: i.num, Option: rdmacm.QueryAddr})
	return sockaddr(&r.SrcAddr), sockaddr(&r.DstAddr), err
}

// Listen listens on an address of a NIC or, if it is unspecified, on all addresses.
// Port 0 selects a free port. The backlog limits the queue of requests.
func (m *CM) Listen(addr netip.AddrPort, backlog int) (*CMListener, error) {
	id, bound, err := m.listen(rdmacm.PSTCP, addr, backlog)
	if err != nil {
		return nil, err
	}
	return &CMListener{id: id, Addr: bound}, nil
}

// listen creates a listening identifier and returns its address.
func (m *CM) listen(space rdmacm.PortSpace, addr netip.AddrPort, backlog int) (id *cmID, bound netip.AddrPort, err error) {
	id, err = m.newID(space, backlog)
	if err != nil {
		return nil, bound, err
	}
	s, n := putSockaddr(addr)
	err = id.run("bind_addr", rdmacm.CmdBind, rdmacm.Bind{ID: id.num, AddrSize: n, Addr: s})
	if err == nil {
		err = id.run("listen", rdmacm.CmdListen, rdmacm.Listen{ID: id.num, Backlog: uint32(backlog)})
	}
	if err == nil {
		bound, _, err = id.query()
	}
	if err != nil {
		id.close()
		return nil, bound, explain(err, addr.String())
	}
	return id, bound, nil
}

// Close closes the listener and rejects queued requests.
func (l *CMListener) Close() { l.id.close() }

// Next waits for a request.
func (l *CMListener) Next(ctx context.Context) (*CMRequest, error) {
	e, err := l.id.next(ctx, "get_request", rdmacm.EventConnectRequest)
	if err != nil {
		return nil, err
	}
	if e.attr == nil {
		return nil, fail("get_request", "", ErrProtocol)
	}
	p := connParamOf(e)
	return &CMRequest{id: l.id.cm.adopt(l.id.space, e.ID, 0, nil), attr: e.attr, Local: sockaddr(&e.attr.SrcAddr), Remote: sockaddr(&e.attr.DstAddr),
		PrivateData: p.Private(), ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth}, nil
}

// Accept accepts the connection with q, which must be in the RESET or INIT state, and
// moves q to RTS.
func (r *CMRequest) Accept(ctx context.Context, q *QP, p CMParams) (*CMConn, error) {
	const verb = "accept"
	param, ok := p.param(q)
	if !ok {
		return nil, fail(verb, "private data", ErrTooLong)
	}
	err := p.ready(q, r.attr, r.Local, r.Remote, r.PrivateData)
	if err == nil {
		err = r.id.run(verb, rdmacm.CmdAccept, rdmacm.Accept{UID: r.id.uid, ID: r.id.num, ConnParam: param})
	}
	if err == nil {
		_, err = r.id.next(ctx, verb, rdmacm.EventEstablished)
	}
	if err != nil {
		r.id.close()
		return nil, err
	}
	return &CMConn{id: r.id, Local: r.Local, Remote: r.Remote, PrivateData: r.PrivateData}, nil
}

// Reject rejects the connection with at most 148 bytes of private data.
func (r *CMRequest) Reject(private []byte) error { return r.id.reject(private) }

// reject rejects the request and destroys the identifier.
func (i *cmID) reject(private []byte) error {
	const verb = "reject"
	defer i.close()
	c := rdmacm.Reject{ID: i.num}
	if len(private) >= len(c.PrivateData) {
		return fail(verb, "private data", ErrTooLong)
	}
	c.PrivateDataLen = uint8(copy(c.PrivateData[:], private))
	return i.run(verb, rdmacm.CmdReject, c)
}

// Dial connects q, which must be in the RESET or INIT state, to a listener and moves q
// to RTS. After an error q is in an earlier state.
func (m *CM) Dial(ctx context.Context, to netip.AddrPort, q *QP, p CMParams) (*CMConn, error) {
	param, ok := p.param(q)
	if !ok {
		return nil, fail("connect", "private data", ErrTooLong)
	}
	id, err := m.ask(rdmacm.PSTCP, to, param)
	if err != nil {
		return nil, explain(err, to.String())
	}
	c, err := id.connect(ctx, q, &p)
	if err != nil {
		id.close()
		return nil, explain(err, to.String())
	}
	return c, nil
}

// connect waits for the listener's response and confirms it.
func (i *cmID) connect(ctx context.Context, q *QP, choices *CMParams) (*CMConn, error) {
	const verb = "connect"
	e, err := i.next(ctx, verb, rdmacm.EventConnectResponse)
	if err != nil {
		return nil, err
	}
	if e.attr == nil {
		return nil, fail(verb, "", ErrProtocol)
	}
	p := connParamOf(e)
	c := &CMConn{id: i, Local: sockaddr(&e.attr.SrcAddr), Remote: sockaddr(&e.attr.DstAddr), PrivateData: p.Private()}
	if err := choices.ready(q, e.attr, c.Local, c.Remote, c.PrivateData); err != nil {
		return nil, err
	}
	return c, i.run(verb, rdmacm.CmdAccept, rdmacm.Accept{UID: i.uid, ID: i.num})
}

// ready moves the queue pair of a connection to RTS. It repeats INIT for the access that the connection permits.
func (q *QP) ready(a *rdmacm.ConnAttr) error {
	var steps []step
	for _, r := range []*rdmacm.QPAttr{&a.Init, &a.RTR, &a.RTS} {
		steps = append(steps, step{QPAttr{State: QPState(r.QPState), Access: Access(r.QPAccessFlags), PKeyIndex: r.PKeyIndex, Port: r.PortNum,
			AV:      ahAttr(&r.AHAttr),
			PathMTU: MTU(r.PathMTU), DestQPN: r.DestQPNum, RQPSN: r.RQPSN, SQPSN: r.SQPSN, MaxRdAtomic: r.MaxRdAtomic,
			MaxDestRdAtomic: r.MaxDestRdAtomic, MinRNRTimer: r.MinRNRTimer, Timeout: r.Timeout, RetryCnt: r.RetryCnt,
			RNRRetry: r.RNRRetry}, AttrMask(r.QPAttrMask)})
	}
	return q.take(steps)
}

// Disconnect starts the teardown of the connection, or confirms it after the peer has started it.
func (c *CMConn) Disconnect() error {
	return c.id.run("disconnect", rdmacm.CmdDisconnect, rdmacm.Disconnect{ID: c.id.num})
}

// Wait waits until the connection has ended. It returns nil then, or the error of ctx.
func (c *CMConn) Wait(ctx context.Context) error {
	_, err := c.id.next(ctx, "wait", rdmacm.EventDisconnected)
	return err
}

// Close closes the connection and notifies the peer. The queue pair remains the caller's.
func (c *CMConn) Close() { c.id.close() }
