package rxering

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// memory returns aligned memory.
func memory(n int) []byte {
	words := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

func sendPair(t testing.TB, wr, sge, inline uint32) (*SendRing, *rxe.SendProducer, []byte) {
	t.Helper()
	s, err := rxe.SendShape(wr, sge, inline)
	if err != nil {
		t.Fatal(err)
	}
	mem := memory(s.Size())
	r, err := NewSendRing(mem, s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rxe.NewSendProducer(mem, s.MaxSGE, s.MaxInline)
	if err != nil {
		t.Fatal(err)
	}
	return r, p, mem
}

func recvPair(t testing.TB, wr, sge uint32) (*RecvRing, *rxe.RecvProducer, []byte) {
	t.Helper()
	s, err := rxe.RecvShape(wr, sge)
	if err != nil {
		t.Fatal(err)
	}
	mem := memory(s.Size())
	r, err := NewRecvRing(mem, s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rxe.NewRecvProducer(mem, s.MaxSGE)
	if err != nil {
		t.Fatal(err)
	}
	return r, p, mem
}

func cqPair(t testing.TB, cqe uint32) (*CQRing, *rxe.CQConsumer, []byte) {
	t.Helper()
	s, err := rxe.CQShape(cqe)
	if err != nil {
		t.Fatal(err)
	}
	mem := memory(s.Size())
	r, err := NewCQRing(mem, s)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rxe.NewCQConsumer(mem)
	if err != nil {
		t.Fatal(err)
	}
	return r, c, mem
}

// requests are work requests of every kind.
func requests() []qp.SendWQE {
	sges := []qp.SGE{{Addr: 0x1000, Length: 10, LKey: 7}, {Addr: 1 << 63, Length: 20, LKey: 8}}
	return []qp.SendWQE{
		{WRID: 1, Opcode: qp.WRSend, Flags: qp.SendSignaled, Length: 30, SGEs: sges, AH: 4, RemoteQPN: 5, RemoteQKey: 0x80000006},
		{WRID: 2, Opcode: qp.WRSendImm, Imm: 0x01020304, Flags: qp.SendInline, Length: 5, Inline: []byte("hello"), RemoteQPN: 9},
		{WRID: 3, Opcode: qp.WRSendWithInv, Imm: 0x01020304, Length: 10, SGEs: sges[:1]},
		{WRID: 4, Opcode: qp.WRWrite, RemoteVA: 1<<64 - 9, RKey: 11, Length: 20, SGEs: sges[1:]},
		{WRID: 5, Opcode: qp.WRWriteImm, Imm: 0xdeadbeef, RemoteVA: 99, RKey: 11},
		{WRID: 6, Opcode: qp.WRRead, Flags: qp.SendFence, RemoteVA: 98, RKey: 12, Length: 30, SGEs: sges},
		{WRID: 7, Opcode: qp.WRCmpSwap, RemoteVA: 96, RKey: 13, CompareAdd: 14, Swap: 15, Length: 10, SGEs: sges[:1]},
		{WRID: 8, Opcode: qp.WRFetchAdd, RemoteVA: 96, RKey: 13, CompareAdd: 1 << 60, Length: 10, SGEs: sges[:1]},
		{WRID: 11, Opcode: qp.WRFlush, RemoteVA: 1<<63 + 1, RKey: 17, Flush: qp.FlushWR{Length: 1 << 30, FETH: bth.FETH{Type: 3, Level: 1}}},
		{WRID: 9, Opcode: qp.WRLocalInv, Imm: 0x0a0b0c0d},
		{WRID: 10, Opcode: qp.WRBindMW, Bind: qp.BindWR{Addr: 1, Length: 2, MRLKey: 3, MWRKey: 4, RKey: 5, Access: qp.AccessRemoteRead}},
	}
}

func TestSendRoundTrip(t *testing.T) {
	r, p, _ := sendPair(t, 4, 2, 64)
	var got qp.SendWQE
	for round := range 5 {
		for _, want := range requests() {
			if err := stage(p, &want); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if r.Pending() || r.Next(&got) {
				t.Fatal("seen before Commit")
			}
			p.Commit()
			if !r.Pending() || !r.Next(&got) {
				t.Fatal("not seen after Commit")
			}
			if len(got.SGEs) == 0 {
				got.SGEs = nil
			}
			if len(got.Inline) == 0 {
				got.Inline = nil
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("work request %d:\n%s", want.WRID, d)
			}
			r.Retire(1)
		}
	}
}

// machine joins fields, which are written in little-endian order, in the byte order
// of this machine. Fields with = are the same on all machines.
func machine(t *testing.T, fields string) string {
	t.Helper()
	var out []byte
	for _, f := range strings.Fields(fields) {
		b, err := hex.DecodeString(strings.TrimPrefix(f, "="))
		if err != nil {
			t.Fatal(err)
		}
		if f[0] != '=' && binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
			slices.Reverse(b)
		}
		out = append(out, b...)
	}
	return hex.EncodeToString(out)
}

func TestSendLimits(t *testing.T) {
	_, p, _ := sendPair(t, 3, 2, 40)
	for what, c := range map[string]struct {
		w   qp.SendWQE
		err error
	}{
		"SGEs":   {qp.SendWQE{SGEs: make([]qp.SGE, 3)}, rxe.ErrSGE},
		"length": {qp.SendWQE{SGEs: []qp.SGE{{Length: 1 << 31}, {Length: 1 << 31}}}, rxe.ErrLength},
		"inline": {qp.SendWQE{Flags: qp.SendInline, Inline: make([]byte, 41)}, rxe.ErrInline},
	} {
		if err := stage(p, &c.w); !errors.Is(err, c.err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 3 {
		if err := stage(p, &qp.SendWQE{Flags: qp.SendInline, Inline: make([]byte, 40)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stage(p, &qp.SendWQE{}); !errors.Is(err, rxe.ErrFull) {
		t.Errorf("full: %v", err)
	}
}

func TestSendRetire(t *testing.T) {
	r, p, _ := sendPair(t, 3, 1, 0)
	var w qp.SendWQE
	post := func(n int) {
		for range n {
			if err := stage(p, &qp.SendWQE{}); err != nil {
				t.Fatal(err)
			}
		}
		p.Commit()
	}
	post(3)
	r.Next(&w)
	r.Next(&w)
	if p.Free() != 0 {
		t.Errorf("room for %d before any is retired", p.Free())
	}
	r.Retire(1)
	if p.Free() != 1 {
		t.Errorf("room for %d, want 1", p.Free())
	}
	r.Retire(5)
	if p.Free() != 2 {
		t.Errorf("room for %d, want 2", p.Free())
	}
	post(2)
	r.Next(&w)
	r.Reset()
	if p.Free() != 3 || r.Pending() || r.Next(&w) {
		t.Errorf("room for %d after Reset, pending %v", p.Free(), r.Pending())
	}
	post(3)
	for range 3 {
		if !r.Next(&w) {
			t.Fatal("lost after Reset")
		}
	}
}

// TestSendHostile checks what comes out of elements that no provider writes.
func TestSendHostile(t *testing.T) {
	r, p, mem := sendPair(t, 3, 2, 40)
	var w qp.SendWQE
	take := func(change func(e []byte)) {
		t.Helper()
		if err := stage(p, &qp.SendWQE{Opcode: qp.WRSend}); err != nil {
			t.Fatal(err)
		}
		change(r.Elem(r.next))
		p.Commit()
		if !r.Next(&w) {
			t.Fatal("nothing there")
		}
		r.Retire(1)
	}
	take(func(e []byte) { binary.NativeEndian.PutUint32(e[12:], 0x102) })
	if w.Opcode != OpInvalid {
		t.Errorf("opcode 0x102 is %d", w.Opcode)
	}
	take(func(e []byte) { binary.NativeEndian.PutUint32(e[184+12:], 1<<32-1) })
	if len(w.SGEs) != 3 {
		t.Errorf("%d SGEs of 2", len(w.SGEs))
	}
	take(func(e []byte) {
		binary.NativeEndian.PutUint32(e[16:], uint32(qp.SendInline))
		binary.NativeEndian.PutUint32(e[184:], 1<<32-1)
	})
	if len(w.Inline) != 40 || w.Length != 1<<32-1 {
		t.Errorf("%d bytes inline, length %d", len(w.Inline), w.Length)
	}
	take(func(e []byte) { // ibv_wr_set_inline_data() without IBV_SEND_INLINE
		binary.NativeEndian.PutUint32(e[184:], 5)
		binary.NativeEndian.PutUint32(e[184+12:], 0)
	})
	if w.Flags&qp.SendInline == 0 || len(w.Inline) != 5 || w.Length != 5 {
		t.Errorf("without the flag: %d bytes inline, length %d", len(w.Inline), w.Length)
	}
	// A producer index that runs away yields no more than the ring can hold.
	binary.NativeEndian.PutUint32(mem[128:], 0xfffffff0|(r.next-1)&r.Mask)
	n := 0
	for r.Next(&w) {
		n++
	}
	if n != 3 || r.Pending() {
		t.Errorf("%d work requests from a ring of 3", n)
	}
}

func TestRecvRoundTrip(t *testing.T) {
	r, p, _ := recvPair(t, 3, 2)
	sges := []qp.SGE{{Addr: 1 << 40, Length: 10, LKey: 7}, {Addr: 5, Length: 20, LKey: 8}}
	var got qp.RecvWQE
	for i := range uint64(20) {
		list := sges[:i%3]
		if err := rxe.PostRecv(p, i, list); err != nil {
			t.Fatal(err)
		}
		if r.Len() != 1 || !r.Next(&got) || got.WRID != i || !cmp.Equal(got.SGEs, list, cmp.Transformer("len", func(s []qp.SGE) []qp.SGE { return append([]qp.SGE{}, s...) })) {
			t.Fatalf("work request %d: %+v", i, got)
		}
	}
	for range 3 {
		if err := rxe.PostRecv[qp.SGE](p, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := rxe.PostRecv[qp.SGE](p, 0, nil); !errors.Is(err, rxe.ErrFull) || p.Free() != 0 || r.Len() != 3 {
		t.Errorf("full: %v, room for %d, %d posted", err, p.Free(), r.Len())
	}
	r.Reset()
	if err := rxe.PostRecv(p, 0, make([]qp.SGE, 3)); !errors.Is(err, rxe.ErrSGE) || p.Free() != 3 || r.Len() != 0 {
		t.Errorf("SGEs: %v, room for %d, %d posted", err, p.Free(), r.Len())
	}
	if err := rxe.PostRecv(p, 0, []qp.SGE{{Length: 1 << 31}, {Length: 1 << 31}}); !errors.Is(err, rxe.ErrLength) {
		t.Errorf("length: %v", err)
	}
}

func TestCQRoundTrip(t *testing.T) {
	r, c, mem := cqPair(t, 3)
	want := qp.CQE{WRID: 1 << 63, Status: qp.StatusRNRRetryExcErr, Opcode: qp.WCRecvWithImm, Flags: qp.WCWithImm | qp.WCGRH,
		VendorErr: 5, ByteLen: 6, Imm: 0x01020304, QPN: 7, SrcQP: 8, PKeyIndex: 9, SL: 10, Time: 11}
	inv := want
	inv.Flags = qp.WCWithInv
	var got qp.CQE
	for range 10 {
		for _, w := range []qp.CQE{want, inv} {
			w.Solicited = true // stays with the daemon
			if !r.Push(&w) {
				t.Fatal("full")
			}
			if w.Solicited = false; !next(c, &got) || got != w {
				t.Fatalf("%+v, want %+v", got, w)
			}
			c.Release()
		}
	}
	wc := machine(t, "0000000000000080 0d000000 81000000 05000000 06000000 =01020304 07000000 08000000 03000000 0900 0000 =0a000100 0b00000000000000")
	if b := hex.EncodeToString(mem[384 : 384+56]); b != wc {
		t.Errorf("completion is\n%s, want\n%s", b, wc)
	}
	for range 3 {
		r.Push(&want)
	}
	if r.Push(&want) || r.Len() != 3 || c.Len() != 3 {
		t.Errorf("holds %d and %d completions", r.Len(), c.Len())
	}
	if next(c, &got); r.Push(&want) {
		t.Error("room before Release")
	}
	if c.Release(); !r.Push(&want) {
		t.Error("no room after Release")
	}
}

func TestCQMove(t *testing.T) {
	r, c, _ := cqPair(t, 7)
	var e qp.CQE
	for i := range 10 {
		e.WRID, e.Time = uint64(i), mono.Time(i)
		r.Push(&e)
		if i < 5 {
			next(c, &e)
			c.Release()
		}
	}
	small, _, _ := cqPair(t, 3)
	if r.MoveTo(small) {
		t.Error("five completions fit into three places")
	}
	big, bc, _ := cqPair(t, 15)
	c.RequestEvent(rxe.ArmSolicited)
	if !r.MoveTo(big) || bc.Len() != 5 || big.Armed() != rocev2.ArmSolicited {
		t.Fatalf("moved %d, armed %d", bc.Len(), big.Armed())
	}
	for i := 5; i < 10; i++ {
		if !next(bc, &e) || e.WRID != uint64(i) || e.Time != mono.Time(i) {
			t.Errorf("completion %d is %+v", i, e)
		}
	}
	if !big.Push(&e) || bc.Len() != 1 {
		t.Error("the new ring takes nothing")
	}
}

func TestRecvMove(t *testing.T) {
	r, p, _ := recvPair(t, 7, 2)
	var w qp.RecvWQE
	post := func(p *rxe.RecvProducer, id uint64) {
		t.Helper()
		if err := rxe.PostRecv(p, id, []qp.SGE{{Addr: id, Length: 1, LKey: 2}, {Addr: id, Length: 3, LKey: 4}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(10) {
		post(p, i)
		if i < 5 {
			r.Next(&w)
		}
	}
	small, _, _ := recvPair(t, 3, 2)
	if r.MoveTo(small) {
		t.Error("five work requests fit into three places")
	}
	big, _, mem := recvPair(t, 15, 2)
	if !r.MoveTo(big) || big.Len() != 5 {
		t.Fatalf("moved %d", big.Len())
	}
	bp, err := rxe.NewRecvProducer(mem, 2)
	if err != nil {
		t.Fatal(err)
	}
	post(bp, 10)
	for i := uint64(5); i <= 10; i++ {
		if !big.Next(&w) || w.WRID != i || !slices.Equal(w.SGEs, []qp.SGE{{Addr: i, Length: 1, LKey: 2}, {Addr: i, Length: 3, LKey: 4}}) {
			t.Errorf("work request %d is %+v", i, w)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	r, p, _ := sendPair(t, 4, 2, 64)
	rr, rp, _ := recvPair(t, 4, 2)
	cr, cc, _ := cqPair(t, 4)
	list := requests()
	sges := list[0].SGEs
	var w qp.SendWQE
	var v qp.RecvWQE
	var e qp.CQE
	if n := testing.AllocsPerRun(100, func() {
		for i := range list {
			if stage(p, &list[i]) != nil {
				t.Fatal("full")
			}
			p.Commit()
			r.Next(&w)
			r.Retire(1)
			if rxe.PostRecv(rp, 1, sges) != nil || !rr.Next(&v) || !cr.Push(&e) || !next(cc, &e) {
				t.Fatal("a ring is stuck")
			}
			cc.Release()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestModel compares a send ring with a queue while both sides do as they like.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r, p, _ := sendPair(t, uint32(rapid.IntRange(1, 9).Draw(rt, "wr")), 1, 0)
		var posted, taken []uint64
		held := int(r.Mask)
		id := uint64(0)
		var w qp.SendWQE
		rt.Repeat(map[string]func(*rapid.T){
			"post": func(rt *rapid.T) {
				id++
				err := stage(p, &qp.SendWQE{WRID: id})
				if (err == nil) != (len(posted)+len(taken) < held) {
					rt.Fatalf("%d posted, %d taken: %v", len(posted), len(taken), err)
				}
				if err == nil {
					p.Commit()
					posted = append(posted, id)
				}
			},
			"take": func(rt *rapid.T) {
				if ok := r.Next(&w); ok != (len(posted) > 0) || ok && w.WRID != posted[0] {
					rt.Fatalf("took %d of %v, %v", w.WRID, posted, ok)
				}
				if len(posted) > 0 {
					taken, posted = append(taken, posted[0]), posted[1:]
				}
			},
			"retire": func(rt *rapid.T) {
				n := rapid.IntRange(0, len(taken)).Draw(rt, "n")
				r.Retire(n)
				taken = taken[n:]
			},
			"reset": func(*rapid.T) { r.Reset(); posted, taken = nil, nil },
			"": func(rt *rapid.T) {
				if r.Pending() != (len(posted) > 0) || p.Free() != held-len(posted)-len(taken) {
					rt.Fatalf("pending %v, room for %d", r.Pending(), p.Free())
				}
			},
		})
	})
}

// FuzzHostile fills the memory of all rings with what a client might write and
// uses the daemon's ends: nothing may panic, touch memory outside or run for ever.
func FuzzHostile(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint16(3), uint8(2), uint16(64))
	f.Add(bytes.Repeat([]byte{0xff}, 1000), uint16(1), uint8(0), uint16(0))
	f.Fuzz(func(t *testing.T, data []byte, wr uint16, sge uint8, inline uint16) {
		shape, err := rxe.SendShape(uint32(wr%64), uint32(sge%32), uint32(inline%1024))
		if err != nil {
			t.Fatal(err)
		}
		rshape, err := rxe.RecvShape(uint32(wr%64), uint32(sge%32))
		if err != nil {
			t.Fatal(err)
		}
		cshape, err := rxe.CQShape(uint32(wr%64) + 1)
		if err != nil {
			t.Fatal(err)
		}
		smem, rmem, cmem := guarded(t, shape), guarded(t, rshape), guarded(t, cshape)
		s, err1 := NewSendRing(smem, shape)
		r, err2 := NewRecvRing(rmem, rshape)
		c, err3 := NewCQRing(cmem, cshape)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		var w qp.SendWQE
		var v qp.RecvWQE
		for range 4 {
			for _, m := range [][]byte{smem, rmem, cmem} {
				for off := 0; len(data) > 0 && off < len(m); off += len(data) {
					copy(m[off:], data)
				}
			}
			hostileRound(t, s, r, c, &w, &v)
		}
	})
}

// hostileRound empties the rings and checks the bounds of what comes out.
func hostileRound(t *testing.T, s *SendRing, r *RecvRing, c *CQRing, w *qp.SendWQE, v *qp.RecvWQE) {
	n := 0
	for ; s.Next(w); n++ {
		if len(w.SGEs) > int(s.maxSGE)+1 || len(w.Inline) > int(s.maxInline) {
			t.Fatalf("%d SGEs, %d bytes inline", len(w.SGEs), len(w.Inline))
		}
	}
	if n > int(s.Mask) || r.Len() > int(r.Mask) {
		t.Fatalf("%d requests from a ring of %d, or %d from %d", n, s.Mask, r.Len(), r.Mask)
	}
	s.Retire(n / 2)
	for range r.Len() {
		if !r.Next(v) || len(v.SGEs) > int(r.maxSGE)+1 {
			t.Fatalf("receive with %d SGEs", len(v.SGEs))
		}
	}
	for range 3 {
		c.Push(&qp.CQE{})
	}
	if c.Len() > int(c.Mask) {
		t.Fatalf("%d completions in a ring of %d", c.Len(), c.Mask)
	}
	s.Reset()
	r.Reset()
}

// TestSendVector posts as the provider of rdma-core 33 does, which names no address handle
// but says what it was made of.
func TestSendVector(t *testing.T) {
	r, p, _ := sendPair(t, 4, 1, 0)
	av := rocev2.AddressVector{DGID: inet.GID{0xfd, 15: 9}, SGIDIndex: 3, TrafficClass: 4, HopLimit: 5, FlowLabel: 0x6789a}
	asked := 0
	r.AHOf = func(got Destination) uint32 {
		if asked++; got != (Destination{av, 0x1234}) {
			t.Errorf("asked for %+v", got)
			return 0
		}
		return 77
	}
	var w qp.SendWQE
	for _, named := range []uint32{0, 12} {
		e := r.Elem(r.next)
		if err := stage(p, &qp.SendWQE{Opcode: qp.WRSend, RemoteQPN: 5, AH: named}); err != nil {
			t.Fatal(err)
		}
		copy(e[58:], []byte{2, 0, 0, 0, 0x12, 0x34})
		copy(e[64:], av.DGID[:])
		binary.NativeEndian.PutUint32(e[80:], 1<<30|av.FlowLabel)
		e[84], e[85], e[86] = av.SGIDIndex, av.HopLimit, av.TrafficClass
		p.Commit()
		if want := max(named, 77*(1-min(named, 1))); !r.Next(&w) || w.AH != want {
			t.Errorf("handle %d, want %d", w.AH, want)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
