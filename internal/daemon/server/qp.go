package server

import (
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/rxering"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// queuePair is a QP of a client.
type queuePair struct {
	Owner
	q      *rocev2.QueuePair
	client *client
	user   uint64
	rings  []*mapping
	state  int64 // bytes of transport state that count as memory of the client
	events atomic.Uint32
	groups []inet.GID // attached multicast groups
}

// Types of queue pairs that only other devices have (ib_uverbs_qp_type).
const rawPacket = 8

func (c *client) createQP(q *request) error {
	var in uverbs.CreateQP
	if err := q.decode(&in); err != nil {
		return err
	}
	return c.makeQP(q, &in, func(r uverbs.CreateQPResp) { q.core = r })
}

func (c *client) exCreateQP(q *request) error {
	in, err := uverbs.DecodeEx[uverbs.ExCreateQP](q.Body, uverbs.ExCreateQPMin)
	if err != nil {
		return err
	}
	if in.CompMask != 0 || in.CreateFlags&^uverbs.QPBlockSelfMulticast != 0 || in.SourceQPN != 0 {
		return unix.EOPNOTSUPP
	}
	old := uverbs.CreateQP{UserHandle: in.UserHandle, PDHandle: in.PDHandle, SendCQHandle: in.SendCQHandle,
		RecvCQHandle: in.RecvCQHandle, SRQHandle: in.SRQHandle, MaxSendWR: in.MaxSendWR, MaxRecvWR: in.MaxRecvWR,
		MaxSendSGE: in.MaxSendSGE, MaxRecvSGE: in.MaxRecvSGE, MaxInlineData: in.MaxInlineData,
		SQSigAll: in.SQSigAll, QPType: in.QPType, IsSRQ: in.IsSRQ, Reserved: uint8(in.CreateFlags)}
	return c.makeQP(q, &old, func(r uverbs.CreateQPResp) { q.core = uverbs.ExCreateQPResp{Base: r, ResponseLength: 40} })
}

// resolveQP looks up the objects that a new queue pair uses.
func (c *client) resolveQP(in *uverbs.CreateQP) (a rocev2.QPAttr, err error) {
	switch qp.Type(in.QPType) {
	case qp.RC, qp.UC, qp.UD:
	case rawPacket:
		return a, unix.EOPNOTSUPP
	default:
		return a, unix.EINVAL
	}
	send, err := c.cqs.get(in.SendCQHandle)
	if err != nil {
		return a, err
	}
	recv, err := c.cqs.get(in.RecvCQHandle)
	if err != nil {
		return a, err
	}
	if a.PD, err = c.pds.get(in.PDHandle); err != nil {
		return a, err
	}
	a.SendCQ, a.RecvCQ = send.c, recv.c
	if in.IsSRQ != 0 {
		s, err := c.srqs.get(in.SRQHandle)
		if err != nil {
			return a, err
		}
		a.SRQ = s.s
	}
	a.BlockOwn = in.Reserved&uverbs.QPBlockSelfMulticast != 0
	a.Type, a.SigAll, a.Profile, a.Usage = qp.Type(in.QPType), in.SQSigAll != 0, c.profile, &c.traffic.usage
	a.Caps = rocev2.QPCaps{MaxSendWR: in.MaxSendWR, MaxRecvWR: in.MaxRecvWR, MaxSendSGE: in.MaxSendSGE,
		MaxRecvSGE: in.MaxRecvSGE, MaxInline: in.MaxInlineData}
	if share := c.srv.cfg.Share; share != nil {
		a.Share = share(c.cred.Uid, c.serial)
	}
	return a, c.checkCaps(&a)
}

// checkCaps checks the NIC's limits before the daemon allocates memory.
func (c *client) checkCaps(a *rocev2.QPAttr) error {
	return c.peek(func(n *rocev2.NIC) error {
		l := n.Limits()
		switch p := &a.Caps; {
		case p.MaxSendWR > uint32(l.SendWR), p.MaxSendSGE > uint32(l.SGE), p.MaxInline > uint32(l.Inline),
			a.SRQ == nil && (p.MaxRecvWR > uint32(l.RecvWR) || p.MaxRecvSGE > uint32(l.SGE)):
			return unix.EINVAL
		}
		return nil
	})
}

func (c *client) makeQP(q *request, in *uverbs.CreateQP, reply func(uverbs.CreateQPResp)) error {
	a, err := c.resolveQP(in)
	if err != nil {
		return err
	}
	if c.qps.full() {
		return unix.ENOMEM
	}
	p := &a.Caps
	sq, sr, err := c.newSendRing(p.MaxSendWR, p.MaxSendSGE, p.MaxInline)
	if err != nil {
		return err
	}
	// Programs send inline data without requesting room, since rxe always provides some.
	a.SQ, p.MaxSendWR, p.MaxInline = sr, sq.entries, sr.MaxInline()
	if a.Type == qp.UD {
		pd := a.PD
		sr.AHOf = func(d rxering.Destination) uint32 { return c.ahOf(origin{pd, d}) }
	}
	var rq ring
	if a.SRQ == nil {
		var rr *rxering.RecvRing
		if rq, rr, err = c.newRecvRing(p.MaxRecvWR, p.MaxRecvSGE); err != nil {
			sq.discard()
			return err
		}
		a.RQ, p.MaxRecvWR = rr, rq.entries
	}
	o := &queuePair{Owner: c.owner(), client: c, user: in.UserHandle, rings: []*mapping{sq.m, rq.m}}
	a.Ctx = o
	err = c.do(func(_ mono.Time, n *rocev2.NIC) (err error) {
		if o.q, err = n.CreateQP(a); err != nil {
			return err
		}
		reply(c.enlist(o, &a))
		return nil
	})
	if o.q == nil {
		sq.discard()
		rq.discard()
		return err
	}
	q.provider = uverbs.RxeCreateQPResp{RQ: rq.info, SQ: sq.info}
	return nil
}

// enlist assigns a handle to a new queue pair and makes the shard poll it.
func (c *client) enlist(o *queuePair, a *rocev2.QPAttr) uverbs.CreateQPResp {
	handle, p := c.qps.add(o), &a.Caps
	c.traffic.qps[a.Type]++
	if c.bell != nil {
		c.bell.Set(handle, o.q)
	}
	if a.SRQ == nil {
		c.srv.cfg.Shard.Watch(o.q, a.RQ)
	}
	return uverbs.CreateQPResp{QPHandle: handle, QPN: uint32(o.q.Num()), MaxSendWR: p.MaxSendWR, MaxRecvWR: p.MaxRecvWR,
		MaxSendSGE: p.MaxSendSGE, MaxRecvSGE: p.MaxRecvSGE, MaxInlineData: p.MaxInline}
}

func (c *client) destroyQP(q *request) error {
	var in uverbs.DestroyQP
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.qps.get(in.QPHandle)
	if err != nil {
		return err
	}
	err = c.do(func(_ mono.Time, n *rocev2.NIC) error {
		if err := n.DestroyQP(o.q); err != nil {
			return err
		}
		if c.bell != nil {
			c.bell.Set(in.QPHandle, nil)
		}
		c.srv.cfg.Shard.Unwatch(o.q)
		return nil
	})
	if err != nil {
		return err
	}
	c.worker.settle()
	for _, gid := range o.groups {
		c.leaveGroup(gid)
	}
	c.qps.remove(in.QPHandle)
	release(o.rings...)
	c.discharge(o.state)
	q.core = uverbs.DestroyQPResp{EventsReported: c.asyncEvents(&o.events)}
	return nil
}

// postSend rings the doorbell of a queue pair. The work requests are in the ring.
func (c *client) postSend(q *request) error {
	var in uverbs.PostSend
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.qps.get(in.QPHandle)
	if err != nil {
		return err
	}
	if in.WRCount != 0 {
		return unix.EINVAL
	}
	q.core = uverbs.PostSendResp{}
	return c.do(func(now mono.Time, n *rocev2.NIC) error {
		early := o.q.State() < qp.RTS
		n.Doorbell(now, o.q)
		if early {
			return unix.EINVAL
		}
		return nil
	})
}

// postRecv has nothing to do: the NIC reads receive queues when it needs them.
func (c *client) postRecv(q *request) error {
	var in uverbs.PostSend
	if err := q.decode(&in); err != nil {
		return err
	}
	if _, err := c.qps.get(in.QPHandle); err != nil {
		return err
	}
	if in.WRCount != 0 {
		return unix.EINVAL
	}
	q.core = uverbs.PostSendResp{}
	return nil
}

func (c *client) modifyQP(q *request) error {
	var in uverbs.ModifyQP
	if err := q.decode(&in); err != nil {
		return err
	}
	if qp.AttrMask(in.AttrMask)&qp.AttrRateLimit != 0 {
		return unix.EOPNOTSUPP
	}
	ch, err := c.changeOf(&in, 0)
	if err != nil {
		return err
	}
	return c.modify(ch)
}

// modifyQPs runs several MODIFY_QPs in order and stops at the first error.
func (c *client) modifyQPs(q *request) error {
	size := uverbs.Size[uverbs.ModifyQP]()
	if len(q.Body) == 0 || len(q.Body)%size != 0 || len(q.Body)/size > uverbs.MaxModifyQPs {
		return unix.EINVAL
	}
	var changes []change
	for body := range slices.Chunk(q.Body, size) {
		in, err := uverbs.Decode[uverbs.ModifyQP](body)
		if err != nil {
			return unix.EINVAL
		}
		if qp.AttrMask(in.AttrMask)&qp.AttrRateLimit != 0 {
			return unix.EOPNOTSUPP
		}
		ch, err := c.changeOf(&in, 0)
		if err != nil {
			return err
		}
		changes = append(changes, ch)
	}
	return c.modify(changes...)
}

func (c *client) exModifyQP(q *request) error {
	in, err := uverbs.DecodeEx[uverbs.ExModifyQP](q.Body, 112)
	if err != nil {
		return err
	}
	ch, err := c.changeOf(&in.Base, in.RateLimit)
	if err == nil {
		err = c.modify(ch)
	}
	if err != nil {
		return err
	}
	q.core = uverbs.ExModifyQPResp{ResponseLength: 8}
	return nil
}

// change holds the parameters of a MODIFY_QP.
type change struct {
	o    *queuePair
	attr qp.Attr
	mask qp.AttrMask
	dest uverbs.QPDest
}

func (c *client) changeOf(in *uverbs.ModifyQP, rate uint32) (ch change, err error) {
	if ch.o, err = c.qps.get(in.QPHandle); err != nil {
		return ch, err
	}
	if !c.mayUse(in) {
		return ch, unix.EPERM
	}
	if ch.attr, ch.mask, err = attrOf(in, rate); err != nil {
		return ch, err
	}
	if ch.dest = in.Dest; ch.mask&qp.AttrAV != 0 && ch.dest.PortNum > 1 {
		return ch, unix.EINVAL
	}
	return ch, nil
}

// modify applies changes in one turn of the shard, until one fails.
func (c *client) modify(changes ...change) error {
	reset := false
	err := c.do(func(now mono.Time, n *rocev2.NIC) error {
		for _, ch := range changes {
			if err := ch.apply(now, n); err != nil {
				return err
			}
			reset = reset || ch.mask&qp.AttrState != 0 && ch.attr.State == qp.Reset
		}
		return nil
	})
	if reset {
		c.worker.settle()
	}
	return err
}

// apply changes state and attributes.
func (ch *change) apply(now mono.Time, n *rocev2.NIC) error {
	if ch.mask&qp.AttrAV == 0 {
		return n.ModifyQP(now, ch.o.q, ch.attr, ch.mask, nil)
	}
	d := &ch.dest
	av, ok := vector(d.DGID, d.FlowLabel, d.SGIDIndex, d.HopLimit, d.TrafficClass), true
	if d.IsGlobal == 0 {
		av, ok = n.LIDVector(d.DLID)
	}
	if !ok {
		return unix.EINVAL
	}
	av.SL = d.SL & maxSL
	return n.ModifyQP(now, ch.o.q, ch.attr, ch.mask, &av)
}

// controlledQKey is the bit of Q_Keys that only privileged users may set (IBTA vol.1 3.5.3). The Q_Key of queue pair
// 1 has it, so that programs cannot impersonate connection managers.
const controlledQKey = 1 << 31

// mayUse reports whether the client may set the Q_Key, as in Linux (ib_uverbs_modify_qp: CAP_NET_RAW).
func (c *client) mayUse(m *uverbs.ModifyQP) bool {
	return qp.AttrMask(m.AttrMask)&qp.AttrQKey == 0 || m.QKey&controlledQKey == 0 || c.cred.Uid == 0
}

// attrOf converts the attributes of MODIFY_QP. It rejects alternate paths and path migration.
func attrOf(m *uverbs.ModifyQP, rate uint32) (qp.Attr, qp.AttrMask, error) {
	const known = 1<<21 - 1 | qp.AttrRateLimit
	mask := qp.AttrMask(m.AttrMask)
	switch {
	case mask&^known != 0, mask&qp.AttrState != 0 && m.QPState > uint8(qp.Err), mask&qp.AttrCurState != 0 && m.CurQPState > uint8(qp.Err):
		return qp.Attr{}, 0, unix.EINVAL
	case mask&(qp.AttrAltPath|qp.AttrPathMigState|qp.AttrCap) != 0:
		return qp.Attr{}, 0, unix.EOPNOTSUPP
	}
	return qp.Attr{
		State: qp.State(m.QPState), CurState: qp.State(m.CurQPState), EnSQDNotify: m.EnSQDAsyncNotify != 0,
		AccessFlags: qp.Access(m.QPAccessFlags), PKeyIndex: m.PKeyIndex, Port: m.PortNum, QKey: m.QKey,
		PathMTU: qp.MTU(m.PathMTU), Timeout: m.Timeout, RetryCnt: m.RetryCnt, RNRRetry: m.RNRRetry,
		RQPSN: m.RQPSN, SQPSN: m.SQPSN, MaxRdAtomic: m.MaxRdAtomic, MaxDestRdAtomic: m.MaxDestRdAtomic,
		MinRNRTimer: m.MinRNRTimer, DestQPN: m.DestQPNum, RateLimit: rate,
	}, mask, nil
}

func (c *client) queryQP(q *request) error {
	var in uverbs.QueryQP
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.qps.get(in.QPHandle)
	if err != nil {
		return err
	}
	return c.peek(func(n *rocev2.NIC) error {
		i, err := n.QueryQP(o.q)
		if err == nil {
			q.core = queryQPOf(&i)
		}
		return err
	})
}

// queryQPOf converts the description of a queue pair.
func queryQPOf(i *rocev2.QPInfo) uverbs.QueryQPResp {
	a := &i.Attr
	r := uverbs.QueryQPResp{
		MaxSendWR: i.Caps.MaxSendWR, MaxRecvWR: i.Caps.MaxRecvWR, MaxSendSGE: i.Caps.MaxSendSGE,
		MaxRecvSGE: i.Caps.MaxRecvSGE, MaxInlineData: i.Caps.MaxInline,
		QKey: a.QKey, RQPSN: a.RQPSN, SQPSN: a.SQPSN, DestQPNum: a.DestQPN, QPAccessFlags: uint32(a.AccessFlags),
		PKeyIndex: a.PKeyIndex, QPState: uint8(a.State), CurQPState: uint8(a.State), PathMTU: uint8(a.PathMTU),
		MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, PortNum: a.Port,
		Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
	}
	if i.SigAll {
		r.SQSigAll = 1
	}
	if i.Connected {
		r.Dest = uverbs.QPDest{DGID: i.AV.DGID, FlowLabel: i.AV.FlowLabel, SGIDIndex: i.AV.SGIDIndex, HopLimit: i.AV.HopLimit,
			TrafficClass: i.AV.TrafficClass, SL: i.AV.SL, IsGlobal: 1, PortNum: 1}
	}
	return r
}
