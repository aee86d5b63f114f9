package server

import (
	"encoding/binary"
	"testing"

	"roced/internal/abi/rxe"
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

// TestOrigins looks for address handles by what they were made of.
func TestOrigins(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	pds := [2]uint32{u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})}
	lid := binary.BigEndian.Uint16(h.gid[14:])
	attrs := [2]uverbs.AHAttr{
		{IsGlobal: 1, PortNum: 1, GRH: uverbs.GlobalRoute{DGID: h.gid, HopLimit: 9, FlowLabel: 7}},
		{DLID: lid, PortNum: 1},
	}
	dests := [2]rxe.Destination{{AV: vector(h.gid, 7, 0, 9, 0)}, {LID: lid}}
	var c *client
	for c = range h.srv.clients {
	}
	// known returns how many of the origins have a handle.
	known := func() (n int) {
		t.Helper()
		_ = h.shard.Do(t.Context(), func(mono.Time, *rocev2.NIC) {
			seen := map[uint32]bool{}
			for _, handle := range pds {
				pd, err := c.pds.get(handle)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range dests {
					seen[c.ahOf(origin{pd, d})] = true
					if d.AV.HopLimit--; c.ahOf(origin{pd, d}) != 0 {
						t.Error("another vector has a handle")
					}
				}
			}
			delete(seen, 0)
			n = len(seen)
		})
		return n
	}
	var handles []uint32
	want := 0
	for _, pd := range pds {
		for _, a := range attrs {
			for range 2 { // the second one stands in for the first
				handles = append(handles, u.handle(uverbs.CmdCreateAH, uverbs.CreateAH{PDHandle: pd, Attr: a}))
			}
			if want++; known() != want {
				t.Errorf("%d origins have a handle of their own, want %d", known(), want)
			}
		}
	}
	for i, gone := range handles {
		if err := u.try(uverbs.CmdDestroyAH, uverbs.DestroyAH{AHHandle: gone}); err != nil {
			t.Fatal(i, err)
		}
		if want -= i % 2; known() != want {
			t.Errorf("%d origins have a handle of their own, want %d", known(), want)
		}
	}
	if _ = h.shard.Do(t.Context(), func(mono.Time, *rocev2.NIC) {}); len(c.origins) != 0 {
		t.Errorf("%d origins are left", len(c.origins))
	}
}
