package rocev2

import (
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// QueuePair is a queue pair of a NIC: the transport's state machine and what it
// uses.
type QueuePair struct {
	Ctx any // the owner's

	core *qp.QP
	nic  *NIC
	num  bth.QPN
	slot uint32
	typ  qp.Type
	pkey uint16
	dead bool

	failing bool // a completion queue has overflowed, see failOverflowed
	lost    bool // something written since the last Sync did not arrive
	sigAll  bool
	guesses guesses
	defers  *deferrals   // nil: nothing to do with Deferred memory so far
	kept    []keptPacket // packets that wait for memory
	windows windowList
	path    path
	node    schedNode
	av      AddressVector

	datagrams Datagrams // sq, if it is of UD and can tell

	pd             *PD
	sendCQ, recvCQ *CQ
	inSend, inRecv int32 // places in the lists of sendCQ and, if that is another one, recvCQ
	srq            *SRQ
	sq             SendQueue
	rq             RecvQueue
	caps           QPCaps
	profile        string
}

// QPCaps are the capacities of a queue pair (ibv_qp_cap).
type QPCaps struct {
	MaxSendWR, MaxRecvWR   uint32
	MaxSendSGE, MaxRecvSGE uint32
	MaxInline              uint32 // bytes
}

// QPAttr describes a queue pair at its creation (ibv_qp_init_attr).
type QPAttr struct {
	Type           qp.Type
	PD             *PD
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // nil: RQ is used
	SQ             SendQueue
	RQ             RecvQueue
	Caps           QPCaps
	SigAll         bool
	Profile        string // name for Config.NewProfile
	Share          Share
	Ctx            any
}

// pkeyDefault is the only partition key, full membership of the default
// partition.
const pkeyDefault = bth.DefaultPKey

// Num returns the queue pair's number.
func (q *QueuePair) Num() bth.QPN { return q.num }

// Type returns the transport service.
func (q *QueuePair) Type() qp.Type { return q.typ }

// State returns the queue pair's state.
func (q *QueuePair) State() qp.State { return q.core.State() }

// CreateQP makes a queue pair in the RESET state (IBTA vol.1 11.2.5.1).
func (n *NIC) CreateQP(a QPAttr) (*QueuePair, error) {
	const verb = "create_qp"
	if err := n.checkQP(verb, &a); err != nil {
		return nil, err
	}
	if err := n.checkCaps(verb, &a.Caps, a.SRQ != nil); err != nil {
		return nil, err
	}
	prof, err := n.cfg.NewProfile(a.Profile)
	if err != nil {
		return nil, failWith(verb, "profile", ErrInvalid, err)
	}
	q := &QueuePair{Ctx: a.Ctx, nic: n, typ: a.Type, pkey: pkeyDefault, sigAll: a.SigAll,
		pd: a.PD, sendCQ: a.SendCQ, recvCQ: a.RecvCQ, srq: a.SRQ, sq: a.SQ, rq: a.RQ,
		caps: a.Caps, profile: a.Profile}
	var ok bool
	if q.slot, ok = n.obj.qps.add(q); !ok {
		return nil, fail(verb, "QPs", ErrLimit)
	}
	n.obj.numbers.add(q)
	tuning := qp.Software
	tuning.PathSeed = n.obj.rngs.Uint64()
	q.core = qp.New(qp.Config{Type: a.Type, QPN: q.num,
		MaxSendWR: a.Caps.MaxSendWR, MaxRecvWR: a.Caps.MaxRecvWR,
		MaxSendSGE: a.Caps.MaxSendSGE, MaxRecvSGE: a.Caps.MaxRecvSGE, MaxInline: a.Caps.MaxInline,
		SigAll: a.SigAll, HasSRQ: a.SRQ != nil, MaxUnacked: n.cfg.MaxUnacked,
		CNPInterval: max(n.cfg.CNPInterval, 0),
		Profile:     prof, Host: (*host)(q), Counters: &n.ctr.Counters, Scratch: &n.temp, Tuning: tuning})
	q.hold(1)
	q.sendCQ.enlist(q)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.enlist(q)
	}
	n.sch.join(q, a.Share)
	if q.typ == qp.UD {
		q.datagrams, _ = a.SQ.(Datagrams)
	}
	return q, nil
}

// placeIn is where the place of q in the list of c is kept.
func (q *QueuePair) placeIn(c *CQ) *int32 {
	if q.sendCQ == c {
		return &q.inSend
	}
	return &q.inRecv
}

// hold counts the queue pair as a user of what it uses, or no longer.
func (q *QueuePair) hold(d int) {
	q.pd.users += d
	q.sendCQ.users += d
	q.recvCQ.users += d
	if q.srq != nil {
		q.srq.users += d
	}
}

// checkQP checks the objects that a new queue pair is to use.
func (n *NIC) checkQP(verb string, a *QPAttr) error {
	bad := func(attr string) error { return fail(verb, attr, ErrInvalid) }
	switch {
	case a.Type != qp.RC && a.Type != qp.UC && a.Type != qp.UD:
		return bad("qp_type")
	case !n.ownsPD(a.PD):
		return bad("pd")
	case !n.ownsCQ(a.SendCQ) || a.SendCQ.failed:
		return bad("send_cq")
	case !n.ownsCQ(a.RecvCQ) || a.RecvCQ.failed:
		return bad("recv_cq")
	case a.Share.Class >= sched.Classes || a.Share.Weight < 0 || a.Share.Client == anyClient:
		return bad("share")
	case a.SQ == nil:
		return bad("send queue")
	case a.SRQ == nil && a.RQ == nil:
		return bad("receive queue")
	case a.SRQ != nil && !n.ownsSRQ(a.SRQ):
		return bad("srq")
	}
	return nil
}

// checkCaps checks the capacities against the limits of the NIC.
func (n *NIC) checkCaps(verb string, c *QPCaps, srq bool) error {
	if srq {
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0 // those of the SRQ count
	}
	l := &n.cfg.Limits
	switch {
	case c.MaxSendWR > uint32(l.SendWR):
		return fail(verb, "max_send_wr", ErrInvalid)
	case c.MaxRecvWR > uint32(l.RecvWR):
		return fail(verb, "max_recv_wr", ErrInvalid)
	case c.MaxSendSGE > uint32(l.SGE):
		return fail(verb, "max_send_sge", ErrInvalid)
	case c.MaxRecvSGE > uint32(l.SGE):
		return fail(verb, "max_recv_sge", ErrInvalid)
	case c.MaxInline > uint32(l.Inline):
		return fail(verb, "max_inline_data", ErrInvalid)
	}
	return nil
}

// ModifyQP changes state and attributes of a queue pair (IBTA vol.1 11.2.5.2); av
// belongs to the bit qp.AttrAV. On error nothing has changed.
func (n *NIC) ModifyQP(now mono.Time, q *QueuePair, a qp.Attr, mask qp.AttrMask, av *AddressVector) error {
	const verb = "modify_qp"
	n.now = now
	if !n.ownsQP(q) {
		return fail(verb, "qp", ErrInvalid)
	}
	n.failOne(now, q)
	if err := n.checkModify(verb, q, &a, mask, av); err != nil {
		return err
	}
	if q.typ == qp.UD && mask&qp.AttrState != 0 && a.State == qp.RTR {
		a.PathMTU, mask = n.PortAttr().ActiveMTU, mask|qp.AttrPathMTU
	}
	var p path
	var err error
	if mask&qp.AttrAV != 0 {
		if p, err = n.newPath(now, q.marked(*av)); err != nil {
			return failPath(verb, err)
		}
	}
	from := q.State()
	if err := q.core.Modify(now, a, mask); err != nil {
		if mask&qp.AttrAV != 0 {
			n.releasePath(&p)
		}
		return failWith(verb, "attributes", ErrInvalid, err)
	}
	if mask&qp.AttrAV != 0 {
		n.releasePath(&q.path)
		q.path, q.av = p, *av
		n.prioritise(q, av.Priority())
	}
	if mask&(qp.AttrAV|qp.AttrDestQPN) != 0 {
		n.setQPNs(&q.path, q.num, bth.QPN(q.core.Attr().DestQPN))
		q.core.SetFlow(q.path.flowOf())
	}
	switch to := q.State(); {
	case mask&qp.AttrState == 0:
	case to == qp.Reset:
		n.reset(q)
	case to == qp.RTS && from == qp.RTR:
		q.sq.Reset() // what was posted too early, without a bell
	}
	if mask&qp.AttrState != 0 && a.State == qp.RTR {
		n.connecting(now, q)
	}
	n.failOverflowed(now)
	n.rearm(q)
	n.activate(q)
	return nil
}

// marked returns av with its ECN bits as the congestion control of q wants them; one
// that does not learn from marks leaves them to the user (RFC 3168 section 5).
func (q *QueuePair) marked(av AddressVector) AddressVector {
	if q.core.ECNCapable() {
		av.TrafficClass = av.TrafficClass&^ecnMask | ecnECT0
	}
	return av
}

func (n *NIC) ownsQP(q *QueuePair) bool { return q != nil && q.nic == n && !q.dead }

// checkModify checks what the transport does not know: port, partition, numbers
// and limits of the NIC.
func (n *NIC) checkModify(verb string, q *QueuePair, a *qp.Attr, mask qp.AttrMask, av *AddressVector) error {
	l := &n.cfg.Limits
	has := func(m qp.AttrMask) bool { return mask&m != 0 }
	attr := ""
	switch {
	case has(qp.AttrAV) && av == nil:
		attr = "ah_attr"
	case has(qp.AttrPort) && a.Port != 1:
		attr = "port_num"
	case has(qp.AttrPKeyIndex) && a.PKeyIndex != 0:
		attr = "pkey_index"
	case has(qp.AttrAccessFlags) && a.AccessFlags&^(accessRemote|accessLocalOnly|accessFlush|accessOptional) != 0:
		attr = "qp_access_flags"
	case has(qp.AttrPathMTU) && q.typ == qp.UD: // has none; the transport is told that of the link
		attr = "path_mtu"
	case has(qp.AttrPathMTU) && (a.PathMTU.Bytes() == 0 || a.PathMTU > n.PortAttr().ActiveMTU):
		attr = "path_mtu"
	case has(qp.AttrDestQPN) && a.DestQPN > uint32(bth.MaxQPN):
		attr = "dest_qp_num"
	case has(qp.AttrMaxRdAtomic) && int(a.MaxRdAtomic) > l.RdAtomic:
		attr = "max_rd_atomic"
	case has(qp.AttrMaxDestRdAtomic) && int(a.MaxDestRdAtomic) > l.RdAtomic:
		attr = "max_dest_rd_atomic"
	case has(qp.AttrState) && a.State != qp.Reset && a.State != qp.Err && (q.sendCQ.failed || q.recvCQ.failed):
		attr = "qp_state: completion queue in error"
	}
	if attr != "" {
		return fail(verb, attr, ErrInvalid)
	}
	return nil
}

// reset discards what is posted and what is on its way, and where the queue pair
// was connected to.
func (n *NIC) reset(q *QueuePair) {
	n.unschedule(q)
	q.sq.Reset()
	if q.rq != nil {
		q.rq.Reset()
	}
	q.core.ClearFlow()
	n.releasePath(&q.path)
	q.av = AddressVector{}
}

// DestroyQP ends a queue pair; its outstanding work requests do not complete
// (IBTA vol.1 11.2.5.4). Windows that are bound through it are closed.
func (n *NIC) DestroyQP(q *QueuePair) error {
	if !n.ownsQP(q) {
		return fail("destroy_qp", "qp", ErrInvalid)
	}
	n.unschedule(q)
	n.detachAll(q)
	q.core.CloseTrace()
	q.core.Free()
	q.core.ClearFlow()
	n.releasePath(&q.path)
	for mw := q.windows.first; mw != nil; mw = q.windows.first {
		mw.unbind()
	}
	n.obj.qps.remove(q.slot)
	n.obj.numbers.rest(q)
	n.sch.leave(q)
	q.hold(-1)
	q.sendCQ.dismiss(q)
	if q.recvCQ != q.sendCQ {
		q.recvCQ.dismiss(q)
	}
	q.dead = true
	return nil
}

// QPInfo describes a queue pair.
type QPInfo struct {
	Num                bth.QPN
	Type               qp.Type
	PD, SendCQ, RecvCQ uint32
	SRQ                uint32 // 0: none
	Attr               qp.Attr
	Caps               QPCaps
	SigAll             bool
	Connected          bool // AV is set
	AV                 AddressVector
	Profile            string
	Window, Rate       uint64 // of congestion control: bytes, bits per second; ccalgo.Unlimited
	Groups             []GID  // to which it is attached
	Ctx                any
}

// QueryQP describes a queue pair (ibv_query_qp).
func (n *NIC) QueryQP(q *QueuePair) (QPInfo, error) {
	if !n.ownsQP(q) {
		return QPInfo{}, fail("query_qp", "qp", ErrInvalid)
	}
	return q.info(), nil
}

func (q *QueuePair) info() QPInfo {
	i := QPInfo{Num: q.num, Type: q.typ, PD: q.pd.id, SendCQ: q.sendCQ.id, RecvCQ: q.recvCQ.id,
		Attr: q.core.Attr(), Caps: q.caps, SigAll: q.sigAll, Connected: q.path.hdrLen != 0, AV: q.av,
		Profile: q.profile, Ctx: q.Ctx}
	i.Window, i.Rate = q.core.Limits()
	for _, g := range q.nic.net.mcast.list {
		if slices.Contains(g.qps, q) {
			i.Groups = append(i.Groups, g.gid)
		}
	}
	if q.srq != nil {
		i.SRQ = q.srq.id
	}
	return i
}

// QPs describes all queue pairs.
func (n *NIC) QPs() []QPInfo {
	out := make([]QPInfo, 0, n.obj.qps.live)
	for q := range n.obj.qps.all {
		out = append(out, q.info())
	}
	return out
}
