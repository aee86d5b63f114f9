package rocev2

import (
	"math"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/object"
)

// CQ is a completion queue (IBTA vol.1 10.8).
type CQ struct {
	Ctx any // for the owner

	nic     *NIC // nil when destroyed
	id      uint32
	entries int
	ring    CompletionRing
	notify  func()
	failed  bool         // the ring has overflowed
	lossy   bool         // CQAttr.IgnoreOverrun
	users   int          // send and receive queues that complete here
	queues  []*QueuePair // owners of those queues, each once
	fresh   int          // completions since the last notification
	quiet   int          // completions since the last loud one
	cqe     qp.CQE
}

// Arm is a set of conditions for the next notification (IBTA vol.1 11.4.2.2).
type Arm uint32

const (
	ArmAny       Arm = 1 << iota // any completion
	ArmSolicited                 // a solicited one or an error
)

// loud reports whether ArmSolicited waits for e.
func loud(e *qp.CQE) bool { return e.Solicited || e.Status != qp.StatusSuccess }

// due reports whether n completions, of which the last quiet ones are not loud, meet a.
func (a Arm) due(n, quiet int) bool {
	return n > 0 && (a&ArmAny != 0 || a&ArmSolicited != 0 && quiet < n)
}

// Arming implements the arming of a CompletionRing that is not shared memory.
type Arming struct{ arm Arm }

// Arm, Armed and Disarm implement part of CompletionRing.
func (a *Arming) Arm(x Arm)  { a.arm |= x }
func (a *Arming) Armed() Arm { return a.arm }
func (a *Arming) Disarm()    { a.arm = 0 }

// CQAttr describes a completion queue.
type CQAttr struct {
	Entries int
	Ring    CompletionRing
	// Notify is called, once for each arming, after a completion has entered the ring. It must not call the NIC. It may
	// be nil.
	Notify func()
	// IgnoreOverrun makes a full queue lose completions instead of failing (IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN).
	IgnoreOverrun bool
	Ctx           any
}

// CQInfo describes a completion queue.
type CQInfo struct {
	ID      uint32
	Entries int
	Users   int
	Armed   bool
	Failed  bool
	Ctx     any
}

// ID returns the completion queue's number in this NIC.
func (c *CQ) ID() uint32 { return c.id }

// Failed reports whether the completion queue has overflowed.
func (c *CQ) Failed() bool { return c.failed }

// CreateCQ creates a completion queue.
func (n *NIC) CreateCQ(a CQAttr) (*CQ, error) {
	if err := n.checkCQ("create_cq", a.Entries, a.Ring); err != nil {
		return nil, err
	}
	c := &CQ{Ctx: a.Ctx, nic: n, entries: a.Entries, ring: a.Ring, notify: a.Notify, lossy: a.IgnoreOverrun, quiet: math.MaxInt}
	var ok bool
	if c.id, ok = n.obj.cqs.Add(c); !ok {
		return nil, fail("create_cq", "CQs", ErrLimit)
	}
	return c, nil
}

func (n *NIC) checkCQ(verb string, entries int, ring CompletionRing) error {
	if entries < 1 || entries > n.cfg.Limits.CQE {
		return fail(verb, "cqe", ErrInvalid)
	}
	if ring == nil {
		return fail(verb, "ring", ErrInvalid)
	}
	return nil
}

func (n *NIC) ownsCQ(c *CQ) bool { return c != nil && c.nic == n }

// DestroyCQ destroys a completion queue that no queue pair uses.
func (n *NIC) DestroyCQ(c *CQ) error {
	if !n.ownsCQ(c) {
		return fail("destroy_cq", "cq", ErrInvalid)
	}
	if c.users > 0 {
		return fail("destroy_cq", "cq", ErrBusy)
	}
	n.obj.cqs.Remove(c.id)
	c.nic, c.ring, c.notify = nil, nil, nil
	return nil
}

// ResizeCQ replaces the ring. The caller has moved the unreaped completions and the arming into it.
func (n *NIC) ResizeCQ(c *CQ, entries int, ring CompletionRing) error {
	if !n.ownsCQ(c) || c.failed {
		return fail("resize_cq", "cq", ErrInvalid)
	}
	if err := n.checkCQ("resize_cq", entries, ring); err != nil {
		return err
	}
	c.entries, c.ring = entries, ring
	return nil
}

// ArmCQ requests one notification of a completion or, with solicitedOnly, of a solicited one or an error. A request for
// any completion outlasts one for solicited completions. IBTA vol.1 11.4.2.2 means the next completion. Adapters also
// notify of an unreaped completion that has caused no notification. Programs rely on both: UCX sleeps after arming,
// perftest counts notifications.
func (n *NIC) ArmCQ(c *CQ, solicitedOnly bool) error {
	if !n.ownsCQ(c) {
		return fail("req_notify_cq", "cq", ErrInvalid)
	}
	a := ArmAny
	if solicitedOnly {
		a = ArmSolicited
	}
	c.ring.Arm(a)
	n.CQDoorbell(c)
	return nil
}

// add1 counts and never overflows.
func add1(n int) int { return n + min(1, math.MaxInt-n) }

// CQDoorbell follows the arming of a ring by its consumer. It notifies the consumer at once if the ring holds a completion
// that meets the arming.
func (n *NIC) CQDoorbell(c *CQ) {
	if n.ownsCQ(c) {
		c.wake(min(c.ring.Len(), c.fresh))
	}
}

// wake notifies the consumer if one of the last n completions meets the arming, and reports whether it did.
func (c *CQ) wake(n int) bool {
	if c.notify == nil || !c.ring.Armed().due(n, c.quiet) {
		return false
	}
	c.ring.Disarm()
	c.fresh = 0
	c.notify()
	return true
}

// push puts a completion into the ring, notifies the consumer and reports whether it did. If the ring is full, the
// completion queue is in error for ever, EventCQErr reports that, and its queue pairs go to the error state (IBTA vol.1
// 11.6.3). A lossy queue loses the completion instead.
func (c *CQ) push(e qp.CQE) (woken bool) {
	if c.failed {
		return false
	}
	c.cqe = e
	c.cqe.Time = c.nic.now
	if !c.ring.Push(&c.cqe) {
		if c.lossy {
			return false
		}
		c.failed = true
		c.nic.failQueuePairs(c)
		c.nic.cfg.Events.CQEvent(c, qp.EventCQErr)
		return false
	}
	if c.quiet = add1(c.quiet); loud(&c.cqe) {
		c.quiet = 0
	}
	c.fresh = add1(c.fresh)
	return c.wake(1)
}

// failQueuePairs marks the queue pairs of c. One of them is processing a packet now, so they change their state later, in
// failOverflowed.
func (n *NIC) failQueuePairs(c *CQ) {
	for _, q := range c.queues {
		if !q.failing {
			q.failing = true
			n.obj.failing = append(n.obj.failing, q)
			n.sch.activate(q)
		}
	}
}

// failBudget bounds the queue pairs that one PollTransmit or ModifyQP moves to the error state.
const failBudget = 8

// failOverflowed moves queue pairs with an overflowed completion queue to the error state. PollTransmit and ModifyQP begin
// with it.
func (n *NIC) failOverflowed(now mono.Time) {
	// The loop may add more: flushing fills completion queues.
	done := 0
	for ; done < min(len(n.obj.failing), failBudget); done++ {
		n.failOne(now, n.obj.failing[done])
		n.obj.failing[done] = nil
	}
	if n.obj.failing = n.obj.failing[done:]; len(n.obj.failing) == 0 {
		n.obj.failing = nil
	}
}

// failOne moves q to the error state if its completion queue has overflowed.
func (n *NIC) failOne(now mono.Time, q *QueuePair) {
	s := q.core.State()
	if !q.failing || q.dead || s == qp.Reset || s == qp.Err {
		q.failing = false
		return
	}
	q.failing = false
	if q.core.Modify(now, qp.Attr{State: qp.Err}, qp.AttrState) == nil {
		n.cfg.Events.QPEvent(q, qp.EventQPFatal)
		n.sch.rearm(q)
		n.sch.activate(q)
	}
}

// enlist adds q to the queue pairs of c.
func (c *CQ) enlist(q *QueuePair) {
	*q.placeIn(c) = int32(len(c.queues))
	c.queues = append(c.queues, q)
}

// dismiss undoes enlist.
func (c *CQ) dismiss(q *QueuePair) {
	i, last := *q.placeIn(c), len(c.queues)-1
	c.queues[i] = c.queues[last]
	*c.queues[i].placeIn(c) = i
	c.queues[last] = nil
	c.queues = c.queues[:last]
}

// CQs describes all completion queues.
func (n *NIC) CQs() []CQInfo {
	return object.Describe(&n.obj.cqs, func(c *CQ) CQInfo {
		return CQInfo{ID: c.id, Entries: c.entries, Users: c.users, Armed: c.ring.Armed() != 0, Failed: c.failed, Ctx: c.Ctx}
	})
}
