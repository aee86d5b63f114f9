package rocev2

import (
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/object"
)

// SRQ is a shared receive queue (IBTA vol.1 10.2.9).
type SRQ struct {
	Ctx any // for the owner

	nic   *NIC // nil when destroyed
	id    uint32
	pd    *PD
	rq    RecvQueue
	maxWR uint32
	sge   uint32
	limit uint32 // 0: not armed
	users int
}

// SRQAttr describes a shared receive queue.
type SRQAttr struct {
	PD     *PD
	RQ     RecvQueue
	MaxWR  uint32
	MaxSGE uint32
	Limit  uint32 // as of ModifySRQ
	Ctx    any
}

// SRQInfo describes a shared receive queue.
type SRQInfo struct {
	ID, PD               uint32
	MaxWR, MaxSGE, Limit uint32
	Posted               int
	Users                int // queue pairs
	Ctx                  any
}

// ID returns the shared receive queue's number in this NIC.
func (s *SRQ) ID() uint32 { return s.id }

// CreateSRQ creates a shared receive queue.
func (n *NIC) CreateSRQ(a SRQAttr) (*SRQ, error) {
	const verb = "create_srq"
	switch l := &n.cfg.Limits; {
	case !n.mem.OwnsPD(a.PD):
		return nil, fail(verb, "pd", ErrInvalid)
	case a.RQ == nil:
		return nil, fail(verb, "queue", ErrInvalid)
	case a.MaxWR == 0 || a.MaxWR > uint32(l.RecvWR):
		return nil, fail(verb, "max_wr", ErrInvalid)
	case a.MaxSGE > uint32(l.SGE):
		return nil, fail(verb, "max_sge", ErrInvalid)
	case a.Limit > a.MaxWR:
		return nil, fail(verb, "srq_limit", ErrInvalid)
	}
	s := &SRQ{Ctx: a.Ctx, nic: n, pd: a.PD, rq: a.RQ, maxWR: a.MaxWR, sge: a.MaxSGE, limit: a.Limit}
	var ok bool
	if s.id, ok = n.obj.srqs.Add(s); !ok {
		return nil, fail(verb, "SRQs", ErrLimit)
	}
	a.PD.Use(1)
	return s, nil
}

func (n *NIC) ownsSRQ(s *SRQ) bool { return s != nil && s.nic == n }

// ModifySRQ arms the limit event. The NIC reports it once, when fewer than limit work requests are left (IBTA vol.1
// 10.2.9). Zero disarms it.
func (n *NIC) ModifySRQ(s *SRQ, limit uint32) error {
	if !n.ownsSRQ(s) {
		return fail("modify_srq", "srq", ErrInvalid)
	}
	if limit > s.maxWR {
		return fail("modify_srq", "srq_limit", ErrInvalid)
	}
	s.limit = limit
	return nil
}

// ResizeSRQ replaces the ring. The caller has moved the outstanding work requests into it. An armed limit must not exceed
// the new size.
func (n *NIC) ResizeSRQ(s *SRQ, maxWR uint32, rq RecvQueue) error {
	const verb = "resize_srq"
	switch {
	case !n.ownsSRQ(s):
		return fail(verb, "srq", ErrInvalid)
	case rq == nil:
		return fail(verb, "queue", ErrInvalid)
	case maxWR == 0 || maxWR > uint32(n.cfg.Limits.RecvWR):
		return fail(verb, "max_wr", ErrInvalid)
	case s.limit > maxWR:
		return fail(verb, "srq_limit", ErrInvalid)
	}
	s.maxWR, s.rq = maxWR, rq
	return nil
}

// QuerySRQ describes a shared receive queue. Limit is zero when it is not armed.
func (n *NIC) QuerySRQ(s *SRQ) (SRQInfo, error) {
	if !n.ownsSRQ(s) {
		return SRQInfo{}, fail("query_srq", "srq", ErrInvalid)
	}
	return s.info(), nil
}

// DestroySRQ destroys a shared receive queue that no queue pair uses.
func (n *NIC) DestroySRQ(s *SRQ) error {
	if !n.ownsSRQ(s) {
		return fail("destroy_srq", "srq", ErrInvalid)
	}
	if s.users > 0 {
		return fail("destroy_srq", "srq", ErrBusy)
	}
	n.obj.srqs.Remove(s.id)
	s.pd.Use(-1)
	s.nic, s.rq = nil, nil
	return nil
}

// next takes a work request. It checks the limit even on an empty queue, so that a limit armed there is reported too.
func (s *SRQ) next(w *qp.RecvWQE) bool {
	ok := s.rq.Next(w)
	if s.limit != 0 && s.rq.Len() < int(s.limit) {
		s.limit = 0
		s.nic.cfg.Events.SRQEvent(s, qp.EventSRQLimitReached)
	}
	return ok
}

func (s *SRQ) info() SRQInfo {
	return SRQInfo{ID: s.id, PD: s.pd.ID(), MaxWR: s.maxWR, MaxSGE: s.sge, Limit: s.limit,
		Posted: s.rq.Len(), Users: s.users, Ctx: s.Ctx}
}

// SRQs describes all shared receive queues.
func (n *NIC) SRQs() []SRQInfo {
	return object.Describe(&n.obj.srqs, (*SRQ).info)
}
