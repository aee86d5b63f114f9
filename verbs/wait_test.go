package verbs_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	testlab "roced.io/roced/internal/lab"
	"roced.io/roced/verbs"
)

func TestOverrun(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC, SignalAll: true})
	cq, err := a.ctx.CreateCQ(1, nil)
	must(t, err)
	must(t, a.qp.Destroy())
	must(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.AttrState))
	a.cq = cq
	a.createQP(verbs.QPInitAttr{Type: verbs.RC, SignalAll: true})
	join(t, a, b)
	wr := verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("x"), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	_, err = a.qp.PostSendN([]verbs.SendWR{wr, wr, wr, wr})
	must(t, err)
	seen := map[verbs.EventType]bool{}
	for !seen[verbs.EventCQErr] || !seen[verbs.EventQPFatal] {
		e, err := a.ctx.GetAsyncEvent(timeout(t))
		must(t, err)
		if e.Type == verbs.EventCQErr && e.CQ != cq || e.Type == verbs.EventQPFatal && e.QP != a.qp {
			t.Errorf("event %+v", e)
		}
		seen[e.Type] = true
	}
	n, err := cq.PollWait(timeout(t), make([]verbs.WC, 8))
	if n != 1 || err != nil {
		t.Errorf("%d completions, %v", n, err)
	}
	_, err = cq.PollWait(timeout(t), make([]verbs.WC, 8))
	want(t, err, verbs.ErrCQOverrun)
	_, err = cq.Wait(timeout(t), make([]verbs.WC, 8))
	want(t, err, verbs.ErrCQOverrun)
}

func TestWaiting(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC})
	wcs := make([]verbs.WC, 4)
	// Completion channel events without Wait: solicited only.
	must(t, b.cq.ReqNotify(true))
	for i := range 2 {
		must(t, b.qp.PostRecv(&verbs.RecvWR{WRID: uint64(i)}))
	}
	must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend}))
	if n, err := b.cq.PollWait(timeout(t), wcs); n != 1 || err != nil {
		t.Fatalf("%d completions, %v", n, err)
	}
	must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSolicited}))
	if cq, err := b.ch.Next(timeout(t)); cq != b.cq || err != nil {
		t.Fatalf("event of %v, %v", cq, err)
	}
	if n, err := b.cq.Poll(wcs); n != 1 || err != nil || wcs[0].WRID != 1 {
		t.Fatalf("%d completions, %v", n, err)
	}

	short, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	for _, wait := range []func(context.Context, []verbs.WC) (int, error){b.cq.Wait, b.cq.PollWait} {
		_, err := wait(short, wcs)
		want(t, err, context.DeadlineExceeded)
	}
	_, err := b.ch.Next(short)
	want(t, err, context.DeadlineExceeded)
	_, err = b.ctx.GetAsyncEvent(short)
	want(t, err, context.DeadlineExceeded)
	quiet, err := b.ctx.CreateCQ(4, nil)
	must(t, err)
	_, err = quiet.Wait(timeout(t), wcs)
	want(t, err, verbs.ErrNoChannel)
	want(t, quiet.ReqNotify(false), verbs.ErrNoChannel)
}

// TestManyWaiters: goroutines wait for several queues on one channel while others post to one queue pair.
func TestManyWaiters(t *testing.T) {
	const queues, senders, each = 3, 4, 50
	hosts := lab(t)
	a := hosts[0].open(t)
	b := hosts[1].open(t)
	var wg sync.WaitGroup
	for range queues {
		x, y := *a, *b
		var err error
		x.cq, err = a.ctx.CreateCQ(senders*each, a.ch)
		must(t, err)
		y.cq, err = b.ctx.CreateCQ(senders*each, b.ch)
		must(t, err)
		attr := verbs.QPInitAttr{Type: verbs.RC, SignalAll: true, MaxSendWR: senders * each, MaxRecvWR: senders * each, MaxInline: 8, MaxSendSGE: 1, MaxRecvSGE: 1}
		x.createQP(attr)
		y.createQP(attr)
		join(t, &x, &y)
		for range senders * each {
			must(t, y.qp.PostRecv(&verbs.RecvWR{SGEs: []verbs.SGE{y.mr.SGE(0, 8)}}))
		}
		for range senders {
			wg.Go(func() {
				for range each {
					if err := x.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("12345678")}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for _, n := range []*node{&x, &y} {
			wg.Go(func() {
				for got := 0; got < senders*each; {
					var wcs [16]verbs.WC
					k, err := n.cq.Wait(timeout(t), wcs[:])
					if err != nil {
						t.Errorf("after %d completions: %v", got, err)
						return
					}
					got += k
				}
			})
		}
	}
	wg.Wait()
}

// inside waits until n goroutines are in a function of the package.
func inside(t *testing.T, n int, function string) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	testlab.Eventually(t, testlab.Limit, function+" is called", func() bool {
		return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "/verbs."+function) == n
	})
}

func TestDaemonDies(t *testing.T) {
	hosts := lab(t)
	n := hosts[0].open(t)
	n.createQP(verbs.QPInitAttr{Type: verbs.RC})
	must(t, n.qp.ToInit(verbs.DefaultConnParams()))
	results := make(chan error, 3)
	second, err := n.ctx.CreateCQ(4, n.ch)
	must(t, err)
	go func() { _, err := n.cq.Wait(context.Background(), make([]verbs.WC, 1)); results <- err }()
	go func() { _, err := second.Wait(context.Background(), make([]verbs.WC, 1)); results <- err }()
	go func() { _, err := n.cq.PollWait(context.Background(), make([]verbs.WC, 1)); results <- err }()
	inside(t, 2, "(*CompChannel).await(")
	inside(t, 1, "(*CQ).PollWait(")
	hosts[0].stop()
	for range 3 {
		select {
		case err := <-results:
			want(t, err, verbs.ErrDeviceFatal)
		case <-time.After(10 * time.Second):
			t.Fatal("still waiting")
		}
	}
	select {
	case <-n.ctx.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("not done")
	}
	var last verbs.AsyncEvent
	for last = range n.ctx.Events() { // the port may have come up before
	}
	if last.Type != verbs.EventDeviceFatal {
		t.Errorf("event %+v", last)
	}
	_, err = n.ctx.GetAsyncEvent(timeout(t))
	want(t, err, verbs.ErrDeviceFatal)
	_, err = n.ctx.AllocPD()
	want(t, err, verbs.ErrDeviceFatal)
	want(t, n.qp.PostRecv(&verbs.RecvWR{}), verbs.ErrDeviceFatal)
	want(t, n.qp.PostSend(&verbs.SendWR{}), verbs.ErrDeviceFatal)
	_, err = n.cq.Poll(make([]verbs.WC, 1))
	want(t, err, verbs.ErrDeviceFatal)
	want(t, n.qp.Destroy(), verbs.ErrDeviceFatal)
}

func TestCloseWhileWaiting(t *testing.T) {
	n := lab(t)[0].open(t)
	results := make(chan error, 2)
	go func() { _, err := n.cq.Wait(context.Background(), make([]verbs.WC, 1)); results <- err }()
	go func() {
		_, err := n.ctx.GetAsyncEvent(context.Background())
		for err == nil { // the port comes up
			_, err = n.ctx.GetAsyncEvent(context.Background())
		}
		results <- err
	}()
	inside(t, 1, "(*CompChannel).await(")
	inside(t, 1, "(*Context).GetAsyncEvent(")
	must(t, n.ctx.Close())
	for range 2 {
		want(t, <-results, verbs.ErrClosed)
	}
	_, err := n.ctx.AllocBuffer(1)
	want(t, err, verbs.ErrClosed)
}

func TestNoAllocations(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC})
	wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{a.mr.SGE(0, 100)}}
	recv := verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 100)}}
	wcs := make([]verbs.WC, 4)
	round := func() {
		if err := errors.Join(b.qp.PostRecv(&recv), a.qp.PostSend(&wr)); err != nil {
			t.Fatal(err)
		}
		for _, cq := range []*verbs.CQ{a.cq, b.cq} {
			if n, err := cq.PollWait(context.Background(), wcs); n != 1 || err != nil || wcs[0].Status != verbs.StatusSuccess {
				t.Fatalf("%d, %v, %+v", n, err, wcs[0])
			}
		}
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
