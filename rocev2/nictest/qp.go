package nictest

import (
	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/queue"
)

// QPOptions describe a queue pair and its connection. The comments give the defaults. Options change them, for each queue
// pair. Objects of one node (CQs, an SRQ) suit one queue pair only: use Node.QP and Connect.
type QPOptions struct {
	Type     qp.Type // RC
	Depth    int     // 64: size of the send and of the receive queue
	SGEs     int     // 16
	Inline   int     // 256 bytes
	SendCQ   *CQ     // nil: a new one of 2*Depth
	RecvCQ   *CQ     // likewise
	SRQ      *SRQ    // nil: none
	SigAll   bool
	Profile  string
	GID      uint8     // GIDIPv4: index of the address, on both nodes
	MTU      qp.MTU    // 3: 1024 bytes
	PSN      uint32    // 0: of the first packet
	Timeout  uint8     // 8: about 1 ms
	RetryCnt uint8     // 7
	RNRRetry uint8     // 7: infinite
	MinRNR   uint8     // 1: timer code of 10 us
	RdAtomic uint8     // 8
	QKey     uint32    // 0x11111111, of UD
	Access   qp.Access // all remote rights
	AV       func(*rocev2.AddressVector)
	Share    rocev2.Share
	Num      bth.QPN // 0: a random one
}

// Option changes QPOptions.
type Option func(*QPOptions)

func options(opts []Option) QPOptions {
	o := QPOptions{Type: qp.RC, Depth: 64, SGEs: 16, Inline: 256, GID: GIDIPv4, MTU: 3, Timeout: 8,
		RetryCnt: 7, RNRRetry: 7, MinRNR: 1, RdAtomic: 8, QKey: 0x11111111,
		Access: qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic}
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Type chooses the transport service.
func Type(t qp.Type) Option { return func(o *QPOptions) { o.Type = t } }

// QP is a queue pair of a node with the queues of its client.
type QP struct {
	*rocev2.QueuePair
	Node           *Node
	SQ             *queue.Send
	RQ             *queue.Recv // nil with an SRQ
	SendCQ, RecvCQ *CQ
	o              QPOptions
}

// QP creates a queue pair in the RESET state.
func (n *Node) QP(opts ...Option) *QP {
	n.pair.tb.Helper()
	o := options(opts)
	q := &QP{Node: n, SQ: queue.NewSend(o.Depth), SendCQ: o.SendCQ, RecvCQ: o.RecvCQ, o: o}
	if q.SendCQ == nil {
		q.SendCQ = n.CQ(2 * o.Depth)
	}
	if q.RecvCQ == nil {
		q.RecvCQ = n.CQ(2 * o.Depth)
	}
	depth, sges := uint32(o.Depth), uint32(o.SGEs)
	a := rocev2.QPAttr{Type: o.Type, PD: n.PD, SendCQ: q.SendCQ.CQ, RecvCQ: q.RecvCQ.CQ, SQ: q.SQ,
		Caps:   rocev2.QPCaps{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: sges, MaxRecvSGE: sges, MaxInline: uint32(o.Inline)},
		SigAll: o.SigAll, Profile: o.Profile, Share: o.Share, Num: o.Num, Ctx: q}
	if o.SRQ != nil {
		a.SRQ = o.SRQ.SRQ
	} else {
		q.RQ = queue.NewRecv(o.Depth)
		a.RQ = q.RQ
	}
	var err error
	q.QueuePair, err = n.NIC.CreateQP(a)
	n.pair.check(err)
	n.qps[q.QueuePair] = q
	return q
}

// Modify calls ModifyQP; an error is fatal.
func (q *QP) Modify(a qp.Attr, m qp.AttrMask, av *rocev2.AddressVector) {
	p := q.Node.pair
	p.tb.Helper()
	p.check(q.Node.NIC.ModifyQP(p.now, q.QueuePair, a, m|qp.AttrState, av))
}

// Init takes a queue pair from RESET to INIT.
func (q *QP) Init() {
	q.Node.pair.tb.Helper()
	a := qp.Attr{State: qp.Init, Port: 1, AccessFlags: q.o.Access, QKey: q.o.QKey}
	m := qp.AttrPKeyIndex | qp.AttrPort
	if q.o.Type == qp.UD {
		m |= qp.AttrQKey
	} else {
		m |= qp.AttrAccessFlags
	}
	q.Modify(a, m, nil)
}

// RTR takes a connected queue pair from INIT to RTR.
func (q *QP) RTR(peer *QP) {
	q.Node.pair.tb.Helper()
	av := q.AV()
	a := qp.Attr{State: qp.RTR, PathMTU: q.o.MTU, DestQPN: uint32(peer.Num()), RQPSN: peer.o.PSN,
		MaxDestRdAtomic: q.o.RdAtomic, MinRNRTimer: q.o.MinRNR}
	m := qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN
	if q.o.Type == qp.RC {
		m |= qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer
	}
	q.Modify(a, m, &av)
}

// RTS takes a queue pair from RTR to RTS.
func (q *QP) RTS() {
	q.Node.pair.tb.Helper()
	a := qp.Attr{State: qp.RTS, SQPSN: q.o.PSN, Timeout: q.o.Timeout, RetryCnt: q.o.RetryCnt,
		RNRRetry: q.o.RNRRetry, MaxRdAtomic: q.o.RdAtomic}
	m := qp.AttrSQPSN
	if q.o.Type == qp.RC {
		m |= qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic
	}
	q.Modify(a, m, nil)
}

// AV is the address vector to the peer node.
func (q *QP) AV() rocev2.AddressVector {
	av := rocev2.AddressVector{DGID: q.Node.Peer().GID(q.o.GID), SGIDIndex: q.o.GID}
	if q.o.AV != nil {
		q.o.AV(&av)
	}
	return av
}

// Connect connects two queue pairs in RESET with each other.
func Connect(a, b *QP) {
	a.Node.pair.tb.Helper()
	for _, q := range []*QP{a, b} {
		q.Init()
	}
	a.RTR(b)
	b.RTR(a)
	a.RTS()
	b.RTS()
}

// RC returns a connected pair of queue pairs, one on each node.
func (p *Pair) RC(opts ...Option) (a, b *QP) {
	p.tb.Helper()
	a, b = p.A.QP(opts...), p.B.QP(opts...)
	Connect(a, b)
	return a, b
}

// UC is RC for unreliable connections.
func (p *Pair) UC(opts ...Option) (a, b *QP) {
	p.tb.Helper()
	return p.RC(append([]Option{Type(qp.UC)}, opts...)...)
}

// UD returns two datagram queue pairs that are ready to send, and a handle of each node for the other.
func (p *Pair) UD(opts ...Option) (a, b *QP, toB, toA *rocev2.AH) {
	p.tb.Helper()
	opts = append([]Option{Type(qp.UD)}, opts...)
	a, b = p.A.QP(opts...), p.B.QP(opts...)
	for _, q := range []*QP{a, b} {
		q.Init()
		q.Modify(qp.Attr{State: qp.RTR}, 0, nil)
		q.RTS()
	}
	return a, b, a.AH(), b.AH()
}

// AH creates an address handle for the peer node.
func (q *QP) AH() *rocev2.AH {
	p := q.Node.pair
	p.tb.Helper()
	ah, err := q.Node.NIC.CreateAH(p.now, q.Node.PD, q.AV(), nil)
	p.check(err)
	return ah
}

// Post posts send requests and rings the doorbell once.
func (q *QP) Post(ws ...qp.SendWQE) {
	p := q.Node.pair
	p.tb.Helper()
	for _, w := range ws {
		p.check(q.SQ.Post(w))
	}
	q.Doorbell()
}

// Doorbell informs the NIC of posted requests.
func (q *QP) Doorbell() { q.Node.NIC.Doorbell(q.Node.pair.now, q.QueuePair) }

// PostRecv posts a receive request.
func (q *QP) PostRecv(id uint64, sges ...qp.SGE) {
	q.Node.pair.tb.Helper()
	q.Node.pair.check(q.RQ.Post(qp.RecvWQE{WRID: id, SGEs: sges}))
}

// WaitSend waits for the next send completion, which must be the success of id.
func (q *QP) WaitSend(id uint64) qp.CQE {
	q.Node.pair.tb.Helper()
	return q.expect(q.SendCQ, "send", id)
}

// WaitRecv waits for the next receive completion, which must be the success of id.
func (q *QP) WaitRecv(id uint64) qp.CQE {
	q.Node.pair.tb.Helper()
	return q.expect(q.RecvCQ, "receive", id)
}

func (q *QP) expect(cq *CQ, what string, id uint64) qp.CQE {
	p := q.Node.pair
	p.tb.Helper()
	c := cq.Wait()
	if c.WRID != id || c.Status != qp.StatusSuccess {
		p.Fatalf("%s: %s completion of request %d with status %d, want %d with success", q.Node.Name, what, c.WRID, c.Status, id)
	}
	return c
}

// Destroy destroys the queue pair.
func (q *QP) Destroy() {
	q.Node.pair.tb.Helper()
	q.Node.pair.check(q.Node.NIC.DestroyQP(q.QueuePair))
	delete(q.Node.qps, q.QueuePair)
}
