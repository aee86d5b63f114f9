package rocev2

import (
	"errors"
	"strings"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/stack"
)

func TestNewRefusals(t *testing.T) {
	for _, l := range []Limits{{QPs: -1}, {QPs: 1<<20 + 1}, {SGE: 33}, {RdAtomic: 129}, {MRs: 1 << 23}} {
		_, err := New(Config{MAC: inet.MAC{2}, MTU: 1500, Limits: l})
		refused(t, "limits", err, ErrInvalid)
	}
	n, err := New(Config{MAC: inet.MAC{2}, MTU: 1500, Limits: Limits{QPs: 7}})
	ok(t, err)
	if l := n.Limits(); l.QPs != 7 || l.CQs != defaultLimits.CQs {
		t.Errorf("limits %+v", l)
	}
}

func TestNewProfile(t *testing.T) {
	for _, name := range []string{"", "rc"} {
		if p, err := NewProfile(name); err != nil || p.Recovery == nil || p.Controller == nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := NewProfile("warp"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "warp") {
		t.Errorf("unknown profile: %v", err)
	}
}

// TestBusy destroys a set of objects in every wrong order.
func TestBusy(t *testing.T) {
	o := newObjs(t, Limits{})
	srq, err := o.CreateSRQ(SRQAttr{PD: o.pd, RQ: &rqStub{}, MaxWR: 1})
	ok(t, err)
	a := o.qpAttr()
	a.SRQ = srq
	q, err := o.CreateQP(a)
	ok(t, err)
	mr := o.reg(0, 8, 0)
	ah, err := o.CreateAH(0, o.pd, linkLocalAV(), nil)
	ok(t, err)
	refused(t, "cq", o.DestroyCQ(o.cq), ErrBusy)
	refused(t, "srq", o.DestroySRQ(srq), ErrBusy)
	ok(t, o.DestroyQP(q))
	ok(t, o.DestroyQP(o.q))
	ok(t, o.DestroyCQ(o.cq))
	for _, c := range []struct {
		name string
		f    func() error
	}{
		{"srq", func() error { return o.DestroySRQ(srq) }},
		{"mr", func() error { return o.DeregMR(mr) }},
		{"ah", func() error { return o.DestroyAH(ah) }},
	} {
		refused(t, "pd before "+c.name, o.DeallocPD(o.pd), ErrBusy)
		ok(t, c.f())
	}
	ok(t, o.DeallocPD(o.pd))
	if len(o.PDs())+len(o.CQs())+len(o.QPs())+len(o.MRs())+len(o.SRQs())+len(o.AHs())+o.mem.Keys() != 0 {
		t.Error("something is left")
	}
	for name, err := range map[string]error{
		"pd": o.DeallocPD(o.pd), "cq": o.DestroyCQ(o.cq), "qp": o.DestroyQP(q), "srq": o.DestroySRQ(srq),
		"mr": o.DeregMR(mr), "ah": o.DestroyAH(ah),
	} {
		refused(t, name+" twice", err, ErrInvalid)
	}
}

func linkLocalAV() AddressVector {
	return AddressVector{DGID: inet.GID{0: 0xfe, 1: 0x80, 15: 9}}
}

// TestHostileObjects passes nil, destroyed objects and objects of another NIC to every verb.
func TestHostileObjects(t *testing.T) {
	o, other := newObjs(t, Limits{}), newObjs(t, Limits{})
	gone := o.newPD()
	ok(t, o.DeallocPD(gone))
	for _, pd := range []*PD{nil, gone, other.pd} {
		a := o.qpAttr()
		a.PD = pd
		_, err := o.CreateQP(a)
		refused(t, "CreateQP", err, ErrInvalid)
		_, err = o.CreateAH(0, pd, linkLocalAV(), nil)
		refused(t, "CreateAH", err, ErrInvalid)
		_, err = o.CreateSRQ(SRQAttr{PD: pd, RQ: &rqStub{}, MaxWR: 1})
		refused(t, "CreateSRQ", err, ErrInvalid)
	}
	for _, cq := range []*CQ{nil, other.cq} {
		a := o.qpAttr()
		a.SendCQ = cq
		_, err := o.CreateQP(a)
		refused(t, "CreateQP, send CQ", err, ErrInvalid)
		a = o.qpAttr()
		a.RecvCQ = cq
		_, err = o.CreateQP(a)
		refused(t, "CreateQP, receive CQ", err, ErrInvalid)
		refused(t, "ArmCQ", o.ArmCQ(cq, false), ErrInvalid)
		refused(t, "ResizeCQ", o.ResizeCQ(cq, 1, &ringStub{}), ErrInvalid)
	}
	for _, q := range []*QueuePair{nil, other.q} {
		refused(t, "ModifyQP", o.ModifyQP(0, q, qp.Attr{}, 0, nil), ErrInvalid)
		_, err := o.QueryQP(q)
		refused(t, "QueryQP", err, ErrInvalid)
	}
	refused(t, "ModifySRQ", o.ModifySRQ(nil, 0), ErrInvalid)
	_, err := o.QuerySRQ(nil)
	refused(t, "QuerySRQ", err, ErrInvalid)
	_, err = o.CreateCQ(CQAttr{Entries: 1})
	refused(t, "CreateCQ without ring", err, ErrInvalid)
}

func TestCreateQPRefusals(t *testing.T) {
	o := newObjs(t, Limits{QPs: 2, SendWR: 100, RecvWR: 100, SGE: 8, Inline: 64})
	for _, c := range []struct {
		name string
		edit func(*QPAttr)
		want error
	}{
		{"type", func(a *QPAttr) { a.Type = 8 }, ErrInvalid},
		{"send queue", func(a *QPAttr) { a.SQ = nil }, ErrInvalid},
		{"receive queue", func(a *QPAttr) { a.RQ = nil }, ErrInvalid},
		{"class", func(a *QPAttr) { a.Share.Class = 8 }, ErrInvalid},
		{"weight", func(a *QPAttr) { a.Share.Weight = -1 }, ErrInvalid},
		{"max_send_wr", func(a *QPAttr) { a.Caps.MaxSendWR = 101 }, ErrInvalid},
		{"max_recv_wr", func(a *QPAttr) { a.Caps.MaxRecvWR = 101 }, ErrInvalid},
		{"max_send_sge", func(a *QPAttr) { a.Caps.MaxSendSGE = 9 }, ErrInvalid},
		{"max_recv_sge", func(a *QPAttr) { a.Caps.MaxRecvSGE = 1 << 31 }, ErrInvalid},
		{"max_inline_data", func(a *QPAttr) { a.Caps.MaxInline = 65 }, ErrInvalid},
		{"profile", func(a *QPAttr) { a.Profile = "warp" }, ErrInvalid},
		{"none", func(*QPAttr) {}, nil},
		{"too many", func(*QPAttr) {}, ErrLimit},
	} {
		a := o.qpAttr()
		c.edit(&a)
		_, err := o.CreateQP(a)
		refused(t, c.name, err, c.want)
		if err != nil && !strings.HasPrefix(err.Error(), "create_qp: ") {
			t.Errorf("%s: the message %q does not name the verb", c.name, err)
		}
	}
	if o.users(o.pd) != 2 || o.cq.users != 4 {
		t.Errorf("users: %d of the domain, %d of the completion queue", o.users(o.pd), o.cq.users)
	}
}

func TestModifyQPRefusals(t *testing.T) {
	o := newObjs(t, Limits{RdAtomic: 4})
	for _, c := range []struct {
		name string
		a    qp.Attr
		mask qp.AttrMask
	}{
		{"port", qp.Attr{Port: 2}, qp.AttrPort},
		{"pkey", qp.Attr{PKeyIndex: 1}, qp.AttrPKeyIndex},
		{"rights", qp.Attr{AccessFlags: 1 << 12}, qp.AttrAccessFlags},
		{"no address vector", qp.Attr{}, qp.AttrAV},
		{"path MTU", qp.Attr{PathMTU: 6}, qp.AttrPathMTU},
		{"no path MTU", qp.Attr{}, qp.AttrPathMTU},
		{"QPN", qp.Attr{DestQPN: 1 << 24}, qp.AttrDestQPN},
		{"rd_atomic", qp.Attr{MaxRdAtomic: 5}, qp.AttrMaxRdAtomic},
		{"dest_rd_atomic", qp.Attr{MaxDestRdAtomic: 5}, qp.AttrMaxDestRdAtomic},
	} {
		refused(t, c.name, o.ModifyQP(0, o.q, c.a, c.mask, nil), ErrInvalid)
	}
}

func TestPathMTUWithinLink(t *testing.T) {
	n, err := New(Config{MAC: inet.MAC{2}, MTU: 1500})
	ok(t, err)
	q := &QueuePair{nic: n, sendCQ: &CQ{}, recvCQ: &CQ{}}
	if err := n.checkModify("x", q, &qp.Attr{PathMTU: 3}, qp.AttrPathMTU, nil); err != nil {
		t.Error(err)
	}
	refused(t, "2048 on a link of 1500", n.checkModify("x", q, &qp.Attr{PathMTU: 4}, qp.AttrPathMTU, nil), ErrInvalid)
	for _, bytes := range []qp.MTU{64, 200, 255} { // simulations use such MTUs
		refused(t, "a number of bytes", n.checkModify("x", q, &qp.Attr{PathMTU: bytes}, qp.AttrPathMTU, nil), ErrInvalid)
	}
}

func TestAddressHandles(t *testing.T) {
	o := newObjs(t, Limits{AHs: 2})
	ah, err := o.CreateAH(0, o.pd, linkLocalAV(), nil)
	ok(t, err)
	if ah.Handle() == 0 || o.lookupAH(o.q, ah.Handle()) != &ah.path || ah.AV() != linkLocalAV() {
		t.Errorf("handle %d", ah.Handle())
	}
	if o.lookupAH(o.newQP(o.newPD()), ah.Handle()) != nil {
		t.Error("a handle of another protection domain")
	}
	for _, h := range []uint32{0, ah.Handle() + 1, 1<<32 - 1} {
		if o.lookupAH(o.q, h) != nil {
			t.Errorf("handle %d", h)
		}
	}
	_, err = o.CreateAH(0, o.pd, AddressVector{DGID: linkLocalAV().DGID, SGIDIndex: 9}, nil)
	refused(t, "GID index", err, stack.ErrGIDIndex)
	_, err = o.CreateAH(0, o.pd, linkLocalAV(), nil)
	ok(t, err)
	_, err = o.CreateAH(0, o.pd, linkLocalAV(), nil)
	refused(t, "too many", err, ErrLimit)
	ok(t, o.DestroyAH(ah))
	if o.lookupAH(o.q, 1) != nil {
		t.Error("a handle that has gone")
	}
}

func TestSnapshots(t *testing.T) {
	o := newObjs(t, Limits{})
	mw, b := o.newWindow(MWType2)
	if !o.host().BindMW(b) {
		t.Fatal("bind")
	}
	if i := o.MWs()[0]; i.RKey != mw.RKey || !i.Bound || i.QPN != uint32(o.q.num) || i.MR != 1 || i.Type != MWType2 {
		t.Errorf("%+v", i)
	}
	if i := o.MRs()[0]; i.Windows != 1 || i.VA != mwBase || i.LKey != i.RKey || i.PD != o.pd.ID() {
		t.Errorf("%+v", i)
	}
	if i := o.QPs()[0]; i.Num != o.q.Num() || i.SendCQ != o.cq.ID() || i.Type != qp.RC || i.Connected || i.SRQ != 0 {
		t.Errorf("%+v", i)
	}
	if i := o.CQs()[0]; i.Users != 2 || i.Armed || i.Failed {
		t.Errorf("%+v", i)
	}
	if i := o.PDs()[0]; i.Users != 3 {
		t.Errorf("%+v", i)
	}
}

// TestHostDoesNotAllocate covers the per-packet calls.
func TestHostDoesNotAllocate(t *testing.T) {
	o := newObjs(t, Limits{})
	mr := o.reg(0x1000, 4096, allAccess)
	_, b := o.newWindow(MWType2)
	var h qp.Host = o.host()
	data := make([]byte, 64)
	o.ring.got = make([]qp.CQE, 0, 64)
	var w qp.SendWQE
	var r qp.RecvWQE
	if n := testing.AllocsPerRun(100, func() {
		o.ring.got = o.ring.got[:0]
		o.sq.n, o.rq.n = 1, 1
		h.HasSend()
		h.NextSend(&w)
		h.NextRecv(&r)
		h.SendRetired(1)
		h.ReadLocal(mr.LKey, 0x1000, 64, 0)
		h.WriteLocal(mr.LKey, 0x1000, data, 0)
		h.CheckRemote(mr.RKey, 0x1000, 64, qp.AccessRemoteWrite)
		h.WriteRemote(mr.RKey, 0x1000, data, 0)
		h.ReadRemote(mr.RKey, 0x1000, 64, 0)
		h.FetchAdd(mr.RKey, 0x1000, 1)
		h.CompareSwap(mr.RKey, 0x1000, 1, 2)
		h.CompleteSend(qp.CQE{})
		h.CompleteRecv(qp.CQE{})
		b.RKey ^= 1
		h.BindMW(b)
		h.Invalidate(b.RKey)
		b.MWRKey = b.RKey
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	q := o.q
	if n := testing.AllocsPerRun(100, func() {
		o.lookupQP(q.num)
		o.lookupAH(q, 1)
		o.lookupQP(bth.MaxQPN)
	}); n != 0 {
		t.Errorf("lookups: %v allocations", n)
	}
}

func BenchmarkWriteRemote(b *testing.B) {
	o := newObjs(b, Limits{})
	mr := o.reg(0x1000, 4096, allAccess)
	var h qp.Host = o.host()
	data := make([]byte, 64)
	for b.Loop() {
		if !h.WriteRemote(mr.RKey, 0x1000, data, 0) {
			b.Fatal("refused")
		}
	}
}
