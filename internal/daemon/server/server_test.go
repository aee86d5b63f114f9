package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/qp"
)

// endpoint is a client with a connected queue pair.
type endpoint struct {
	*user
	pd, mr, cq, qp uint32
	qpn, key       uint32
	sq             *rxe.SendProducer
	rq             *rxe.RecvProducer
	wc             *rxe.CQConsumer
}

func newEndpoint(t testing.TB, h *host) *endpoint {
	e := &endpoint{user: h.connect(t)}
	e.pd = e.handle(uverbs.CmdAllocPD, uverbs.AllocPD{})
	resp, _ := e.must(uverbs.CmdRegMR, uverbs.RegMR{Start: memBase, Length: memSize, HCAVA: memBase, PDHandle: e.pd, AccessFlags: 7})
	e.mr, e.key = word(resp, 0), word(resp, 1)
	resp, _ = e.must(uverbs.CmdCreateCQ, uverbs.CreateCQ{UserHandle: 77, CQE: 16, CompChannel: -1})
	var err error
	if e.wc, err = rxe.NewCQConsumer(e.rings(1, resp)[0]); err != nil {
		t.Fatal(err)
	}
	e.cq = word(resp, 0)
	resp, _ = e.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: e.pd, SendCQHandle: e.cq, RecvCQHandle: e.cq,
		MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1, QPType: uint8(qp.RC), SQSigAll: 1})
	e.qp, e.qpn = word(resp, 0), word(resp, 1)
	rings := e.rings(2, resp)
	if e.rq, err = rxe.NewRecvProducer(rings[0], 1); err != nil {
		t.Fatal(err)
	}
	if e.sq, err = rxe.NewSendProducer(rings[1], 1, 0); err != nil {
		t.Fatal(err)
	}
	return e
}

// join connects the queue pair to another one.
func (e *endpoint) join(gid [16]byte, qpn uint32) {
	e.t.Helper()
	e.must(uverbs.CmdModifyQP, uverbs.ModifyQP{QPHandle: e.qp, QPState: uint8(qp.Init), PortNum: 1, QPAccessFlags: 7,
		AttrMask: uint32(qp.AttrState | qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccessFlags)})
	e.must(uverbs.CmdModifyQP, uverbs.ModifyQP{QPHandle: e.qp, QPState: uint8(qp.RTR), PathMTU: 3, DestQPNum: qpn, RQPSN: 100,
		MaxDestRdAtomic: 1, MinRNRTimer: 1, Dest: uverbs.QPDest{DGID: gid, SGIDIndex: 0, HopLimit: 64, IsGlobal: 1, PortNum: 1},
		AttrMask: uint32(qp.AttrState | qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer)})
	e.must(uverbs.CmdModifyQP, uverbs.ModifyQP{QPHandle: e.qp, QPState: uint8(qp.RTS), SQPSN: 100, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		MaxRdAtomic: 1, AttrMask: uint32(qp.AttrState | qp.AttrSQPSN | qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrMaxRdAtomic)})
}

// completion waits for a completion and returns it.
func (e *endpoint) completion() qp.CQE {
	e.t.Helper()
	var c rxe.WC
	eventually(e.t, "completion", func() bool { return e.wc.Next(&c) })
	e.wc.Release()
	return qp.CQE{WRID: c.WRID, Status: qp.Status(c.Status), Opcode: qp.WCOpcode(c.Opcode), ByteLen: c.ByteLen}
}

func connected(t testing.TB, hosts [2]*host) (a, b *endpoint) {
	a, b = newEndpoint(t, hosts[0]), newEndpoint(t, hosts[1])
	a.join(hosts[1].gid, b.qpn)
	b.join(hosts[0].gid, a.qpn)
	return a, b
}

// stage posts a work request with ID 5.
func stage(p *rxe.SendProducer, op qp.WROpcode, to uint64, rkey uint32, list ...qp.SGE) error {
	e, err := p.Next()
	if err != nil {
		return err
	}
	e.WRID, e.Opcode = 5, uint32(op)
	*e.RDMA() = rxe.RDMA{Addr: to, RKey: rkey}
	if err := rxe.StageSGEs(p, list); err != nil {
		return err
	}
	p.Commit()
	return nil
}

// write posts a WRITE of the first n bytes to the same place of the peer.
func (e *endpoint) write(key uint32, n uint32) {
	e.t.Helper()
	if err := stage(e.sq, qp.WRWrite, memBase, key, qp.SGE{Addr: memBase, Length: n, LKey: e.key}); err != nil {
		e.t.Fatal(err)
	}
}

func TestWriteAndDestroy(t *testing.T) {
	hosts := pair(t, testLimits)
	a, b := connected(t, hosts)
	copy(a.mem, bytes.Repeat([]byte("RoCE"), 5000))
	a.write(b.key, 20000)
	a.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: a.qp})
	if c := a.completion(); c.Status != qp.StatusSuccess || c.WRID != 5 {
		t.Fatalf("completion %+v", c)
	}
	if !bytes.Equal(a.mem[:20000], b.mem[:20000]) {
		t.Error("the data differ")
	}
	for _, step := range []struct {
		early bool // refused while the queue pair exists
		cmd   uint32
		body  any
	}{
		{true, uverbs.CmdDestroyCQ, uverbs.DestroyCQ{CQHandle: a.cq}},
		{true, uverbs.CmdDeallocPD, uverbs.DeallocPD{PDHandle: a.pd}},
		{false, uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: a.qp}},
		{false, uverbs.CmdDestroyCQ, uverbs.DestroyCQ{CQHandle: a.cq}},
		{false, uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: a.mr}},
		{false, uverbs.CmdDeallocPD, uverbs.DeallocPD{PDHandle: a.pd}},
	} {
		err := a.try(step.cmd, step.body)
		if step.early && !errors.Is(err, unix.EBUSY) || !step.early && err != nil {
			t.Errorf("command %d: %v", step.cmd, err)
		}
		if err = a.try(step.cmd, step.body); !step.early && !errors.Is(err, unix.ENOENT) {
			t.Errorf("command %d once more: %v", step.cmd, err)
		}
	}
	if n := hosts[0].objects(t); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

func TestDoorbellPage(t *testing.T) {
	hosts := pair(t, testLimits)
	a, b := connected(t, hosts)
	page, ev := a.bell()
	for range 50 {
		copy(a.mem, "doorbell")
		clear(b.mem[:8])
		a.write(b.key, 8)
		word := func(off int) *uint64 { return (*uint64)(unsafe.Pointer(&page[off])) }
		atomic.OrUint64(word(uverbs.DoorbellMap+8*int(a.qp/64)), 1<<(a.qp%64))
		atomic.OrUint64(word(uverbs.DoorbellSummary), 1<<(a.qp/64))
		if atomic.LoadUint32((*uint32)(unsafe.Pointer(&page[uverbs.DoorbellSleeping]))) != 0 {
			if err := shm.Signal(ev); err != nil {
				t.Fatal(err)
			}
		}
		if c := a.completion(); c.Status != qp.StatusSuccess {
			t.Fatalf("completion %+v", c)
		}
		if string(b.mem[:8]) != "doorbell" {
			t.Fatal("nothing was written")
		}
	}
	if err := a.try(uverbs.ExtDoorbell, struct{}{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("second doorbell: %v", err)
	}
}

func TestCompletionEvents(t *testing.T) {
	h := pair(t, testLimits)
	a, b := connected(t, h)
	resp, fds := b.must(uverbs.CmdCreateCompChannel, uverbs.CreateCompChannel{})
	ch := fds[0].FD
	defer unix.Close(ch)
	resp, _ = b.must(uverbs.CmdCreateCQ, uverbs.CreateCQ{UserHandle: 4711, CQE: 4, CompChannel: int32(word(resp, 0))})
	cq := word(resp, 0)
	resp, _ = b.must(uverbs.CmdCreateQP, uverbs.CreateQP{PDHandle: b.pd, SendCQHandle: cq, RecvCQHandle: cq, MaxSendWR: 1,
		MaxRecvWR: 4, MaxRecvSGE: 1, QPType: uint8(qp.RC)})
	rq, err := rxe.NewRecvProducer(b.rings(2, resp)[0], 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := rxe.PostRecv(rq, 9, []qp.SGE{{Addr: memBase, Length: 64, LKey: b.key}}); err != nil {
		t.Fatal(err)
	}
	old := b.qp
	b.qp, b.qpn = word(resp, 0), word(resp, 1)
	c := newEndpoint(t, h[0])
	c.join(h[1].gid, b.qpn)
	b.join(h[0].gid, c.qpn)
	b.must(uverbs.CmdReqNotifyCQ, uverbs.ReqNotifyCQ{CQHandle: cq})
	if err := stage(c.sq, qp.WRSend, 0, 0, qp.SGE{Addr: memBase, Length: 8, LKey: c.key}); err != nil {
		t.Fatal(err)
	}
	c.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: c.qp})
	var ev [16]byte
	if n, err := unix.Read(ch, ev[:]); err != nil || n != uverbs.CompEventLen || binary.NativeEndian.Uint64(ev[:]) != 4711 {
		t.Fatalf("event %v, %d bytes, %v", ev, n, err)
	}
	b.must(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: b.qp})
	resp, _ = b.must(uverbs.CmdDestroyCQ, uverbs.DestroyCQ{CQHandle: cq})
	if word(resp, 0) != 1 {
		t.Errorf("%d events were reported", word(resp, 0))
	}
	b.qp = old
	a.must(uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: a.qp})
}

func TestIsolation(t *testing.T) {
	h := pair(t, testLimits)
	a := newEndpoint(t, h[0])
	b := h[0].connect(t)
	for _, c := range []struct {
		cmd  uint32
		body any
	}{
		{uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: a.qp}},
		{uverbs.CmdDestroyCQ, uverbs.DestroyCQ{CQHandle: a.cq}},
		{uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: a.mr}},
		{uverbs.CmdDeallocPD, uverbs.DeallocPD{PDHandle: a.pd}},
		{uverbs.CmdRegMR, uverbs.RegMR{Start: memBase, Length: 4096, HCAVA: memBase, PDHandle: a.pd}},
		{uverbs.CmdQueryQP, uverbs.QueryQP{QPHandle: a.qp}},
		{uverbs.CmdPostSend, uverbs.PostSend{QPHandle: a.qp}},
		{uverbs.ExtUnmapMemory, uverbs.UnmapMemory{Handle: 1}},
	} {
		if err := b.try(c.cmd, c.body); !errors.Is(err, unix.ENOENT) {
			t.Errorf("command %d on another's object: %v", c.cmd, err)
		}
	}
	// Each client's first object has the same number, and each client sees its own.
	if pd := b.handle(uverbs.CmdAllocPD, uverbs.AllocPD{}); pd != a.pd {
		t.Errorf("handles %d and %d", a.pd, pd)
	}
}

func TestClientDeath(t *testing.T) {
	h := pair(t, testLimits)
	a, b := connected(t, h)
	before := openFDs(t)
	c := newEndpoint(t, h[0])
	c.handle(uverbs.CmdAllocMW, uverbs.AllocMW{PDHandle: c.pd, MWType: 2})
	c.handle(uverbs.CmdCreateSRQ, uverbs.CreateSRQ{PDHandle: c.pd, MaxWR: 4, MaxSGE: 1})
	c.handle(uverbs.CmdCreateAH, uverbs.CreateAH{PDHandle: c.pd, Attr: uverbs.AHAttr{IsGlobal: 1, PortNum: 1,
		GRH: uverbs.GlobalRoute{DGID: h[1].gid, SGIDIndex: 0, HopLimit: 1}}})
	c.must(uverbs.CmdDeregMR, uverbs.DeregMR{MRHandle: c.mr})
	c.conn.Close()
	eventually(t, "only one client's objects", func() bool { return h[0].objects(t) == 4 })
	eventually(t, "one client", func() bool { return h[0].srv.Clients() == 1 })
	if n := openFDs(t); n > before+2 { // the test has yet to close the client's async channel and memfd
		t.Errorf("%d descriptors, %d before", n, before)
	}
	// Requests to a dead client fail.
	b.conn.Close()
	eventually(t, "the other NIC is empty", func() bool { return h[1].objects(t) == 0 })
	a.write(b.key, 8)
	a.must(uverbs.CmdPostSend, uverbs.PostSend{QPHandle: a.qp})
	if s := a.completion().Status; s != qp.StatusRetryExcErr {
		t.Errorf("status %d", s)
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
