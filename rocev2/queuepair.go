package rocev2

import (
	"fmt"
	"slices"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/list"
	"roced.io/roced/internal/base/sched"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
	"roced.io/roced/rocev2/object"
	"roced.io/roced/rocev2/stack"
)

// QueuePair is a queue pair of a NIC: the transport's state machine and the objects that it uses.
type QueuePair struct {
	Ctx any // for the owner

	core *qp.QP
	nic  *NIC
	num  bth.QPN
	slot uint32
	typ  qp.Type
	pkey uint16
	dead bool

	failing bool      // a completion queue has overflowed, see failOverflowed
	lost    bool      // a write since the last Sync has failed
	wary    bool      // read distant memory before it is sent: it had gone when the receiver read it
	failure qp.Status // of the last work request that failed
	sigAll  bool
	// blockOwn is QPAttr.BlockOwn.
	blockOwn bool
	guesses  guesses
	defers   *deferrals      // nil: no Deferred memory used so far
	pending  []pendingPacket // packets that wait for memory
	windows  memory.Bindings
	path     stack.Path
	source   source
	flow     *flow                 // nil: not connected to another address
	ends     list.Node[*QueuePair] // in endpointPeer.queuePairs
	// endpoint is the peer of a connected queue pair of MRC, else nil. ports are those of its ports that q has applied.
	endpoint *endpointPeer
	ports    uint32
	node     schedNode
	av       AddressVector

	datagrams Datagrams // sq of a UD queue pair, if it implements Datagrams

	pd             *PD
	sendCQ, recvCQ *CQ
	inSend, inRecv int32 // places in the lists of sendCQ and, if it differs, recvCQ
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

// QPAttr describes a new queue pair (ibv_qp_init_attr).
type QPAttr struct {
	Type           qp.Type
	PD             *PD
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // nil: RQ is used
	SQ             SendQueue
	RQ             RecvQueue
	Caps           QPCaps
	SigAll         bool
	BlockOwn       bool   // no copies of its own datagrams to groups
	Profile        string // name for Config.NewProfile
	Share          Share
	Usage          *qp.Usage // counts the messages of the queue pair; nil: nothing does
	// Num is the queue pair's number, which must be free; 0: a random one, which off-path attackers cannot guess.
	Num bth.QPN
	Ctx any
}

// pkeyDefault is the only partition key: full membership of the default partition.
const pkeyDefault = bth.DefaultPKey

// Num returns the queue pair's number.
func (q *QueuePair) Num() bth.QPN { return q.num }

// State returns the queue pair's state.
func (q *QueuePair) State() qp.State { return q.core.State() }

// CreateQP creates a queue pair in the RESET state (IBTA vol.1 11.2.5.1).
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
	q := &QueuePair{Ctx: a.Ctx, nic: n, typ: a.Type, pkey: pkeyDefault, sigAll: a.SigAll, blockOwn: a.BlockOwn,
		pd: a.PD, sendCQ: a.SendCQ, recvCQ: a.RecvCQ, srq: a.SRQ, sq: a.SQ, rq: a.RQ,
		caps: a.Caps, profile: a.Profile}
	var ok bool
	if q.slot, ok = n.obj.qps.Add(q); !ok {
		return nil, fail(verb, "QPs", ErrLimit)
	}
	if a.Num == 0 {
		n.obj.numbers.add(q)
	} else {
		n.obj.numbers.choose(q, a.Num)
	}
	q.windows.QPN = uint32(q.num)
	tuning := qp.Software
	tuning.PathSeed = n.obj.seeds.Uint64()
	q.core = qp.New(qp.Config{Type: a.Type, QPN: q.num,
		MaxSendWR:  a.Caps.MaxSendWR,
		MaxSendSGE: a.Caps.MaxSendSGE, MaxRecvSGE: a.Caps.MaxRecvSGE, MaxInline: a.Caps.MaxInline,
		SigAll: a.SigAll, HasSRQ: a.SRQ != nil, MaxUnacked: n.maxUnacked(prof.Kind),
		CNPInterval: max(n.cfg.CNPInterval, 0), SingleWrites: n.cfg.SingleWrites,
		Profile: prof, Host: (*host)(q), Counters: &n.ctr.Counters, Usage: a.Usage, Scratch: &n.temp, Tuning: tuning})
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

// placeIn returns the place of q in the list of c.
func (q *QueuePair) placeIn(c *CQ) *int32 {
	if q.sendCQ == c {
		return &q.inSend
	}
	return &q.inRecv
}

// hold counts d more users of the objects that the queue pair uses.
func (q *QueuePair) hold(d int) {
	q.pd.Use(d)
	q.sendCQ.users += d
	q.recvCQ.users += d
	if q.srq != nil {
		q.srq.users += d
	}
}

// checkQP checks the objects of a new queue pair.
func (n *NIC) checkQP(verb string, a *QPAttr) error {
	bad := func(attr string) error { return fail(verb, attr, ErrInvalid) }
	switch {
	case a.Type != qp.RC && a.Type != qp.UC && a.Type != qp.UD:
		return bad("qp_type")
	case !n.mem.OwnsPD(a.PD):
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
	case a.Num != 0 && !n.obj.numbers.free(a.Num):
		return bad(fmt.Sprintf("qp_num %d: must be 2 to %d, unused and not reserved", a.Num, bth.MaxQPN-1))
	}
	return nil
}

// checkCaps checks the capacities against the limits of the NIC.
func (n *NIC) checkCaps(verb string, c *QPCaps, srq bool) error {
	if srq {
		c.MaxRecvWR, c.MaxRecvSGE = 0, 0 // the SRQ has its own
	}
	l := &n.cfg.Limits
	for _, x := range []struct {
		attr  string
		v     uint32
		limit int
	}{
		{"max_send_wr", c.MaxSendWR, l.SendWR}, {"max_recv_wr", c.MaxRecvWR, l.RecvWR}, {"max_send_sge", c.MaxSendSGE, l.SGE},
		{"max_recv_sge", c.MaxRecvSGE, l.SGE}, {"max_inline_data", c.MaxInline, l.Inline},
	} {
		if x.v > uint32(x.limit) {
			return fail(verb, x.attr, ErrInvalid)
		}
	}
	return nil
}

// ModifyQP changes state and attributes of a queue pair (IBTA vol.1 11.2.5.2). av belongs to the bit qp.AttrAV. On error
// nothing has changed.
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
	var p stack.Path
	var err error
	if mask&qp.AttrAV != 0 {
		if p, err = n.net.NewPathOf(now, q.marked(*av), holderOf(q.Ctx)); err != nil {
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
		n.ends.leave(q)
		n.releasePath(&q.path)
		q.path, q.av = p, *av
		n.watchSource(q)
		n.sch.prioritise(q, av.Priority())
	}
	if mask&(qp.AttrAV|qp.AttrDestQPN) != 0 {
		n.net.SetQPNs(&q.path, q.num, bth.QPN(q.core.Attr().DestQPN))
		q.core.SetFlow(qp.Flow{Dst: q.path.Dst, Port: q.path.SourcePort()})
		n.setPeer(now, q)
		n.ends.join(q)
	}
	switch to := q.State(); {
	case mask&qp.AttrState == 0:
	case to == qp.Reset:
		n.reset(q)
	case to == qp.RTS && from == qp.RTR:
		q.sq.Reset() // requests posted too early, without a doorbell
	}
	if q.State() != from {
		n.learnPorts(now, q)
	}
	if mask&qp.AttrState != 0 && a.State == qp.RTR {
		q.core.SetMTU(n.PortAttr().ActiveMTU)
		n.connecting(now, q)
	}
	n.failOverflowed(now)
	n.sch.rearm(q)
	n.sch.activate(q)
	return nil
}

// marked returns av with the ECN bits that the congestion control of q needs. One that ignores marks leaves the bits to the
// user (RFC 3168 section 5), and so does Config.OwnECN.
func (q *QueuePair) marked(av AddressVector) AddressVector {
	if q.core.ECNCapable() && !q.nic.cfg.OwnECN {
		av.TrafficClass = av.TrafficClass&^inet.ECNMask | inet.ECT0
	}
	return av
}

func (n *NIC) ownsQP(q *QueuePair) bool { return q != nil && q.nic == n && !q.dead }

// checkModify checks the attributes that the transport does not know: port, partition, numbers and limits of the NIC.
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
	case has(qp.AttrAccessFlags) && a.AccessFlags&^(memory.AccessRemote|memory.AccessLocal|memory.AccessFlush|memory.AccessOptional) != 0:
		attr = "qp_access_flags"
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

// reset discards posted requests, packets in progress and the path.
func (n *NIC) reset(q *QueuePair) {
	n.unschedule(q)
	q.sq.Reset()
	if q.rq != nil {
		q.rq.Reset()
	}
	q.core.ClearFlow()
	n.ends.leave(q)
	n.releasePath(&q.path)
	n.setPeer(n.now, q)
	q.av = AddressVector{}
}

// DestroyQP destroys a queue pair and closes the windows bound through it. Its outstanding work requests do not complete
// (IBTA vol.1 11.2.5.4).
func (n *NIC) DestroyQP(q *QueuePair) error {
	if !n.ownsQP(q) {
		return fail("destroy_qp", "qp", ErrInvalid)
	}
	n.unschedule(q)
	n.detachAll(q)
	q.core.CloseTrace()
	q.core.Free()
	q.core.ClearFlow()
	n.ends.leave(q)
	n.releasePath(&q.path)
	n.setPeer(n.now, q)
	q.windows.Unbind()
	n.obj.qps.Remove(q.slot)
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
	Failure            qp.Status  // of the last work request that failed; StatusSuccess: none
	Window, Rate       uint64     // of congestion control: bytes, bits per second; ccalgo.Unlimited
	Groups             []inet.GID // attached
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
	i := QPInfo{Num: q.num, Type: q.typ, PD: q.pd.ID(), SendCQ: q.sendCQ.id, RecvCQ: q.recvCQ.id,
		Attr: q.core.Attr(), Caps: q.caps, SigAll: q.sigAll, Connected: q.path.Valid(), AV: q.av,
		Profile: q.profile, Failure: q.failure, Ctx: q.Ctx}
	i.Window, i.Rate = q.core.Limits()
	for _, g := range q.nic.mcast.list {
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
	return object.Describe(&n.obj.qps, (*QueuePair).info)
}
