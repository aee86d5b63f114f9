package rocev2

import (
	"errors"
	"slices"
	"testing"

	"roced.io/roced/bth/inet"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
)

// eventLog collects asynchronous events.
type eventLog struct {
	qp   []qp.Event
	qps  []*QueuePair
	cq   []*CQ
	srq  []*SRQ
	port []qp.Event
}

func (l *eventLog) QPEvent(q *QueuePair, e qp.Event) { l.qps, l.qp = append(l.qps, q), append(l.qp, e) }
func (l *eventLog) CQEvent(c *CQ, _ qp.Event)        { l.cq = append(l.cq, c) }
func (l *eventLog) SRQEvent(s *SRQ, _ qp.Event)      { l.srq = append(l.srq, s) }
func (l *eventLog) PortEvent(e qp.Event)             { l.port = append(l.port, e) }

// ringStub is a completion ring of max entries.
type ringStub struct {
	Arming
	got []qp.CQE
	max int
}

func (r *ringStub) Push(c *qp.CQE) bool {
	if len(r.got) >= r.max {
		return false
	}
	r.got = append(r.got, *c)
	return true
}

func (r *ringStub) Len() int { return len(r.got) }

// queueStub is a send or receive queue of n empty work requests.
type queueStub struct{ n, resets int }

func (s *queueStub) take() bool {
	if s.n == 0 {
		return false
	}
	s.n--
	return true
}
func (s *queueStub) Pending() bool { return s.n > 0 }
func (s *queueStub) Len() int      { return s.n }
func (s *queueStub) Retire(int)    {}
func (s *queueStub) Reset()        { s.n = 0; s.resets++ }

type (
	sqStub struct{ queueStub }
	rqStub struct{ queueStub }
)

func (s *sqStub) Next(*qp.SendWQE) bool { return s.take() }
func (s *rqStub) Next(*qp.RecvWQE) bool { return s.take() }

// objs is a NIC with one object of most kinds.
type objs struct {
	*NIC
	t      testing.TB
	ev     *eventLog
	pd     *PD
	cq     *CQ
	ring   *ringStub
	buf    []byte
	q      *QueuePair
	sq     *sqStub
	rq     *rqStub
	wakeup int
	mrs    []*MR // made by reg
}

func newObjs(t testing.TB, limits Limits) *objs {
	t.Helper()
	o := &objs{t: t, ev: &eventLog{}, ring: &ringStub{max: 64}, buf: make([]byte, 1<<16)}
	var err error
	o.NIC, err = New(Config{Name: "t", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 4300, Events: o.ev, Limits: limits, Seed: [32]byte{1}})
	ok(t, err)
	o.pd, err = o.AllocPD(nil)
	ok(t, err)
	o.cq, err = o.CreateCQ(CQAttr{Entries: 64, Ring: o.ring, Notify: func() { o.wakeup++ }})
	ok(t, err)
	o.q = o.newQP(o.pd)
	o.sq, o.rq = o.q.sq.(*sqStub), o.q.rq.(*rqStub)
	return o
}

func (o *objs) qpAttr() QPAttr {
	return QPAttr{Type: qp.RC, PD: o.pd, SendCQ: o.cq, RecvCQ: o.cq, SQ: &sqStub{}, RQ: &rqStub{},
		Caps: QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4}}
}

func (o *objs) newQP(pd *PD) *QueuePair {
	o.t.Helper()
	a := o.qpAttr()
	a.PD = pd
	q, err := o.CreateQP(a)
	ok(o.t, err)
	return q
}

func (o *objs) newPD() *PD {
	o.t.Helper()
	pd, err := o.AllocPD(nil)
	ok(o.t, err)
	return pd
}

// reg registers the first length bytes of buf at va.
func (o *objs) reg(va, length uint64, a qp.Access) *MR {
	o.t.Helper()
	mr, err := o.RegMR(o.pd, MRAttr{VA: va, Length: length, Access: a, Mem: NewBytes(o.buf)})
	ok(o.t, err)
	o.mrs = append(o.mrs, mr)
	return mr
}

// keyMR returns the region of a key.
func (o *objs) keyMR(key uint32) *MR {
	return o.mrs[slices.IndexFunc(o.mrs, func(mr *MR) bool { return mr.LKey == key })]
}

// info describes a region.
func (o *objs) info(mr *MR) MRInfo {
	all := o.MRs()
	return all[slices.IndexFunc(all, func(i MRInfo) bool { return i.LKey == mr.LKey })]
}

// users returns the number of objects in a domain.
func (o *objs) users(pd *PD) int {
	all := o.PDs()
	return all[slices.IndexFunc(all, func(i PDInfo) bool { return i.ID == pd.ID() })].Users
}

func (o *objs) host() *host { return (*host)(o.q) }

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused asserts that err is want.
func refused(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

const allAccess = memory.AccessRemote | qp.AccessLocalWrite | qp.AccessMWBind

// bound reports whether a window is bound.
func (o *objs) bound(mw *MW) bool {
	return slices.ContainsFunc(o.MWs(), func(i MWInfo) bool { return i.RKey == mw.RKey && i.Bound })
}
