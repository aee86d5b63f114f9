package server

import (
	"testing"

	"roced/internal/abi/uverbs"
	"roced/mono"
	"roced/qp"
	"roced/rocev2"
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

// TestVectors looks for address handles by what they were made of.
func TestVectors(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	pd := u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	attr := uverbs.AHAttr{IsGlobal: 1, PortNum: 1, GRH: uverbs.GlobalRoute{DGID: h.gid, HopLimit: 9, FlowLabel: 7}}
	av := vector(attr.GRH.DGID, 7, 0, 9, 0)
	var c *client
	for c = range h.srv.clients {
	}
	known := func(want bool) {
		t.Helper()
		_ = h.shard.Do(t.Context(), func(mono.Time, *rocev2.NIC) {
			if n := c.ahOf(av); (n != 0) != want {
				t.Errorf("handle %d; one is there: %t", n, want)
			}
			other := av
			if other.HopLimit--; c.ahOf(other) != 0 {
				t.Error("another vector has a handle")
			}
		})
	}
	known(false)
	attr.SL = 3 // which work requests do not say
	create := uverbs.CreateAH{PDHandle: pd, Attr: attr}
	first, second := u.handle(uverbs.CmdCreateAH, create), u.handle(uverbs.CmdCreateAH, create)
	for i, gone := range []uint32{first, second} {
		known(true)
		if err := u.try(uverbs.CmdDestroyAH, uverbs.DestroyAH{AHHandle: gone}); err != nil {
			t.Fatal(i, err)
		}
	}
	known(false)
	if _ = h.shard.Do(t.Context(), func(mono.Time, *rocev2.NIC) {}); len(c.vectors) != 0 {
		t.Errorf("%d vectors are left", len(c.vectors))
	}
}
