package verbs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"roced.io/roced/verbs"
)

func TestDevice(t *testing.T) {
	h := lab(t)
	dir := strings.TrimSuffix(h[0].path, "/uverbs0")
	devs, err := verbs.Devices(dir)
	must(t, err)
	if len(devs) != 2 || devs[0].Name != "rxe_a" || devs[1].Name != "rxe_b" || devs[0].Path != h[0].path || devs[1].Profiles[0] != "rc" {
		t.Errorf("devices %+v", devs)
	}
	t.Setenv("ROCED_RUN_DIR", dir)
	for _, name := range []string{"", "rxe_b"} {
		c, err := verbs.Open(name)
		must(t, err)
		if name != "" && c.Name() != name || c.Profiles()[0] != "rc" {
			t.Errorf("opened %q, profiles %v", c.Name(), c.Profiles())
		}
		must(t, c.Close())
		want(t, c.Err(), verbs.ErrClosed)
		must(t, c.Close())
	}
	c, err := verbs.Open("rxe_b", verbs.WithRunDir(dir), verbs.WithProfile("rc"))
	must(t, err)
	must(t, c.Close())
	_, err = verbs.Open("rxe_b", verbs.WithProfile("none"))
	want(t, err, unix.EINVAL)
	_, err = verbs.Open("rxe_c")
	want(t, err, verbs.ErrNoDevice)
	_, err = verbs.Open(dir + "/uverbs7")
	want(t, err, unix.ENOENT)
}

func TestQueries(t *testing.T) {
	n := lab(t)[0].open(t)
	d, err := n.ctx.QueryDevice()
	must(t, err)
	if d.MaxQP == 0 || d.MaxQPWR == 0 || d.Ports != 1 || d.MaxQPRdAtomic == 0 {
		t.Errorf("device %+v", d)
	}
	p, err := n.ctx.QueryPort(1)
	must(t, err)
	if p.ActiveMTU != verbs.MTU1024 || p.GIDs < 2 || p.State.String() == "" {
		t.Errorf("port %+v", p)
	}
	_, err = n.ctx.QueryPort(2)
	want(t, err, unix.EINVAL)
	_, err = n.ctx.QueryPort(300)
	want(t, err, unix.EINVAL)
	i, g, err := n.ctx.DefaultGID()
	must(t, err)
	if g.String() != "10.0.0.1" || i != 0 {
		t.Errorf("default GID %d %v", i, g)
	}
	_, err = n.ctx.QueryGID(1, 99)
	want(t, err, unix.EINVAL)
	if s := fmt.Sprint(err); !strings.Contains(s, "no GID at this index (GID index 99; this NIC has 0 10.0.0.1, 1 ") {
		t.Error(s)
	}
	st, err := n.ctx.Stats()
	must(t, err)
	if len(st) < 10 || st[0].Name == "" {
		t.Errorf("%d counters", len(st))
	}
	must(t, n.ctx.SetProfile("rc"))
	want(t, n.ctx.SetProfile("nonsense"), unix.EINVAL)
	want(t, n.ctx.SetProfile(strings.Repeat("x", 65)), unix.EINVAL)
}

func TestConnInfoJSON(t *testing.T) {
	a, _ := connected(t, verbs.QPInitAttr{Type: verbs.RC})
	info, err := a.qp.Info(verbs.DefaultConnParams())
	must(t, err)
	b, err := json.Marshal(info)
	must(t, err)
	var back verbs.ConnInfo
	must(t, json.Unmarshal(b, &back))
	if back != info || !strings.Contains(string(b), `"gid":"10.0.0.1"`) {
		t.Errorf("%s is %+v, not %+v", b, back, info)
	}
	for _, bad := range []string{`{"gid":"x"}`, `{"gid":"fe80::1%eth0"}`} {
		if json.Unmarshal([]byte(bad), &back) == nil {
			t.Errorf("%s is a GID", bad)
		}
	}
	at, err := a.qp.Query()
	must(t, err)
	if at.State != verbs.QPRTS || at.SQPSN != info.PSN || at.AV.DGID.String() != "10.0.0.2" || at.PathMTU != verbs.MTU1024 {
		t.Errorf("queue pair %+v", at)
	}
}

func TestSendRecv(t *testing.T) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		a, b := connected(t, verbs.QPInitAttr{Type: typ})
		copy(a.mr.Bytes(), "hello, world")
		must(t, b.qp.PostRecv(&verbs.RecvWR{WRID: 7, SGEs: []verbs.SGE{b.mr.SGE(0, 5), b.mr.SGE(100, 100)}}))
		must(t, a.qp.PostSend(&verbs.SendWR{WRID: 8, Opcode: verbs.OpSendImm, Imm: 0x01020304, Flags: verbs.SendSignaled | verbs.SendSolicited,
			SGEs: []verbs.SGE{a.mr.SGE(0, 5), a.mr.SGE(5, 7)}}))
		if w := b.completion(); w.WRID != 7 || w.Opcode != verbs.WCRecv || w.Flags != verbs.WCWithImm || w.Imm != 0x01020304 || w.ByteLen != 12 || w.QPN != b.qp.Num() {
			t.Errorf("receive %+v", w)
		}
		if w := a.completion(); w.WRID != 8 || w.Opcode != verbs.WCSend {
			t.Errorf("send %+v", w)
		}
		if m := b.mr.Bytes(); string(m[:5]) != "hello" || string(m[100:107]) != ", world" {
			t.Errorf("received %q %q", m[:5], m[100:107])
		}
	}
}

// TestServiceLevel: the service level reaches the NIC, and a query returns it.
func TestServiceLevel(t *testing.T) {
	hosts := lab(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	a.createQP(verbs.QPInitAttr{Type: verbs.RC})
	b.createQP(verbs.QPInitAttr{Type: verbs.RC})
	p := verbs.DefaultConnParams()
	p.SL, p.TrafficClass = 5, 46<<2
	info, err := b.qp.Info(p)
	must(t, err)
	must(t, a.qp.Connect(info, p))
	at, err := a.qp.Query()
	must(t, err)
	if at.AV.SL != 5 || at.AV.TrafficClass != 46<<2 {
		t.Errorf("address %+v", at.AV)
	}
	ah, err := a.pd.CreateAH(at.AV)
	must(t, err)
	must(t, ah.Destroy())
}

func TestMemoryOperations(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC, SignalAll: true})
	remote := b.mr.Addr() + 4096
	big := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	copy(a.mr.Bytes(), big)
	n, err := a.qp.PostSendN([]verbs.SendWR{
		{WRID: 1, Opcode: verbs.OpWrite, SGEs: []verbs.SGE{a.mr.SGE(0, len(big))}, RemoteAddr: remote, RKey: b.mr.RKey()},
		{WRID: 2, Opcode: verbs.OpWrite, Inline: []byte("inline"), RemoteAddr: remote + 10, RKey: b.mr.RKey()},
		{WRID: 3, Opcode: verbs.OpRead, SGEs: []verbs.SGE{a.mr.SGE(20000, len(big))}, RemoteAddr: remote, RKey: b.mr.RKey()},
	})
	must(t, err)
	if n != 3 {
		t.Errorf("posted %d", n)
	}
	for i, op := range []verbs.WCOpcode{verbs.WCWrite, verbs.WCWrite, verbs.WCRead} {
		if w := a.completion(); w.WRID != uint64(i+1) || w.Opcode != op {
			t.Errorf("completion %+v", w)
		}
	}
	copy(big[10:], "inline")
	if !bytes.Equal(b.mr.Bytes()[4096:4096+len(big)], big) || !bytes.Equal(a.mr.Bytes()[20000:20000+len(big)], big) {
		t.Error("memory differs")
	}
	b.mr.StoreUint64(8, 40)
	for _, wr := range []verbs.SendWR{
		{Opcode: verbs.OpFetchAdd, CompareAdd: 2},
		{Opcode: verbs.OpCmpSwap, CompareAdd: 42, Swap: 77},
		{Opcode: verbs.OpCmpSwap, CompareAdd: 42, Swap: 78},
	} {
		wr.RemoteAddr, wr.RKey, wr.SGEs = b.mr.Addr()+8, b.mr.RKey(), []verbs.SGE{a.mr.SGE(0, 8)}
		old := b.mr.LoadUint64(8)
		must(t, a.qp.PostSend(&wr))
		a.completion()
		if got := a.mr.LoadUint64(0); got != old {
			t.Errorf("atomic returned %d, want %d", got, old)
		}
	}
	if got := b.mr.LoadUint64(8); got != 77 {
		t.Errorf("memory is %d", got)
	}
}

// TestFlush: a FLUSH of a range or a region completes. Without the right, or outside of the region, it breaks the
// connection.
func TestFlush(t *testing.T) {
	for _, c := range []struct {
		name   string
		off, n int
		region bool
		access verbs.Access
		want   verbs.Status
	}{
		{"a range", 4096, 8192, false, all, verbs.StatusSuccess},
		{"nothing", 0, 0, false, all, verbs.StatusSuccess},
		{"the region", -1 << 20, 77, true, all, verbs.StatusSuccess},
		{"beyond the end", 8, 1 << 30, false, all, verbs.StatusRemAccessErr},
		{"without the right", 0, 8, false, all &^ verbs.AccessFlushGlobal, verbs.StatusRemAccessErr},
		{"a region without the right", 0, 8, true, all &^ verbs.AccessFlushGlobal, verbs.StatusRemAccessErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC})
			buf, err := b.ctx.AllocBuffer(1 << 16)
			must(t, err)
			mr, err := b.pd.RegMR(buf, 0, 1<<16, c.access)
			must(t, err)
			addr := mr.Addr() + uint64(c.off)
			must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("flushed"), RemoteAddr: mr.Addr(), RKey: mr.RKey()}))
			must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpFlush, Flags: verbs.SendSignaled, RemoteAddr: addr, RKey: mr.RKey(),
				FlushLength: uint32(c.n), FlushRegion: c.region}))
			w := a.anyCompletion()
			if w.Status != c.want {
				t.Fatalf("%+v", w)
			}
			if c.want == verbs.StatusSuccess && (w.Opcode != verbs.WCFlush || string(mr.Bytes()[:7]) != "flushed") {
				t.Errorf("%+v, %q", w, mr.Bytes()[:7])
			}
		})
	}
}

func TestDatagrams(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.UD})
	i, _, err := a.ctx.DefaultGID()
	must(t, err)
	_, gid, err := b.ctx.DefaultGID()
	must(t, err)
	ah, err := a.pd.CreateAH(verbs.AHAttr{DGID: gid, SGIDIndex: i})
	must(t, err)
	must(t, b.qp.PostRecv(&verbs.RecvWR{WRID: 1, SGEs: []verbs.SGE{b.mr.SGE(0, 500)}}))
	wr := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.SendSignaled, Inline: []byte("datagram"), AH: ah,
		RemoteQPN: b.qp.Num(), RemoteQKey: 0x11111111}
	must(t, a.qp.PostSend(&wr))
	a.completion()
	w := b.completion()
	if w.Flags&verbs.WCGRH == 0 || w.SrcQP != a.qp.Num() || w.ByteLen != 48 || string(b.mr.Bytes()[40:48]) != "datagram" {
		t.Errorf("receive %+v, %q", w, b.mr.Bytes()[40:48])
	}
	wr.AH = nil
	want(t, a.qp.PostSend(&wr), unix.EINVAL)
	must(t, ah.Destroy())
	want(t, ah.Destroy(), unix.ENOENT)
	_, err = a.pd.CreateAH(verbs.AHAttr{DGID: gid, SGIDIndex: 200})
	want(t, err, unix.EINVAL)
}

func TestSharedReceiveQueue(t *testing.T) {
	hosts := lab(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	s, err := b.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1})
	must(t, err)
	a.createQP(verbs.QPInitAttr{Type: verbs.RC})
	b.createQP(verbs.QPInitAttr{Type: verbs.RC, SRQ: s, MaxSendWR: 1})
	want(t, b.qp.PostRecv(&verbs.RecvWR{}), unix.EINVAL)
	join(t, a, b)
	n, err := s.PostRecvN([]verbs.RecvWR{{WRID: 1, SGEs: []verbs.SGE{b.mr.SGE(0, 10)}}, {WRID: 2, SGEs: []verbs.SGE{b.mr.SGE(10, 10)}},
		{WRID: 3, SGEs: make([]verbs.SGE, 9)}})
	want(t, err, verbs.ErrTooManySGEs)
	if n != 2 {
		t.Errorf("posted %d", n)
	}
	must(t, s.Modify(2))
	if at, err := s.Query(); err != nil || at.Limit != 2 || at.MaxWR != s.MaxWR() {
		t.Errorf("SRQ %+v, %v", at, err)
	}
	want(t, s.Modify(99), unix.EINVAL)
	must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x")}))
	if w := b.completion(); w.WRID != 1 {
		t.Errorf("receive %+v", w)
	}
	if e, err := b.ctx.GetAsyncEvent(timeout(t)); err != nil || e.Type != verbs.EventSRQLimitReached || e.SRQ != s {
		t.Errorf("event %+v, %v", e, err)
	}
	want(t, s.Destroy(), unix.EBUSY)
	must(t, b.qp.Destroy())
	must(t, s.Destroy())
	want(t, s.PostRecv(&verbs.RecvWR{}), verbs.ErrClosed)
	_, err = b.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 1 << 30, MaxSGE: 1})
	want(t, err, unix.EINVAL)
	if !strings.Contains(err.Error(), "verbs: create_srq: max_wr 1073741824, device limit") {
		t.Errorf("error %q", err)
	}
}

func TestResizeSharedReceiveQueue(t *testing.T) {
	hosts := lab(t)
	a, b := hosts[0].open(t), hosts[1].open(t)
	s, err := b.pd.CreateSRQ(verbs.SRQAttr{MaxWR: 3, MaxSGE: 1})
	must(t, err)
	a.createQP(verbs.QPInitAttr{Type: verbs.RC})
	b.createQP(verbs.QPInitAttr{Type: verbs.RC, SRQ: s, MaxSendWR: 1})
	join(t, a, b)
	posted, taken := 0, 0
	fill := func() {
		t.Helper()
		for s.PostRecv(&verbs.RecvWR{WRID: uint64(posted), SGEs: []verbs.SGE{b.mr.SGE(0, 10)}}) == nil {
			posted++
		}
		if at, err := s.Query(); err != nil || posted-taken != s.MaxWR() || at.MaxWR != s.MaxWR() {
			t.Fatalf("%d are posted, room for %d: %+v, %v", posted-taken, s.MaxWR(), at, err)
		}
	}
	take := func(n int) {
		t.Helper()
		for range n {
			must(t, a.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x")}))
			if w := b.completion(); w.Status != verbs.StatusSuccess || w.WRID != uint64(taken) {
				t.Fatalf("receive %+v, want %d", w, taken)
			}
			taken++
		}
	}
	fill()
	take(2)
	fill() // across the end of the ring
	must(t, s.Resize(20))
	fill()
	want(t, s.Resize(10), unix.EINVAL) // more requests are posted
	take(posted - 2)
	must(t, s.Resize(2))
	fill()
	take(posted - taken)
	want(t, s.Resize(0), unix.EINVAL)
	want(t, s.Resize(-1), unix.EINVAL)
	err = s.Resize(1 << 30)
	want(t, err, unix.EINVAL)
	if !strings.Contains(err.Error(), "verbs: modify_srq: max_wr 1073741824, device limit") {
		t.Errorf("error %q", err)
	}
	must(t, b.qp.Destroy())
	must(t, s.Destroy())
	want(t, s.Resize(5), verbs.ErrClosed)
}

func TestRegions(t *testing.T) {
	n := lab(t)[0].open(t)
	b, err := n.ctx.AllocBuffer(10000)
	must(t, err)
	if len(b.Bytes()) != 12288 {
		t.Errorf("%d bytes", len(b.Bytes()))
	}
	m, err := n.pd.RegMR(b, 100, 200, verbs.AccessLocalWrite)
	must(t, err)
	o, err := n.pd.RegMR(b, 0, 12288, all)
	must(t, err)
	if m.Addr() != b.Addr()+100 || len(m.Bytes()) != 200 || m.LKey() == o.LKey() {
		t.Errorf("region at %#x of %#x, %d bytes", m.Addr(), b.Addr(), len(m.Bytes()))
	}
	must(t, m.Rereg(verbs.ReregMemory|verbs.ReregAccess, verbs.ReregAttr{Offset: 4096, Length: 4096, Access: all}))
	if m.Addr() != b.Addr()+4096 || len(m.Bytes()) != 4096 {
		t.Errorf("region at %#x of %#x, %d bytes", m.Addr(), b.Addr(), len(m.Bytes()))
	}
	pd, err := n.ctx.AllocPD()
	must(t, err)
	must(t, m.Rereg(verbs.ReregPD, verbs.ReregAttr{PD: pd}))
	want(t, pd.Dealloc(), unix.EBUSY)
	want(t, m.Rereg(verbs.ReregPD, verbs.ReregAttr{}), unix.EINVAL)
	must(t, n.mr.Rereg(verbs.ReregMemory, verbs.ReregAttr{Buffer: b, Offset: 0, Length: 100})) // frees its own memory
	must(t, n.mr.Dereg())
	must(t, m.Dereg())
	want(t, m.Dereg(), unix.ENOENT)
	must(t, o.Dereg())
	must(t, pd.Dealloc())
	must(t, b.Free())
}

func TestBadRegions(t *testing.T) {
	n := lab(t)[0].open(t)
	b, err := n.ctx.AllocBuffer(12288)
	must(t, err)
	for _, r := range [][2]int{{-1, 1}, {0, -1}, {0, 12289}, {12288, 1}} {
		_, err := n.pd.RegMR(b, r[0], r[1], all)
		want(t, err, verbs.ErrRange)
		want(t, n.mr.Rereg(verbs.ReregMemory, verbs.ReregAttr{Buffer: b, Offset: r[0], Length: r[1]}), verbs.ErrRange)
	}
	_, err = n.pd.RegMR(b, 0, 1, verbs.AccessRemoteWrite)
	want(t, err, unix.EINVAL)
	_, err = n.pd.RegMR(b, 0, 0, all)
	want(t, err, unix.EINVAL)
	for _, size := range []int{0, -1} {
		_, err = n.ctx.AllocBuffer(size)
		want(t, err, unix.EINVAL)
	}
	_, err = n.pd.AllocMR(100, verbs.AccessRemoteWrite)
	want(t, err, unix.EINVAL)
	_, err = n.ctx.AllocBuffer(1 << 30)
	want(t, err, unix.ENOMEM)
}

func TestWindows(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC, SignalAll: true})
	mw, err := b.pd.AllocMW(verbs.MWType2)
	must(t, err)
	old := mw.RKey()
	key, err := b.qp.BindMW(1, 0, verbs.MWBind{MW: mw, MR: b.mr, Offset: 4096, Length: 10, Access: verbs.AccessRemoteWrite})
	must(t, err)
	if w := b.completion(); w.Opcode != verbs.WCBindMW || key != mw.RKey() || key == old {
		t.Errorf("bind %+v, key %#x after %#x", w, key, old)
	}
	write := verbs.SendWR{Opcode: verbs.OpWrite, Inline: []byte("window"), RemoteAddr: b.mr.Addr() + 4096, RKey: key}
	must(t, a.qp.PostSend(&write))
	a.completion()
	if string(b.mr.Bytes()[4096:4102]) != "window" {
		t.Errorf("wrote %q", b.mr.Bytes()[4096:4102])
	}
	must(t, b.qp.InvalidateMW(2, 0, mw))
	if w := b.completion(); w.Opcode != verbs.WCLocalInv {
		t.Errorf("invalidate %+v", w)
	}
	must(t, a.qp.PostSend(&write))
	if w := a.anyCompletion(); w.Status != verbs.StatusRemAccessErr {
		t.Errorf("write through a closed window: %+v", w)
	}
	_, err = b.qp.BindMW(1, 0, verbs.MWBind{})
	want(t, err, unix.EINVAL)
	want(t, b.qp.PostSend(&verbs.SendWR{Opcode: verbs.OpBindMW}), unix.EINVAL)
	must(t, mw.Dealloc())
	want(t, mw.Dealloc(), unix.ENOENT)
	_, err = b.pd.AllocMW(9)
	want(t, err, unix.EINVAL)
}

func TestPostErrors(t *testing.T) {
	n := lab(t)[0].open(t)
	n.createQP(verbs.QPInitAttr{Type: verbs.RC, MaxSendWR: 3, MaxRecvWR: 3, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 20})
	wr := verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("x")}
	want(t, n.qp.PostSend(&wr), verbs.ErrState)
	want(t, n.qp.PostRecv(&verbs.RecvWR{}), verbs.ErrState)
	must(t, n.qp.ToInit(verbs.DefaultConnParams()))
	for range 3 {
		must(t, n.qp.PostRecv(&verbs.RecvWR{}))
	}
	want(t, n.qp.PostRecv(&verbs.RecvWR{}), verbs.ErrQueueFull)
	info, err := n.qp.Info(verbs.DefaultConnParams())
	must(t, err)
	info.GID = verbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 99} // an address without a host
	must(t, n.qp.ToRTR(info, verbs.DefaultConnParams()))
	must(t, n.qp.ToRTS(verbs.DefaultConnParams()))
	for _, c := range []struct {
		wr  verbs.SendWR
		err error
	}{
		{verbs.SendWR{SGEs: make([]verbs.SGE, 2)}, verbs.ErrTooManySGEs},
		{verbs.SendWR{Inline: make([]byte, 100)}, verbs.ErrInline},
		{verbs.SendWR{Inline: make([]byte, 1), SGEs: make([]verbs.SGE, 1)}, verbs.ErrInline},
		{verbs.SendWR{Flags: verbs.SendInline, SGEs: make([]verbs.SGE, 1)}, verbs.ErrInline},
	} {
		want(t, n.qp.PostSend(&c.wr), c.err)
	}
	posted, err := n.qp.PostSendN([]verbs.SendWR{wr, wr, wr, wr})
	want(t, err, verbs.ErrQueueFull)
	if posted != 3 {
		t.Errorf("posted %d", posted)
	}
	must(t, n.qp.Destroy())
	want(t, n.qp.PostSend(&wr), verbs.ErrClosed)
	want(t, n.qp.PostRecv(&verbs.RecvWR{}), verbs.ErrClosed)
}

// TestReset reuses a queue pair whose work requests got no response.
func TestReset(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC})
	must(t, b.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.AttrState))
	wr := verbs.SendWR{Opcode: verbs.OpSend, Inline: []byte("lost"), Flags: verbs.SendSignaled}
	for range 5 {
		must(t, a.qp.PostSend(&wr))
	}
	must(t, a.qp.Modify(verbs.QPAttr{State: verbs.QPReset}, verbs.AttrState))
	want(t, a.qp.PostSend(&wr), verbs.ErrState)
	join(t, a, b)
	for i := range 40 {
		must(t, b.qp.PostRecv(&verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 10)}}))
		wr.WRID, wr.Inline = uint64(i), []byte{byte(i)}
		must(t, a.qp.PostSend(&wr))
		if w := a.completion(); w.WRID != uint64(i) {
			t.Errorf("completion %+v", w)
		}
		if b.completion(); b.mr.Bytes()[0] != byte(i) {
			t.Errorf("received %d, want %d", b.mr.Bytes()[0], i)
		}
	}
}

func TestCreateErrors(t *testing.T) {
	n := lab(t)[0].open(t)
	_, err := n.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: n.cq, RecvCQ: n.cq, MaxSendWR: 1 << 24})
	want(t, err, unix.EINVAL)
	var e *verbs.Error
	if !errors.As(err, &e) || e.Verb != "create_qp" || !strings.HasPrefix(err.Error(), "verbs: create_qp: max_send_wr 16777216, device limit") {
		t.Errorf("error %q", err)
	}
	_, err = n.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC})
	want(t, err, unix.EINVAL)
	_, err = n.pd.CreateQP(verbs.QPInitAttr{Type: verbs.RC, SendCQ: n.cq, RecvCQ: n.cq, MaxInline: -1})
	want(t, err, unix.EINVAL)
	_, err = n.pd.CreateQP(verbs.QPInitAttr{Type: 9, SendCQ: n.cq, RecvCQ: n.cq})
	want(t, err, unix.EINVAL)
	for _, depth := range []int{-1, 0, math.MaxInt, 1 << 30} {
		_, err = n.ctx.CreateCQ(depth, nil)
		want(t, err, unix.EINVAL)
	}
	_, err = n.pd.CreateSRQ(verbs.SRQAttr{MaxWR: -1})
	want(t, err, unix.EINVAL)
	n.createQP(verbs.QPInitAttr{Type: verbs.RC})
	err = n.qp.Modify(verbs.QPAttr{State: verbs.QPRTS}, verbs.AttrState)
	want(t, err, unix.EINVAL)
	if !strings.Contains(err.Error(), "RESET to RTS") {
		t.Errorf("error %q", err)
	}
	want(t, n.cq.Destroy(), unix.EBUSY)
}

func TestResizeAndDestroyCQ(t *testing.T) {
	a, b := connected(t, verbs.QPInitAttr{Type: verbs.RC, SignalAll: true})
	for i := range 10 {
		must(t, a.qp.PostSend(&verbs.SendWR{WRID: uint64(i), Opcode: verbs.OpWrite, Inline: []byte("x"), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
	}
	if w := a.completion(); w.WRID != 0 {
		t.Errorf("completion %+v", w)
	}
	must(t, a.cq.Resize(300))
	if a.cq.Depth() != 511 { // capacity of the ring
		t.Errorf("depth %d", a.cq.Depth())
	}
	for i := 1; i < 10; i++ {
		if w := a.completion(); w.WRID != uint64(i) {
			t.Errorf("completion %+v, want %d", w, i)
		}
	}
	want(t, a.cq.Resize(-1), unix.EINVAL)
	want(t, a.cq.Resize(0), unix.EINVAL)
	must(t, a.qp.Destroy())
	must(t, a.cq.Destroy())
	_, err := a.cq.Poll(make([]verbs.WC, 1))
	want(t, err, verbs.ErrClosed)
	want(t, a.cq.Resize(10), verbs.ErrClosed)
	want(t, a.cq.Destroy(), unix.ENOENT)
}
