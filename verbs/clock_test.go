package verbs_test

import (
	"errors"
	"testing"
	"time"

	"roced.io/roced/verbs"
)

// TestCompletionTime: a completion carries the time at which its frame arrived or left, not the time of polling.
func TestCompletionTime(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		a, b := connected(t, verbs.QPInitAttr{Type: typ})
		var last verbs.Timestamp
		for i := range uint64(3) {
			must(t, b.qp.PostRecv(&verbs.RecvWR{WRID: i, SGEs: []verbs.SGE{b.mr.SGE(0, 100)}}))
			must(t, errors.Join(a.cq.ReqNotify(false), b.cq.ReqNotify(false)))
			posted := a.ctx.Now()
			must(t, a.qp.PostSend(&verbs.SendWR{WRID: i, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{a.mr.SGE(0, 100)}}))
			for _, n := range []*node{a, b} {
				_, err := n.ch.Next(timeout(t))
				must(t, err)
			}
			completed := a.ctx.Now()
			time.Sleep(time.Millisecond)
			sent, received := a.completion().Time, b.completion().Time
			if sent < posted || received < posted || sent <= last || received <= last || max(sent, received) > completed {
				t.Errorf("type %d: posted %d, sent %d, received %d, completed %d, the message before %d", typ, posted, sent, received, completed, last)
			}
			if typ == verbs.RC && received > sent {
				t.Errorf("acknowledged at %d, received at %d", sent, received)
			}
			last = max(sent, received)
		}
	}
}

func TestClock(t *testing.T) {
	n := lab(t)[0].open(t)
	c, err := n.ctx.QueryClock()
	must(t, err)
	if c.Mask != 1<<64-1 || c.KHz != 1_000_000 {
		t.Errorf("clock %+v", c)
	}
	const slack = time.Second // the time of day may be set
	before := time.Now().Round(0).Add(-slack)
	now := n.ctx.Now().Wall()
	if after := time.Now().Round(0).Add(slack); now.Before(before) || now.After(after) {
		t.Errorf("the time of day of now is %v, not between %v and %v", now, before, after)
	}
}
