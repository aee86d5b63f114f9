package server

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/rxering"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// sharedQueue is an SRQ of a client.
type sharedQueue struct {
	Owner
	s      *rocev2.SRQ
	client *client
	user   uint64
	sge    uint32
	ring   *mapping
	rq     *rxering.RecvRing
	events atomic.Uint32
}

func (c *client) createSRQ(q *request) error {
	var in uverbs.CreateSRQ
	if err := q.decode(&in); err != nil {
		return err
	}
	return c.makeSRQ(q, &in)
}

// createXSRQ creates a basic SRQ. It rejects XRC and tag matching.
func (c *client) createXSRQ(q *request) error {
	var in uverbs.CreateXSRQ
	if err := q.decode(&in); err != nil {
		return err
	}
	if in.SRQType != uverbs.SRQTypeBasic {
		return unix.EOPNOTSUPP
	}
	return c.makeSRQ(q, &uverbs.CreateSRQ{UserHandle: in.UserHandle, PDHandle: in.PDHandle, MaxWR: in.MaxWR,
		MaxSGE: in.MaxSGE, SRQLimit: in.SRQLimit})
}

// postSRQRecv has nothing to do, like postRecv.
func (c *client) postSRQRecv(q *request) error {
	var in uverbs.PostSend
	if err := q.decode(&in); err != nil {
		return err
	}
	if _, err := c.srqs.get(in.QPHandle); err != nil {
		return err
	}
	if in.WRCount != 0 {
		return unix.EINVAL
	}
	q.core = uverbs.PostSendResp{}
	return nil
}

func (c *client) makeSRQ(q *request, in *uverbs.CreateSRQ) error {
	pd, err := c.pds.get(in.PDHandle)
	if err != nil {
		return err
	}
	if c.srqs.full() {
		return unix.ENOMEM
	}
	if err := c.checkCaps(&rocev2.QPAttr{Caps: rocev2.QPCaps{MaxRecvWR: in.MaxWR, MaxRecvSGE: in.MaxSGE}}); err != nil {
		return err
	}
	rq, rr, err := c.newRecvRing(in.MaxWR, in.MaxSGE)
	if err != nil {
		return err
	}
	o := &sharedQueue{Owner: c.owner(), client: c, user: in.UserHandle, sge: in.MaxSGE, ring: rq.m, rq: rr}
	err = c.do(func(_ mono.Time, n *rocev2.NIC) (err error) {
		o.s, err = n.CreateSRQ(rocev2.SRQAttr{PD: pd, RQ: rr, MaxWR: rq.entries, MaxSGE: in.MaxSGE, Limit: in.SRQLimit, Ctx: o})
		if err == nil {
			q.core = uverbs.CreateSRQResp{SRQHandle: c.srqs.add(o), MaxWR: rq.entries, MaxSGE: in.MaxSGE, SRQN: o.s.ID()}
		}
		return err
	})
	if o.s == nil {
		rq.discard()
		return err
	}
	q.provider = uverbs.RxeCreateSRQResp{MI: rq.info, SRQNum: o.s.ID()}
	return nil
}

// modifySRQ resizes the queue, arms the limit event, or does both.
func (c *client) modifySRQ(q *request) error {
	var in uverbs.ModifySRQ
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.srqs.get(in.SRQHandle)
	switch {
	case err != nil:
		return err
	case in.AttrMask&^(uverbs.SRQMaxWR|uverbs.SRQLimit) != 0:
		return unix.EINVAL
	case in.AttrMask&uverbs.SRQMaxWR != 0:
		return c.resizeSRQ(q, o, &in)
	case in.AttrMask == 0:
		return nil
	}
	return c.do(func(_ mono.Time, n *rocev2.NIC) error { return n.ModifySRQ(o.s, in.SRQLimit) })
}

// resizeSRQ replaces the ring of a shared receive queue and copies the pending receives to it. The client must not
// post meanwhile.
func (c *client) resizeSRQ(q *request, o *sharedQueue, in *uverbs.ModifySRQ) error {
	if q.Out < uverbs.Size[uverbs.ModifySRQResp]() {
		return unix.ENOSPC
	}
	if in.MaxWR == 0 {
		return unix.EINVAL
	}
	if err := c.checkCaps(&rocev2.QPAttr{Caps: rocev2.QPCaps{MaxRecvWR: in.MaxWR, MaxRecvSGE: o.sge}}); err != nil {
		return err
	}
	rq, rr, err := c.newRecvRing(in.MaxWR, o.sge)
	if err != nil {
		return err
	}
	resized := false
	err = c.do(func(_ mono.Time, n *rocev2.NIC) error {
		arms := in.AttrMask&uverbs.SRQLimit != 0
		if arms && in.SRQLimit > rq.entries || !o.rq.MoveTo(rr) {
			return unix.EINVAL // too many pending receives
		}
		if err := n.ResizeSRQ(o.s, rq.entries, rr); err != nil {
			return err
		}
		resized = true
		if arms {
			return n.ModifySRQ(o.s, in.SRQLimit)
		}
		return nil
	})
	if !resized {
		rq.discard()
		return err
	}
	release(o.ring)
	o.ring, o.rq = rq.m, rr
	q.core = uverbs.ModifySRQResp{MI: rq.info}
	return nil
}

func (c *client) querySRQ(q *request) error {
	var in uverbs.QuerySRQ
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.srqs.get(in.SRQHandle)
	if err != nil {
		return err
	}
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		i, err := n.QuerySRQ(o.s)
		if err == nil {
			q.core = uverbs.QuerySRQResp{MaxWR: i.MaxWR, MaxSGE: i.MaxSGE, SRQLimit: i.Limit}
		}
		return err
	})
}

func (c *client) destroySRQ(q *request) error {
	var in uverbs.DestroySRQ
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.srqs.get(in.SRQHandle)
	if err != nil {
		return err
	}
	if err := c.do(func(_ mono.Time, n *rocev2.NIC) error { return n.DestroySRQ(o.s) }); err != nil {
		return err
	}
	c.srqs.remove(in.SRQHandle)
	release(o.ring)
	q.core = uverbs.DestroySRQResp{EventsReported: c.asyncEvents(&o.events)}
	return nil
}
