package server

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/internal/daemon/rxering"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// completionQueue is a CQ of a client.
type completionQueue struct {
	Owner
	c      *rocev2.CQ
	client *client
	user   uint64 // the client's handle
	ch     *channel
	ring   *mapping
	cq     *rxering.CQRing

	compEvents  atomic.Uint32 // written events, which DESTROY_CQ reports
	asyncEvents atomic.Uint32
}

// notify sends a completion event. The shard calls it.
func (q *completionQueue) notify() {
	var b [8]byte
	native.PutUint64(b[:], q.user)
	q.ch.send(newNotice(b[:], &q.compEvents))
}

func (c *client) createCQ(q *request) error {
	var in uverbs.CreateCQ
	if err := q.decode(&in); err != nil {
		return err
	}
	return c.makeCQ(q, &in, func(r uverbs.CreateCQResp) { q.core = r })
}

func (c *client) exCreateCQ(q *request) error {
	in, err := uverbs.DecodeEx[uverbs.ExCreateCQ](q.Body, 32)
	if err != nil {
		return err
	}
	if in.CompMask != 0 || in.Flags&^(uverbs.CQTimestampCompletion|uverbs.CQIgnoreOverrun) != 0 { // all completions have time stamps
		return unix.EOPNOTSUPP
	}
	old := uverbs.CreateCQ{UserHandle: in.UserHandle, CQE: in.CQE, CompVector: in.CompVector, CompChannel: in.CompChannel, Reserved: in.Flags}
	return c.makeCQ(q, &old, func(r uverbs.CreateCQResp) { q.core = uverbs.ExCreateCQResp{Base: r, ResponseLength: 16} })
}

// makeCQ creates a completion queue. reply writes the response except for the provider's part.
func (c *client) makeCQ(q *request, in *uverbs.CreateCQ, reply func(uverbs.CreateCQResp)) error {
	if c.cqs.full() {
		return unix.ENOMEM
	}
	o := &completionQueue{Owner: c.owner(), client: c, user: in.UserHandle}
	if in.CompVector >= numCompVectors {
		return unix.EINVAL
	}
	if in.CompChannel >= 0 {
		ch, err := c.channels.get(uint32(in.CompChannel))
		if err != nil {
			return err
		}
		o.ch = ch
	}
	if err := c.checkCQE(in.CQE); err != nil {
		return err
	}
	ring, cq, err := c.newCQRing(in.CQE)
	if err != nil {
		return err
	}
	o.ring, o.cq = ring.m, cq
	attr := rocev2.CQAttr{Entries: int(ring.entries), Ring: cq, IgnoreOverrun: in.Reserved&uverbs.CQIgnoreOverrun != 0, Ctx: o}
	if o.ch != nil {
		attr.Notify = o.notify
	}
	err = c.do(func(_ mono.Time, n *rocev2.NIC) (err error) {
		if o.c, err = n.CreateCQ(attr); err != nil {
			return err
		}
		handle := c.cqs.add(o)
		if c.bell != nil {
			c.bell.SetCQ(handle, o.c)
		}
		reply(uverbs.CreateCQResp{CQHandle: handle, CQE: ring.entries})
		return nil
	})
	if o.c == nil {
		ring.discard()
		return err
	}
	if o.ch != nil {
		o.ch.cqs++
	}
	q.provider = uverbs.RxeCreateCQResp{MI: ring.info}
	return nil
}

// checkCQE checks the NIC's limits before the daemon allocates memory.
func (c *client) checkCQE(cqe uint32) error {
	return c.do(func(_ mono.Time, n *rocev2.NIC) error {
		if cqe == 0 || cqe > uint32(n.Limits().CQE) {
			return unix.EINVAL
		}
		return nil
	})
}

// resizeCQ replaces the ring of a completion queue and copies the unread completions to it.
func (c *client) resizeCQ(q *request) error {
	var in uverbs.ResizeCQ
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.cqs.get(in.CQHandle)
	if err != nil {
		return err
	}
	if err := c.checkCQE(in.CQE); err != nil {
		return err
	}
	ring, cq, err := c.newCQRing(in.CQE)
	if err != nil {
		return err
	}
	resized := false
	err = c.do(func(_ mono.Time, n *rocev2.NIC) error {
		if !o.cq.MoveTo(cq) {
			return unix.EINVAL // too many unread completions
		}
		if err := n.ResizeCQ(o.c, int(ring.entries), cq); err != nil {
			return err
		}
		resized = true
		return nil
	})
	if !resized {
		ring.discard()
		return err
	}
	release(o.ring)
	o.ring, o.cq = ring.m, cq
	q.core = uverbs.ResizeCQResp{CQE: ring.entries}
	q.provider = uverbs.RxeCreateCQResp{MI: ring.info}
	return nil
}

func (c *client) destroyCQ(q *request) error {
	var in uverbs.DestroyCQ
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.cqs.get(in.CQHandle)
	if err != nil {
		return err
	}
	err = c.do(func(_ mono.Time, n *rocev2.NIC) error {
		if err := n.DestroyCQ(o.c); err != nil {
			return err
		}
		if c.bell != nil {
			c.bell.SetCQ(in.CQHandle, nil)
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.cqs.remove(in.CQHandle)
	release(o.ring)
	r := uverbs.DestroyCQResp{AsyncEventsReported: c.asyncEvents(&o.asyncEvents)}
	if o.ch != nil {
		o.ch.cqs--
		r.CompEventsReported = o.ch.forget(&o.compEvents)
	}
	q.core = r
	return nil
}

func (c *client) reqNotifyCQ(q *request) error {
	var in uverbs.ReqNotifyCQ
	if err := q.decode(&in); err != nil {
		return err
	}
	o, err := c.cqs.get(in.CQHandle)
	if err != nil {
		return err
	}
	return c.do(func(_ mono.Time, n *rocev2.NIC) error { return n.ArmCQ(o.c, in.SolicitedOnly != 0) })
}

func (c *client) createCompChannel(q *request) error {
	if c.channels.full() {
		c.forgetChannels()
	}
	if c.channels.full() {
		return unix.ENOMEM
	}
	ch, fd, err := c.newChannel()
	if err != nil {
		return err
	}
	ch.id = c.channels.add(ch)
	q.attach(uverbs.FD{FD: fd, Kind: uverbs.FDNumber})
	q.core = uverbs.CreateCompChannelResp{FD: ch.id}
	return nil
}

// newChannel makes a channel if the user's quota allows another descriptor.
func (c *client) newChannel() (*channel, int, error) {
	if !c.account.Take(quota.Descriptors, 1) {
		return nil, -1, unix.EMFILE
	}
	ch, fd, err := newChannel(c.srv.flusher)
	if err != nil {
		c.account.Add(quota.Descriptors, -1)
	}
	return ch, fd, err
}

// forgetChannels closes channels whose descriptor the client has closed. Clients have no command for this.
func (c *client) forgetChannels() {
	for id, ch := range c.channels.all {
		if ch.cqs == 0 && ch.gone() {
			ch.close()
			c.channels.remove(id)
			c.account.Add(quota.Descriptors, -1)
		}
	}
}
