package rocev2

import (
	"testing"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// endless is a queue that is refilled as fast as it is emptied.
type endless struct{ taken *int }

func (e endless) take() bool            { *e.taken++; return true }
func (e endless) Next(*qp.SendWQE) bool { return e.take() }
func (e endless) Pending() bool         { return true }
func (e endless) Retire(int)            {}
func (e endless) Reset()                {}

type endlessRecv struct{ endless }

func (e endlessRecv) Next(*qp.RecvWQE) bool { return e.take() }
func (e endlessRecv) Len() int              { return 1 }

// TestTurnEnds: a client posts to many broken queue pairs as fast as they are flushed. A turn of the NIC flushes
// a batch of one of them, so it does not delay other work, and all queue pairs are flushed in turn.
func TestTurnEnds(t *testing.T) {
	o := newObjs(t, Limits{})
	o.ring.max = 1 << 30
	var taken [512]int
	for i := range taken {
		a := o.qpAttr()
		a.SQ, a.RQ = endless{&taken[i]}, endlessRecv{endless{&taken[i]}}
		q, err := o.CreateQP(a)
		ok(t, err)
		o.toInit(q)
		ok(t, o.ModifyQP(1, q, qp.Attr{State: qp.Err}, qp.AttrState, nil))
	}
	now := mono.Time(1)
	total := func() (n int) {
		for _, c := range taken {
			n += c
		}
		return n
	}
	for turn := range 512 * 40 {
		now += 1000
		before := total()
		o.Advance(now)
		for range 64 {
			o.PollTransmit(now)
		}
		if n := total() - before; n == 0 || n > 2*16 {
			t.Fatalf("%d work requests flushed in turn %d", n, turn)
		}
		o.ring.got = o.ring.got[:0]
	}
	for i, n := range taken {
		if n < 1000 {
			t.Errorf("queue pair %d: %d flushed, others have more", i, n)
		}
	}
}

// TestOverflowOfMany overflows a completion queue of many queue pairs. They break one after another; the NIC does not
// visit queue pairs of other completion queues.
func TestOverflowOfMany(t *testing.T) {
	o := newObjs(t, Limits{})
	small := &ringStub{}
	cq, err := o.CreateCQ(CQAttr{Entries: 2, Ring: small})
	ok(t, err)
	var mine []*QueuePair
	for range 100 {
		a := o.qpAttr()
		a.SendCQ = cq
		q, err := o.CreateQP(a)
		ok(t, err)
		o.toInit(q)
		mine = append(mine, q)
	}
	for i := 0; i < len(mine); i += 2 { // the list has holes and moves
		ok(t, o.DestroyQP(mine[i]))
	}
	if len(cq.queues) != 50 {
		t.Fatalf("%d queue pairs are in the list", len(cq.queues))
	}
	cq.push(qp.CQE{})
	broken := func() (n int) {
		for _, q := range mine {
			if !q.dead && q.State() == qp.Err {
				n++
			}
		}
		return n
	}
	calls := 0
	for before := 0; broken() < 50; calls++ {
		o.PollTransmit(mono.Time(calls))
		n := broken()
		if n-before > 8 || n == before {
			t.Fatalf("%d queue pairs broke at once", n-before)
		}
		if before = n; n < 50 && o.NextTimeout() > 0 {
			t.Fatal("the NIC would sleep")
		}
	}
	if o.q.State() == qp.Err {
		t.Error("another's queue pair is broken")
	}
}
