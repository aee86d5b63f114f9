package verbs

import (
	"context"
	"fmt"
	"net/netip"

	"roced.io/roced/internal/base/abi/rdmacm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// CMService is the UD queue pair in a listener's reply.
type CMService struct {
	// Local and Remote are the addresses of the exchange.
	Local, Remote netip.AddrPort
	AH            AHAttr // its address
	QPN, QKey     uint32 // RemoteQPN and RemoteQKey of work requests
	PrivateData   []byte // of its Accept, padded with zeros
}

// RefusedError is the error of a listener for datagrams that names no queue pair.
type RefusedError struct {
	Status int // IBTA vol.1 12.11.2; 1: no listener, 2: rejected by the program
}

// Error describes the error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("no queue pair for datagrams: status %d", e.Status)
}

// CMDatagramListener receives queries for a UD queue pair.
type CMDatagramListener struct {
	id *cmID
	// Addr is the address with the actual port.
	Addr netip.AddrPort
}

// CMQuestion is a peer's query for a UD queue pair. Call Accept or Reject once.
type CMQuestion struct {
	id            *cmID
	Local, Remote netip.AddrPort
	PrivateData   []byte // padded with zeros
}

// Resolve queries the listener at an address for its UD queue pair (SIDR, IBTA vol.1
// 12.11), with at most 180 bytes of private data.
func (m *CM) Resolve(ctx context.Context, to netip.AddrPort, private []byte) (*CMService, error) {
	var p rdmacm.ConnParam
	if len(private) >= len(p.PrivateData) {
		return nil, fail("resolve", "private data", ErrTooLong)
	}
	p.PrivateDataLen, p.Valid = uint8(copy(p.PrivateData[:], private)), 1
	id, err := m.ask(rdmacm.PSUDP, to, p)
	if err != nil {
		return nil, explain(err, to.String())
	}
	defer id.close()
	s, err := id.answered(ctx)
	return s, explain(err, to.String())
}

// answered waits for the reply to a query.
func (i *cmID) answered(ctx context.Context) (*CMService, error) {
	const verb = "resolve"
	e, err := i.next(ctx, verb, rdmacm.EventEstablished)
	if err != nil && e != nil && e.Event == rdmacm.EventUnreachable && int32(e.Status) > 0 {
		err = fail(verb, "", &RefusedError{Status: int(e.Status)})
	}
	if err != nil {
		return nil, err
	}
	u := udParamOf(e)
	s := &CMService{AH: ahAttr(&u.AHAttr), QPN: u.QPNum, QKey: u.QKey, PrivateData: u.PrivateData[:u.PrivateDataLen]}
	s.Local, s.Remote, err = i.query()
	return s, err
}

// ListenDatagrams listens for queries on an address of a NIC or, if it is unspecified,
// on all addresses. Port 0 selects a free port. The backlog limits the queue of
// queries.
func (m *CM) ListenDatagrams(addr netip.AddrPort, backlog int) (*CMDatagramListener, error) {
	id, bound, err := m.listen(rdmacm.PSUDP, addr, backlog)
	if err != nil {
		return nil, err
	}
	return &CMDatagramListener{id: id, Addr: bound}, nil
}

// Close closes the listener.
func (l *CMDatagramListener) Close() { l.id.close() }

// Next waits for a query.
func (l *CMDatagramListener) Next(ctx context.Context) (*CMQuestion, error) {
	e, err := l.id.next(ctx, "get_request", rdmacm.EventConnectRequest)
	if err != nil {
		return nil, err
	}
	u := udParamOf(e)
	q := &CMQuestion{id: l.id.cm.adopt(l.id.space, e.ID, 0, nil), PrivateData: u.PrivateData[:u.PrivateDataLen]}
	if q.Local, q.Remote, err = q.id.query(); err != nil {
		q.id.close()
		return nil, err
	}
	return q, nil
}

// Accept replies with q, a UD queue pair with this Q_Key, and at most 136 bytes of
// private data.
func (r *CMQuestion) Accept(q *QP, qkey uint32, private []byte) error {
	const verb = "accept"
	defer r.id.close()
	p := rdmacm.ConnParam{QPNum: q.num, QKey: qkey, Valid: 1}
	if len(private) >= len(p.PrivateData) {
		return fail(verb, "private data", ErrTooLong)
	}
	p.PrivateDataLen = uint8(copy(p.PrivateData[:], private))
	return r.id.run(verb, rdmacm.CmdAccept, rdmacm.Accept{UID: r.id.uid, ID: r.id.num, ConnParam: p})
}

// Reject rejects the query, with at most 136 bytes of private data.
func (r *CMQuestion) Reject(private []byte) error { return r.id.reject(private) }

// udParamOf returns the parameters in an event of a datagram identifier.
func udParamOf(e *cmEvent) (p rdmacm.UDParam) {
	// The parameter is longer than the structure.
	_ = uverbs.DecodeInto(e.Param[:], &p)
	return p
}

// ahAttr decodes an address vector.
func ahAttr(a *uverbs.AHAttr) AHAttr {
	g := &a.GRH
	return AHAttr{DGID: g.DGID, SGIDIndex: int(g.SGIDIndex), TrafficClass: g.TrafficClass, HopLimit: g.HopLimit, FlowLabel: g.FlowLabel}
}
