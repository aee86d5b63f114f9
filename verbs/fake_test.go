package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
)

// fake is a daemon with scripted responses.
type fake struct {
	t    *testing.T
	conn *uverbs.Conn
	// spoil modifies the response to a command before it is sent; nil means no change.
	spoil  map[uint32]func(*uverbs.Answer)
	file   int // the memfd of rings
	used   uint64
	async  atomic.Int32 // the daemon's end of the async channel, -1 for none
	events atomic.Int32 // the daemon's end of the last completion channel
	ended  chan struct{}
}

const fileSize = 1 << 20

// newFake creates a daemon and a connection to it.
func newFake(t *testing.T, spoil map[uint32]func(*uverbs.Answer)) (*fake, *uverbs.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*uverbs.Conn
	for i, fd := range fds {
		socket := os.NewFile(uintptr(fd), "uverbs")
		c, err := net.FileConn(socket)
		socket.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = uverbs.NewConn(c.(*net.UnixConn))
	}
	client, server := ends[0], ends[1]
	f := &fake{t: t, conn: server, spoil: spoil, ended: make(chan struct{})}
	f.async.Store(-1)
	f.events.Store(-1)
	f.file = f.memory(fileSize)
	go f.serve()
	return f, client
}

// stop stops the daemon and waits for its end.
func (f *fake) stop() {
	f.conn.Close()
	<-f.ended
}

func (f *fake) serve() {
	defer close(f.ended)
	defer func() {
		uverbs.CloseFDs([]int{int(f.async.Load()), int(f.events.Load()), f.file})
		f.conn.Close()
	}()
	for {
		r, err := f.conn.ReadRequest()
		if err != nil {
			return
		}
		uverbs.CloseFDs(r.FDs)
		a := f.answer(r)
		if change := f.spoil[r.Command]; change != nil {
			change(&a)
		}
		err = f.conn.WriteAnswer(a)
		for _, d := range a.FDs {
			unix.Close(d.FD)
		}
		if err != nil {
			return
		}
	}
}

// answer returns a valid response.
func (f *fake) answer(r uverbs.Request) uverbs.Answer {
	switch r.Command {
	case uverbs.ExtHello:
		h := uverbs.HelloResp{Version: uverbs.ExtVersion}
		uverbs.SetText(h.Device[:], "rxe_fake")
		fd, err := unix.FcntlInt(uintptr(f.file), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			f.t.Error(err)
		}
		a := body(h)
		a.FDs = []uverbs.FD{{FD: fd, Kind: uverbs.FDMemory}}
		return a
	case uverbs.CmdGetContext:
		return f.channel(&f.async, uverbs.GetContextResp{})
	case uverbs.CmdCreateCompChannel:
		return f.channel(&f.events, uverbs.CreateCompChannelResp{FD: 7})
	case uverbs.ExtDoorbell:
		a := body(uverbs.DoorbellResp{Offset: f.place(uverbs.DoorbellSize), Size: uverbs.DoorbellSize})
		a.FDs = []uverbs.FD{{FD: f.memory(4096), Kind: uverbs.FDEventfd}}
		return a
	case uverbs.CmdQueryDevice:
		return body(uverbs.QueryDeviceResp{MaxQPWR: 100, MaxSGE: 4, MaxCQE: 100})
	case uverbs.ExtMapMemory:
		return body(uverbs.MapMemoryResp{Handle: 1})
	case uverbs.CmdAllocPD:
		return body(uverbs.AllocPDResp{PDHandle: 2})
	case uverbs.CmdRegMR:
		return body(uverbs.RegMRResp{MRHandle: 3, LKey: 4, RKey: 4})
	case uverbs.CmdCreateAH:
		return body(uverbs.CreateAHResp{AHHandle: 3}, uverbs.RxeCreateAHResp{AHNum: 4})
	case uverbs.CmdModifyQP:
		if r.Extended {
			return body(uverbs.ExModifyQPResp{})
		}
		return uverbs.Answer{}
	case uverbs.CmdDestroyCQ:
		return body(uverbs.DestroyCQResp{})
	case uverbs.CmdDestroyQP, uverbs.CmdDestroySRQ:
		return body(uverbs.DestroyQPResp{})
	case uverbs.ExtQueryStats:
		return body(uverbs.QueryStatsResp{Count: 1}, uverbs.Stat{})
	}
	return f.rings(r)
}

// rings returns a valid response to a command that creates rings.
func (f *fake) rings(r uverbs.Request) uverbs.Answer {
	switch r.Command {
	case uverbs.CmdCreateCQ, uverbs.CmdResizeCQ:
		return body(uverbs.CreateCQResp{CQHandle: 1, CQE: 10}, uverbs.RxeCreateCQResp{MI: f.ring(rxe.CQShape(10))})
	case uverbs.CmdCreateSRQ:
		mi := f.ring(rxe.RecvShape(10, 2))
		return body(uverbs.CreateSRQResp{MaxWR: 10, MaxSGE: 2}, uverbs.RxeCreateSRQResp{MI: mi, SRQNum: 9})
	case uverbs.CmdModifySRQ:
		return body(uverbs.ModifySRQResp{MI: f.ring(rxe.RecvShape(10, 2))})
	case uverbs.CmdCreateQP:
		rq, sq := f.ring(rxe.RecvShape(10, 2)), f.ring(rxe.SendShape(10, 2, 32))
		return body(uverbs.CreateQPResp{QPHandle: 65, QPN: 99, MaxSendWR: 10, MaxRecvWR: 10, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 32},
			uverbs.RxeCreateQPResp{RQ: rq, SQ: sq})
	}
	return uverbs.Answer{}
}

func body(vs ...any) uverbs.Answer { return uverbs.Answer{Body: uverbs.Append(nil, vs...)} }

func (f *fake) memory(size int64) int {
	fd, err := shm.Create("fake", size, shm.SealSize)
	if err != nil {
		f.t.Error(err)
	}
	return fd
}

// channel creates a socket pair and keeps one end in *mine.
func (f *fake) channel(mine *atomic.Int32, resp any) uverbs.Answer {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		f.t.Error(err)
	}
	mine.Store(int32(fds[0]))
	a := body(resp)
	a.FDs = []uverbs.FD{{FD: fds[1], Kind: uverbs.FDNumber}}
	return a
}

// place returns a free offset in the memfd of rings.
func (f *fake) place(size int) uint64 {
	at := f.used
	f.used += (uint64(size) + shm.PageSize - 1) &^ (shm.PageSize - 1)
	return at
}

// ring creates a ring.
func (f *fake) ring(s rxe.Shape, err error) uverbs.MMInfo {
	if err != nil {
		f.t.Error(err)
	}
	mi := uverbs.MMInfo{Offset: f.place(s.Size()), Size: uint32(s.Size())}
	mem, err := shm.Map(f.file, mi.Offset, uint64(mi.Size))
	if err != nil {
		f.t.Error(err)
	}
	defer shm.Unmap(mem)
	switch {
	case s.MaxInline > 0:
		_, err = rxe.CreateSend(mem, s)
	case s.MaxSGE > 0:
		_, err = rxe.CreateRecv(mem, s)
	default:
		_, err = rxe.CreateCQ(mem, s)
	}
	if err != nil {
		f.t.Error(err)
	}
	return mi
}

// resources counts the descriptors and the shared mappings of this process.
func resources(t *testing.T) [2]int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return [2]int{len(list), strings.Count(string(maps), "memfd:")}
}

// use creates an object of every kind.
func use(c *Context) error {
	pd, err := c.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.AllocMR(5000, AccessLocalWrite)
	if err != nil {
		return err
	}
	ch, err := c.CreateCompChannel()
	if err != nil {
		return err
	}
	cq, err := c.CreateCQ(10, ch)
	if err != nil {
		return err
	}
	if err := cq.Resize(10); err != nil {
		return err
	}
	srq, err := pd.CreateSRQ(SRQAttr{MaxWR: 10, MaxSGE: 2})
	if err != nil {
		return err
	}
	if err := srq.Resize(10); err != nil {
		return err
	}
	q, err := pd.CreateQP(QPInitAttr{Type: RC, SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	if err := q.Modify(QPAttr{State: QPRTS, RateLimit: 5}, AttrState|AttrRateLimit); err != nil {
		return err
	}
	if err := q.PostSend(&SendWR{}); err != nil {
		return err
	}
	ah, err := pd.CreateAH(AHAttr{})
	if err != nil {
		return err
	}
	if _, err := c.Stats(); err != nil {
		return err
	}
	return errors.Join(ah.Destroy(), q.Destroy(), srq.Destroy(), cq.Destroy(), ch.Close(), mr.Dereg(), pd.Dealloc())
}

// TestSpoiltAnswers corrupts each response in every way. The verb must fail, nothing may leak, and Close must release
// all earlier objects.
func TestSpoiltAnswers(t *testing.T) {
	ways := map[string]func(*uverbs.Answer){
		"refused":       func(a *uverbs.Answer) { a.Err = unix.ENOMEM },
		"empty":         func(a *uverbs.Answer) { a.Body = nil; dropFDs(a) },
		"short":         func(a *uverbs.Answer) { a.Body = a.Body[:min(len(a.Body), 3)] },
		"half":          func(a *uverbs.Answer) { a.Body = a.Body[:len(a.Body)/2] },
		"without fds":   dropFDs,
		"other fds":     func(a *uverbs.Answer) { eachFD(a, func(d *uverbs.FD) { d.Arg += 1 << 20; d.Kind = uverbs.FDMemory }) },
		"unknown kinds": func(a *uverbs.Answer) { eachFD(a, func(d *uverbs.FD) { d.Kind = 9 }) },
	}
	inFile := map[string]func(*uverbs.Answer){ // changes to the memfd of rings
		"unmappable":   func(a *uverbs.Answer) { eachFD(a, replaceFD(t, "/dev/null", 0)) },
		"small file":   func(a *uverbs.Answer) { eachFD(a, replaceFD(t, "", 4096)) },
		"without ring": func(a *uverbs.Answer) { eachFD(a, replaceFD(t, "", fileSize)) },
	}
	ofRing := map[string]func(*uverbs.MMInfo){ // changes to the location of a ring
		"behind the file":     func(mi *uverbs.MMInfo) { mi.Offset = fileSize },
		"far away":            func(mi *uverbs.MMInfo) { mi.Offset = 1<<64 - 4096 },
		"half in the file":    func(mi *uverbs.MMInfo) { mi.Offset, mi.Size = fileSize-4096, 8192 },
		"off the page":        func(mi *uverbs.MMInfo) { mi.Offset += 8 },
		"too small":           func(mi *uverbs.MMInfo) { mi.Size = 500 },
		"of no size":          func(mi *uverbs.MMInfo) { mi.Size = 0 },
		"where there is none": func(mi *uverbs.MMInfo) { mi.Offset = fileSize - 8192; mi.Size = 8192 },
	}
	withRings := map[uint32]int{uverbs.CmdCreateCQ: uverbs.Size[uverbs.CreateCQResp](), uverbs.CmdResizeCQ: uverbs.Size[uverbs.ResizeCQResp](),
		uverbs.CmdCreateSRQ: uverbs.Size[uverbs.CreateSRQResp](), uverbs.CmdModifySRQ: 0, uverbs.CmdCreateQP: uverbs.Size[uverbs.CreateQPResp]()}
	withFDs := []uint32{uverbs.ExtHello, uverbs.CmdGetContext, uverbs.ExtDoorbell, uverbs.CmdCreateCompChannel}
	plain := []uint32{uverbs.CmdQueryDevice, uverbs.CmdAllocPD, uverbs.ExtMapMemory, uverbs.CmdRegMR, uverbs.CmdModifyQP,
		uverbs.CmdCreateAH, uverbs.ExtQueryStats, uverbs.CmdCreateCQ, uverbs.CmdResizeCQ, uverbs.CmdCreateSRQ, uverbs.CmdModifySRQ,
		uverbs.CmdCreateQP}
	before := resources(t)
	if err := session(t, nil); err != nil {
		t.Fatalf("without spoiling: %v", err)
	}
	spoil := func(name string, cmd uint32, way func(*uverbs.Answer)) {
		t.Helper()
		err := session(t, map[uint32]func(*uverbs.Answer){cmd: way})
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("command %d, %s: %v", cmd, name, err)
		}
		if after := resources(t); after != before {
			t.Fatalf("command %d, %s: descriptors and mappings %v before, %v after", cmd, name, before, after)
		}
	}
	for name, way := range ways {
		list := withFDs
		if name == "refused" || name == "empty" || name == "short" || name == "half" {
			list = append(plain, withFDs...)
		}
		for _, cmd := range list {
			spoil(name, cmd, way)
		}
	}
	for name, way := range inFile {
		spoil(name, uverbs.ExtHello, way)
	}
	for name, change := range ofRing {
		for cmd, core := range withRings {
			spoil(name, cmd, func(a *uverbs.Answer) { spoilRing(a, core, change) })
		}
	}
}

// spoilRing changes the ring location in a response, core bytes after its start.
func spoilRing(a *uverbs.Answer, core int, change func(*uverbs.MMInfo)) {
	size := uverbs.Size[uverbs.MMInfo]()
	mi, err := uverbs.Decode[uverbs.MMInfo](a.Body[core:])
	if err != nil {
		panic(err)
	}
	change(&mi)
	copy(a.Body[core:core+size], uverbs.Append(nil, mi))
}

// session opens a context, uses it and closes it.
func session(t *testing.T, spoil map[uint32]func(*uverbs.Answer)) error {
	t.Helper()
	f, conn := newFake(t, spoil)
	defer f.stop()
	c, err := newContext(newDaemon(conn))
	if err != nil {
		return err
	}
	err = use(c)
	if cerr := c.Close(); cerr != nil {
		t.Errorf("close: %v", cerr)
	}
	return err
}

func dropFDs(a *uverbs.Answer) {
	for _, d := range a.FDs {
		unix.Close(d.FD)
	}
	a.FDs = nil
}

func eachFD(a *uverbs.Answer, change func(*uverbs.FD)) {
	for i := range a.FDs {
		change(&a.FDs[i])
	}
}

// replaceFD replaces descriptors by others: of a file, or of empty memory.
func replaceFD(t *testing.T, path string, size int64) func(*uverbs.FD) {
	return func(d *uverbs.FD) {
		unix.Close(d.FD)
		var err error
		if path != "" {
			d.FD, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		} else {
			d.FD, err = shm.Create("empty", size, shm.SealSize)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestDoorbell checks the effect of PostSend on the doorbells.
func TestDoorbell(t *testing.T) {
	f, conn := newFake(t, nil)
	defer f.stop()
	c, err := newContext(newDaemon(conn))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ev, err := shm.Eventfd()
	if err != nil {
		t.Fatal(err)
	}
	bell := &c.dev.(*daemon).bell
	unix.Close(bell.fd)
	bell.fd = ev
	mem := bell.mem
	if err := bell.ring(64*70 + 3); err != nil {
		t.Fatal(err)
	}
	if mem[uverbs.DoorbellMap+8*70] != 1<<3 || mem[uverbs.DoorbellSummary+8] != 1<<6 {
		t.Error("the bits are not where they belong")
	}
	if rung, err := drain(ev); rung || err != nil {
		t.Errorf("woken while awake: %v", err)
	}
	core := func() uint32 { return binary.NativeEndian.Uint32(mem[uverbs.DoorbellCore:]) }
	if core() != 0 {
		t.Errorf("core %d without a question", core())
	}
	mem[uverbs.DoorbellSleeping] = 1
	binary.NativeEndian.PutUint32(mem[uverbs.DoorbellCore:], uverbs.CoreAsked)
	if err := bell.ring(0); err != nil {
		t.Fatal(err)
	}
	if rung, err := drain(ev); !rung || err != nil {
		t.Errorf("not woken while asleep: %v", err)
	}
	if n := core(); n < 1 || n > 1<<16 {
		t.Errorf("core %#x after a question", n)
	}
	if err := bell.ring(0); err != nil {
		t.Fatal(err)
	}
	if rung, err := drain(ev); rung || err != nil {
		t.Errorf("woken twice: %v", err)
	}
	if mem[uverbs.DoorbellMap] != 1 || mem[uverbs.DoorbellSummary] != 1 {
		t.Error("the bits of handle 0 are not set")
	}
}

// eventLab is a context of a fake daemon, with a completion queue.
func eventLab(t *testing.T) (*fake, *CQ) {
	t.Helper()
	f, conn := newFake(t, nil)
	t.Cleanup(f.stop)
	c, err := newContext(newDaemon(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	ch, err := c.CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := c.CreateCQ(10, ch)
	if err != nil {
		t.Fatal(err)
	}
	return f, cq
}

func (f *fake) send(mine *atomic.Int32, v any) {
	f.t.Helper()
	if err := unix.Sendto(int(mine.Load()), uverbs.Append(nil, v), 0, nil); err != nil {
		f.t.Fatal(err)
	}
}

// TestCompEvents checks completion events, including events for unknown queues.
func TestCompEvents(t *testing.T) {
	f, cq := eventLab(t)
	ch := cq.channel
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f.send(&f.events, uverbs.CompEvent{CQHandle: 999})
	f.send(&f.events, uverbs.CompEvent{CQHandle: cq.user})
	if got, err := ch.Next(ctx); got != cq || err != nil {
		t.Errorf("event of %p, %v", got, err)
	}
	f.send(&f.events, uint32(0))
	if _, err := ch.Next(ctx); !errors.Is(err, ErrProtocol) {
		t.Errorf("short event: %v", err)
	}
	if err := ch.Close(); err != nil {
		t.Error(err)
	}
	if _, err := ch.Next(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("closed channel: %v", err)
	}
}

// TestAsyncEvents checks events for unknown objects, and more events than the channel holds.
func TestAsyncEvents(t *testing.T) {
	f, cq := eventLab(t)
	c := cq.ctx
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	f.send(&f.async, uint32(0))
	f.send(&f.async, uverbs.AsyncEvent{Element: 999, EventType: uint32(EventQPFatal)})
	f.send(&f.async, uverbs.AsyncEvent{Element: 1, EventType: uint32(EventPortErr)})
	if e, err := c.GetAsyncEvent(ctx); err != nil || e != (AsyncEvent{Type: EventPortErr, Port: 1}) {
		t.Errorf("event %+v, %v", e, err)
	}
	for range maxEvents + 5 {
		f.send(&f.async, uverbs.AsyncEvent{Element: 1, EventType: uint32(EventPortActive)})
	}
	for c.DroppedEvents() != 5 {
		if ctx.Err() != nil {
			t.Fatalf("%d events dropped", c.DroppedEvents())
		}
		time.Sleep(time.Millisecond)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		StatusRNRRetryExcErr.String(): "RNR retry counter exceeded", Status(99).String(): "status 99",
		QPRTS.String(): "RTS", QPState(99).String(): "state 99", EventSQDrained.String(): "send queue drained",
		EventType(99).String(): "event 99", PortActive.String(): "ACTIVE", PortDown.String(): "DOWN",
		PortState(uverbs.PortInit).String(): "INIT", PortState(uverbs.PortArmed).String(): "ARMED", PortState(9).String(): "state 9",
		(&CompletionError{WRID: 1, QPN: 2, Status: StatusWRFlushErr}).Error(): "verbs: work request 1 of queue pair 2: flushed",
		fail("poll_cq", "", ErrClosed).Error():                                "verbs: poll_cq: closed",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWordMustBeAligned(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	words := make([]uint64, 4)
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), 32)
	(&MR{mem: mem}).LoadUint64(4)
}

// drain resets a non-blocking eventfd and reports whether it was signalled.
func drain(fd int) (bool, error) {
	var b [8]byte
	_, err := unix.Read(fd, b[:])
	if err == unix.EAGAIN {
		return false, nil
	}
	return err == nil, err
}
