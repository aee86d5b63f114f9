package rocev2

import (
	"math/rand/v2"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
)

func TestArmCQ(t *testing.T) {
	plain, solicited, failed := qp.CQE{}, qp.CQE{Solicited: true}, qp.CQE{Status: qp.StatusRemAccessErr}
	for _, c := range []struct {
		name string
		arm  []bool // solicitedOnly
		push []qp.CQE
		want int
	}{
		{"not armed", nil, []qp.CQE{plain, solicited, failed}, 0},
		{"any", []bool{false}, []qp.CQE{plain, plain}, 1},
		{"solicited, plain comes", []bool{true}, []qp.CQE{plain, plain}, 0},
		{"solicited", []bool{true}, []qp.CQE{plain, solicited, solicited}, 1},
		{"solicited, error", []bool{true}, []qp.CQE{plain, failed, solicited}, 1},
		{"any outlasts solicited", []bool{false, true}, []qp.CQE{plain}, 1},
		{"solicited becomes any", []bool{true, false}, []qp.CQE{plain}, 1},
		{"twice is once", []bool{false, false}, []qp.CQE{plain, plain}, 1},
	} {
		o := newObjs(t, Limits{})
		for _, s := range c.arm {
			ok(t, o.ArmCQ(o.cq, s))
		}
		woken := 0
		for _, e := range c.push {
			if o.cq.push(e) {
				woken++
			}
		}
		if o.wakeup != c.want || woken != c.want || len(o.ring.got) != len(c.push) {
			t.Errorf("%s: %d notifications, %d completions", c.name, o.wakeup, len(o.ring.got))
		}
	}
}

// TestArmOverCompletions: arming a completion queue with unreaped completions notifies once, even if a store has
// armed the ring.
func TestArmOverCompletions(t *testing.T) {
	plain, solicited, failed := qp.CQE{}, qp.CQE{Solicited: true}, qp.CQE{Status: qp.StatusRemAccessErr}
	for _, c := range []struct {
		name      string
		push      []qp.CQE
		reaped    int
		solicited bool
		want      int
	}{
		{"nothing", nil, 0, false, 0},
		{"any", []qp.CQE{plain}, 0, false, 1},
		{"several", []qp.CQE{plain, plain, plain}, 1, false, 1},
		{"all reaped", []qp.CQE{plain, plain}, 2, false, 0},
		{"solicited, none", []qp.CQE{plain, plain}, 0, true, 0},
		{"solicited, nothing", nil, 0, true, 0},
		{"solicited", []qp.CQE{solicited}, 0, true, 1},
		{"solicited, before others", []qp.CQE{solicited, plain, plain}, 0, true, 1},
		{"solicited, reaped", []qp.CQE{solicited, plain, plain}, 1, true, 0},
		{"error", []qp.CQE{plain, failed, plain}, 1, true, 1},
		{"error, reaped", []qp.CQE{plain, failed, plain}, 2, true, 0},
	} {
		for _, byStore := range []bool{false, true} {
			o := newObjs(t, Limits{})
			for _, e := range c.push {
				o.cq.push(e)
			}
			o.ring.got = o.ring.got[c.reaped:]
			if byStore {
				o.ring.Arm(map[bool]Arm{false: ArmAny, true: ArmSolicited}[c.solicited])
				o.CQDoorbell(o.cq)
			} else {
				ok(t, o.ArmCQ(o.cq, c.solicited))
			}
			o.CQDoorbell(o.cq) // an unnecessary check
			if o.wakeup != c.want {
				t.Errorf("%s, by store %t: %d notifications", c.name, byStore, o.wakeup)
			}
			if o.cq.push(failed); o.wakeup != 1 {
				t.Errorf("%s, by store %t: %d notifications after an error", c.name, byStore, o.wakeup)
			}
			told := c.want == 0
			if ok(t, o.ArmCQ(o.cq, false)); told != (o.wakeup == 1) {
				t.Errorf("%s, by store %t: %d notifications, armed over what has been told and what has not", c.name, byStore, o.wakeup)
			}
		}
	}
}

// TestNotifyAfterPush: the consumer finds the completion when it is notified.
func TestNotifyAfterPush(t *testing.T) {
	o := newObjs(t, Limits{})
	seen := 0
	ring := &ringStub{max: 4}
	cq, err := o.CreateCQ(CQAttr{Entries: 4, Ring: ring, Notify: func() { seen = len(ring.got) }})
	ok(t, err)
	ok(t, o.ArmCQ(cq, false))
	cq.push(qp.CQE{WRID: 1})
	if seen != 1 {
		t.Errorf("%d completions at the notification", seen)
	}
}

// TestIgnoreOverrun: a full queue of this kind loses completions and works again after reaping.
func TestIgnoreOverrun(t *testing.T) {
	o := newObjs(t, Limits{})
	small := &ringStub{max: 2}
	cq, err := o.CreateCQ(CQAttr{Entries: 2, Ring: small, IgnoreOverrun: true})
	ok(t, err)
	for i := range 5 {
		cq.push(qp.CQE{WRID: uint64(i)})
	}
	if cq.Failed() || len(o.ev.cq) != 0 || len(small.got) != 2 || small.got[1].WRID != 1 {
		t.Errorf("failed %v, %d events, completions %v", cq.Failed(), len(o.ev.cq), small.got)
	}
	small.max = 3
	if cq.push(qp.CQE{WRID: 7}); len(small.got) != 3 || small.got[2].WRID != 7 {
		t.Errorf("completions %v", small.got)
	}
}

func TestCQOverflow(t *testing.T) {
	o := newObjs(t, Limits{})
	small := &ringStub{max: 2}
	cq, err := o.CreateCQ(CQAttr{Entries: 2, Ring: small})
	ok(t, err)
	a := o.qpAttr()
	a.RecvCQ = cq
	victim, err := o.CreateQP(a)
	ok(t, err)
	idle, err := o.CreateQP(a) // remains in RESET
	ok(t, err)
	o.toInit(victim)
	o.toInit(o.q)

	h := (*host)(victim)
	for range 5 {
		h.CompleteRecv(qp.CQE{})
	}
	if !cq.Failed() || len(o.ev.cq) != 1 || o.ev.cq[0] != cq || len(small.got) != 2 {
		t.Fatalf("failed %v, %d events, %d completions", cq.Failed(), len(o.ev.cq), len(small.got))
	}
	if victim.State() != qp.Init {
		t.Error("the state has changed inside a call of the transport")
	}
	o.failOverflowed(0)
	if victim.State() != qp.Err || o.q.State() != qp.Init || idle.State() != qp.Reset {
		t.Errorf("states %d %d %d", victim.State(), o.q.State(), idle.State())
	}
	if len(o.ev.qp) != 1 || o.ev.qps[0] != victim || o.ev.qp[0] != qp.EventQPFatal {
		t.Errorf("events %v", o.ev.qp)
	}
	o.failOverflowed(0)
	if len(o.ev.qp) != 1 || len(o.obj.failing) != 0 {
		t.Error("reported twice")
	}
	refused(t, "use of a failed queue", o.ModifyQP(0, idle, initAttr, initMask, nil), ErrInvalid)
	_, err = o.CreateQP(a)
	refused(t, "new queue pair on a failed queue", err, ErrInvalid)
	refused(t, "resize", o.ResizeCQ(cq, 10, &ringStub{max: 10}), ErrInvalid)
	ok(t, o.DestroyQP(victim))
	ok(t, o.DestroyQP(idle))
	ok(t, o.DestroyCQ(cq))
}

// TestOverflowThenDestroy: a queue pair that waits for its error state can be destroyed.
func TestOverflowThenDestroy(t *testing.T) {
	o := newObjs(t, Limits{})
	o.ring.max = 0
	o.toInit(o.q)
	o.cq.push(qp.CQE{})
	ok(t, o.DestroyQP(o.q))
	o.failOverflowed(0)
	if len(o.ev.qp) != 0 {
		t.Errorf("events %v of a queue pair that has gone", o.ev.qp)
	}
}

func TestPollTransmitFailsQueuePairs(t *testing.T) {
	o := newObjs(t, Limits{})
	o.ring.max = 0
	o.toInit(o.q)
	o.cq.push(qp.CQE{})
	for o.PollTransmit(0) != nil {
	}
	if o.q.State() != qp.Err {
		t.Errorf("state %d", o.q.State())
	}
}

func TestResizeCQ(t *testing.T) {
	o := newObjs(t, Limits{CQE: 100})
	bigger := &ringStub{max: 100}
	refused(t, "zero", o.ResizeCQ(o.cq, 0, bigger), ErrInvalid)
	refused(t, "too many", o.ResizeCQ(o.cq, 101, bigger), ErrInvalid)
	refused(t, "no ring", o.ResizeCQ(o.cq, 10, nil), ErrInvalid)
	ok(t, o.ResizeCQ(o.cq, 100, bigger))
	o.cq.push(qp.CQE{WRID: 7})
	if len(o.ring.got) != 0 || len(bigger.got) != 1 || o.CQs()[0].Entries != 100 {
		t.Error("the old ring is still in use")
	}
}

const initMask = qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags

var initAttr = qp.Attr{State: qp.Init, Port: 1, AccessFlags: memory.AccessRemote}

func (o *objs) toInit(q *QueuePair) {
	o.t.Helper()
	ok(o.t, o.ModifyQP(0, q, initAttr, initMask, nil))
}

func TestSRQLimit(t *testing.T) {
	o := newObjs(t, Limits{})
	rq := &rqStub{queueStub{n: 4}}
	srq, err := o.CreateSRQ(SRQAttr{PD: o.pd, RQ: rq, MaxWR: 8, MaxSGE: 1})
	ok(t, err)
	a := o.qpAttr()
	a.SRQ, a.RQ = srq, nil
	q, err := o.CreateQP(a)
	ok(t, err)
	var w qp.RecvWQE
	take := func(want bool, events int) {
		t.Helper()
		if got := (*host)(q).NextRecv(&w); got != want || len(o.ev.srq) != events {
			t.Fatalf("took one: %v; %d events, want %d", got, len(o.ev.srq), events)
		}
	}
	take(true, 0) // not armed, 3 are left
	ok(t, o.ModifySRQ(srq, 2))
	take(true, 0) // 2 are left
	take(true, 1) // 1 is left
	take(true, 1) // once per arming
	ok(t, o.ModifySRQ(srq, 3))
	take(false, 2) // armed on an empty queue
	rq.n = 8
	ok(t, o.ModifySRQ(srq, 8))
	ok(t, o.ModifySRQ(srq, 0)) // disarmed
	take(true, 2)
	refused(t, "limit", o.ModifySRQ(srq, 9), ErrInvalid)
	info, err := o.QuerySRQ(srq)
	ok(t, err)
	if info.Posted != 7 || info.Users != 1 || info.Limit != 0 {
		t.Errorf("%+v", info)
	}
}

func TestResizeSRQ(t *testing.T) {
	o := newObjs(t, Limits{RecvWR: 100})
	old, other := &rqStub{queueStub{n: 4}}, &rqStub{queueStub{n: 9}}
	srq, err := o.CreateSRQ(SRQAttr{PD: o.pd, RQ: old, MaxWR: 8, MaxSGE: 1, Limit: 5})
	ok(t, err)
	refused(t, "zero", o.ResizeSRQ(srq, 0, other), ErrInvalid)
	refused(t, "too many", o.ResizeSRQ(srq, 101, other), ErrInvalid)
	refused(t, "no ring", o.ResizeSRQ(srq, 10, nil), ErrInvalid)
	refused(t, "below the limit", o.ResizeSRQ(srq, 4, other), ErrInvalid)
	refused(t, "none", o.ResizeSRQ(nil, 10, other), ErrInvalid)
	ok(t, o.ResizeSRQ(srq, 100, other))
	info, err := o.QuerySRQ(srq)
	ok(t, err)
	if info.MaxWR != 100 || info.Posted != 9 || info.Limit != 5 {
		t.Errorf("%+v", info)
	}
}

// TestQPNs: all 24 bits of a QPN are random. No QPN is reserved, and the NIC does not reuse one soon.
func TestQPNs(t *testing.T) {
	var numbers qpnTable
	numbers.init(rand.NewChaCha8([32]byte{3}))
	var bits [24]int
	last := make(map[bth.QPN]int)
	const n = 1 << 17
	for i := range n {
		q := &QueuePair{}
		numbers.add(q)
		if before, again := last[q.num]; q.num <= 2 || q.num >= bth.MaxQPN || again && i-before <= restingQPNs {
			t.Fatalf("QPN %#x of queue pair %d, once of %d", q.num, i, before)
		}
		last[q.num] = i
		for b := range bits {
			bits[b] += int(q.num >> b & 1)
		}
		numbers.rest(q)
	}
	for b, ones := range bits {
		if d := ones - n/2; d*d > n*6 { // 24 bits stay within 5 standard deviations
			t.Errorf("bit %d is set %d times of %d", b, ones, n)
		}
	}
	if numbers.Used > restingQPNs+3 {
		t.Errorf("%d numbers are in use", numbers.Used)
	}
}

func TestReservedQPNs(t *testing.T) {
	o := newObjs(t, Limits{QPs: 3})
	for _, n := range []bth.QPN{1, bth.MRCEndpointQPN, bth.MaxQPN} {
		if o.obj.numbers.Get(uint32(n)) == nil || o.lookupQP(n) != nil {
			t.Errorf("QPN %#x is not reserved", n)
		}
	}
}

func TestLookupQP(t *testing.T) {
	o := newObjs(t, Limits{QPs: 3})
	old := o.q.Num()
	if o.lookupQP(old) != o.q {
		t.Fatal("not found")
	}
	ok(t, o.DestroyQP(o.q))
	if o.lookupQP(old) != nil {
		t.Error("found after it has gone")
	}
	for range 100 {
		q := o.newQP(o.pd)
		if q.num == old || o.lookupQP(q.num) != q || o.lookupQP(old) != nil {
			t.Fatalf("QPN %#x after %#x", q.num, old)
		}
		for _, n := range []bth.QPN{0, 1, bth.MaxQPN, q.num ^ 1<<23, q.num + 1} {
			if o.lookupQP(n) != nil {
				t.Fatalf("QPN %#x found", n)
			}
		}
		ok(t, o.DestroyQP(q))
	}
}
