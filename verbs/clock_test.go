package verbs_test

import (
	"testing"
	"time"

	"roced.io/roced/verbs"
)

// TestCompletionTime: a completion carries the time at which its frame arrived or left, not the time of polling.
func TestCompletionTime(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		a, b := connected(t, verbs.QPInitAttr{Type: typ})
		var last verbs.Timestamp
		late := 0
		for i := uint64(0); late < 3; i++ { // a message may take longer than usual
			if i == 100 {
				t.Fatalf("type %d: completions are as old as polls", typ)
			}
			must(t, b.qp.PostRecv(&verbs.RecvWR{WRID: i, SGEs: []verbs.SGE{b.mr.SGE(0, 100)}}))
			posted := a.ctx.Now()
			must(t, a.qp.PostSend(&verbs.SendWR{WRID: i, Opcode: verbs.OpSend, Flags: verbs.SendSignaled, SGEs: []verbs.SGE{a.mr.SGE(0, 100)}}))
			time.Sleep(50 * time.Millisecond)
			polled := a.ctx.Now()
			sent, received := a.completion().Time, b.completion().Time
			if polled.Sub(sent) > 40*time.Millisecond && polled.Sub(received) > 40*time.Millisecond {
				late++
			}
			if sent < posted || received < posted || sent <= last || received <= last {
				t.Errorf("type %d: posted %d, sent %d, received %d, the message before %d", typ, posted, sent, received, last)
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
	now := n.ctx.Now()
	if d := time.Since(now.Wall()); d < 0 || d > time.Second {
		t.Errorf("the time of day of now is %v ago", d)
	}
}
