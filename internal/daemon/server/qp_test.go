package server

import (
	"testing"

	"roced/internal/abi/uverbs"
	"roced/qp"
)

// TestInlineRoom checks that a queue pair tells of the room for inline data that
// its send ring has: as much as the SGEs take, without having been asked for.
func TestInlineRoom(t *testing.T) {
	e := newEndpoint(t, pair(t, testLimits)[0])
	for _, c := range []struct{ sge, asked, want uint32 }{{1, 0, 16}, {1, 16, 16}, {1, 40, 40}, {4, 8, 64}} {
		resp, _ := e.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
			MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: c.sge, MaxRecvSGE: 1, MaxInlineData: c.asked, QPType: uint8(qp.RC)})
		if got := word(resp, 6); got != c.want {
			t.Errorf("%d SGEs and %d bytes: room for %d, not %d", c.sge, c.asked, got, c.want)
		}
		e.must(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: word(resp, 0)})
	}
}
