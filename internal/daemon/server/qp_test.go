package server

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/rxering"

	"roced.io/roced/bth/inet"
	"roced.io/roced/bth/mad"
	"roced.io/roced/internal/daemon/quota"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// TestInlineRoom checks that a queue pair reports the inline room of its send ring. Unless more is requested, it
// equals the size of the SGEs.
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

// TestModifyQPs checks that one command moves a queue pair through several states in order and stops at the first
// refused change. If a change is malformed, the command applies none.
func TestModifyQPs(t *testing.T) {
	h := pair(t, testLimits)[0]
	e := newEndpoint(t, h)
	resp, _ := e.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
		MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(qp.UD)})
	handle := word(resp, 0)
	to := func(s qp.State, mask qp.AttrMask) uverbs.ModifyQP {
		return uverbs.ModifyQP{QPHandle: handle, AttrMask: uint32(qp.AttrState | mask), QPState: uint8(s), PortNum: 1}
	}
	reset, init := to(qp.Reset, 0), to(qp.Init, qp.AttrPKeyIndex|qp.AttrPort|qp.AttrQKey)
	rtr, rts := to(qp.RTR, 0), to(qp.RTS, qp.AttrSQPSN)
	unknown := rts
	unknown.QPHandle++
	for _, c := range []struct {
		what    string
		changes []uverbs.ModifyQP
		refused bool
		state   qp.State
	}{
		{"all three", []uverbs.ModifyQP{init, rtr, rts}, false, qp.RTS},
		{"one that is refused between others", []uverbs.ModifyQP{reset, init, rts, rtr}, true, qp.Init},
		{"back", []uverbs.ModifyQP{reset}, false, qp.Reset},
		{"one of no queue pair", []uverbs.ModifyQP{init, rtr, unknown}, true, qp.Reset},
		{"one with a rate", []uverbs.ModifyQP{init, to(qp.RTR, qp.AttrRateLimit)}, true, qp.Reset},
		{"too many", []uverbs.ModifyQP{init, init, init, init, init, init, init, init, init}, true, qp.Reset},
		{"none", nil, true, qp.Reset},
		{"as many as there may be", []uverbs.ModifyQP{init, init, init, init, init, init, rtr, rts}, false, qp.RTS},
	} {
		if err := e.try(uverbs.ExtModifyQPs, c.changes); (err != nil) != c.refused {
			t.Errorf("%s: %v", c.what, err)
		}
		resp, _ := e.must(uverbs.CmdQueryQP, uverbs.QueryQP{QPHandle: handle})
		r, err := uverbs.Decode[uverbs.QueryQPResp](resp)
		if err != nil || qp.State(r.QPState) != c.state {
			t.Errorf("%s: the queue pair is in %v, not %v; %v", c.what, qp.State(r.QPState), c.state, err)
		}
	}
}

// TestOrigins looks up address handles by origin.
func TestOrigins(t *testing.T) {
	h := pair(t, testLimits)[0]
	u := h.connect(t)
	pds := [2]uint32{u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}), u.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})}
	lid := binary.BigEndian.Uint16(h.gid[14:])
	attrs := [2]uverbs.AHAttr{
		{IsGlobal: 1, PortNum: 1, SL: 3, GRH: uverbs.GlobalRoute{DGID: h.gid, HopLimit: 9, FlowLabel: 7}}, // work requests carry no SL
		{DLID: lid, PortNum: 1},
	}
	dests := [2]rxering.Destination{{AV: vector(h.gid, 7, 0, 9, 0)}, {LID: lid}}
	var c *client
	for c = range h.srv.clients {
	}
	// known returns the number of origins that have a handle.
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
			for range 2 { // the second one takes over when the first is destroyed
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

// TestControlledQKey checks that only root may set a controlled Q_Key, such as that of queue pair 1.
func TestControlledQKey(t *testing.T) {
	for _, c := range []struct {
		uid  uint32
		mask qp.AttrMask
		qkey uint32
		want bool
	}{
		{0, qp.AttrQKey, mad.QKey, true},
		{1000, qp.AttrQKey, mad.QKey, false},
		{1000, qp.AttrQKey | qp.AttrState, 1 << 31, false},
		{1000, qp.AttrQKey, 1<<31 - 1, true},
		{1000, qp.AttrState, mad.QKey, true}, // the field is not used
	} {
		u := client{cred: &unix.Ucred{Uid: c.uid}}
		if got := u.mayUse(&uverbs.ModifyQP{AttrMask: uint32(c.mask), QKey: c.qkey}); got != c.want {
			t.Errorf("user %d, mask %#x, Q_Key %#x: %v", c.uid, c.mask, c.qkey, got)
		}
	}
}

// TestGroupQuota checks that a user's quota of multicast groups covers all clients. Leaving, destroying a queue pair
// and closing a connection refund it.
func TestGroupQuota(t *testing.T) {
	var all quota.Amounts
	all[quota.Groups] = 3
	h := pair(t, testLimits, quota.New(quota.Amounts{}, all, nil))[0]
	e := newEndpoint(t, h)
	newQP := func() uint32 {
		resp, _ := e.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
			MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(qp.UD)})
		return word(resp, 0)
	}
	member := func(qp uint32, n byte) uverbs.AttachMcast {
		return uverbs.AttachMcast{QPHandle: qp, GID: inet.GIDOf(netip.AddrFrom4([4]byte{239, 0, 0, n}))}
	}
	a, b := newQP(), newQP()
	for n := range byte(3) {
		for _, q := range []uint32{a, b, a} { // a group counts once, for any number of members
			e.must(uverbs.CmdAttachMcast, member(q, n))
		}
	}
	refused := func(when string, n byte) {
		t.Helper()
		if err := e.try(uverbs.CmdAttachMcast, member(a, n)); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%s: group %d: %v", when, n, err)
		}
	}
	refused("all used", 4)
	e.must(uverbs.CmdDetachMcast, member(a, 0))
	refused("b is still in group 0", 4)
	e.must(uverbs.CmdDetachMcast, member(b, 0))
	e.must(uverbs.CmdAttachMcast, member(a, 4))
	refused("all used again", 5)
	e.must(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: a})
	e.must(uverbs.CmdAttachMcast, member(b, 5)) // replaces group 4, whose only member was a
	e.conn.Close()
	eventually(t, "an end of all accounts", func() bool { return len(h.srv.cfg.Quota.Usage()) == 0 })
}
