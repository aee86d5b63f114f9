package shard

import (
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/bth/inet"
	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port"
	"roced.io/roced/port/link"
	unixport "roced.io/roced/port/unix"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alone makes a shard without a thread for n.
func alone(n *NIC) *NIC {
	n.shard = &Shard{nics: []*NIC{n}, buf: make([]byte, bufSize), giveUp: yield}
	n.calls, n.watch.fd = make(chan *call, 1), -1
	return n
}

func newShard(t testing.TB, poll time.Duration) *NIC {
	t.Helper()
	dir := t.TempDir()
	port, err := unixport.Open(unixport.Config{Local: filepath.Join(dir, "a"), Remote: filepath.Join(dir, "b")})
	if err != nil {
		t.Fatal(err)
	}
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500,
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{NIC: nic, Port: port, Poll: poll})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), port.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestDo(t *testing.T) {
	for _, poll := range []time.Duration{0, 50 * time.Microsecond, -1} {
		s := newShard(t, poll)
		var last mono.Time
		for range 1000 {
			err := s.Do(context.Background(), func(now mono.Time, n *rocev2.NIC) {
				if now < last || n == nil {
					t.Error("time goes back")
				}
				last = now
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		st, err := s.Stats(context.Background())
		if err != nil || st.Calls < 1000 {
			t.Errorf("%+v, %v", st, err)
		}
		if poll < 0 && st.Sleeps > 0 {
			t.Errorf("a busy shard has slept %d times", st.Sleeps)
		}
	}
}

func TestDoIsGivenUp(t *testing.T) {
	s := newShard(t, 0)
	entered, leave := make(chan struct{}), make(chan struct{})
	go s.Do(context.Background(), func(mono.Time, *rocev2.NIC) { close(entered); <-leave })
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	ran := false
	if err := s.Do(ctx, func(mono.Time, *rocev2.NIC) { ran = true }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do: %v", err)
	}
	close(leave)
	if err := s.Do(context.Background(), func(mono.Time, *rocev2.NIC) {}); err != nil || ran {
		t.Errorf("a call that was given up has run; %v", err)
	}
}

func TestDoAfterClose(t *testing.T) {
	s := newShard(t, 0)
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := s.Do(context.Background(), func(mono.Time, *rocev2.NIC) { t.Error("ran") }); !errors.Is(err, ErrClosed) {
		t.Errorf("Do: %v", err)
	}
}

// TestMemoryFault accesses memory that is gone. The closure ends; the shard continues.
func TestMemoryFault(t *testing.T) {
	s := newShard(t, 0)
	fd, err := shm.Create("gone", shm.PageSize, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, 0, shm.PageSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Ftruncate(fd, 0); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(2) {
		finished := false
		err = s.Do(context.Background(), func(mono.Time, *rocev2.NIC) {
			_ = atomic.LoadUint32((*uint32)(unsafe.Pointer(&mem[0])))
			finished = true
		})
		if err != nil || finished {
			t.Errorf("%v, finished %v", err, finished)
		}
		if st, err := s.Stats(context.Background()); err != nil || st.MemFaults != i+1 {
			t.Errorf("%+v, %v", st, err)
		}
		for s.shard.sleeping.Load() == 0 { // then the loop does not run the closure
			time.Sleep(time.Millisecond)
		}
	}
}

// TestDoorbellsArrive rings doorbells at various moments while the shard falls asleep.
func TestDoorbellsArrive(t *testing.T) {
	for _, poll := range []time.Duration{0, 20 * time.Microsecond} {
		s := newShard(t, poll)
		ev, err := shm.Eventfd()
		if err != nil {
			t.Fatal(err)
		}
		words := make([]uint64, uverbs.DoorbellSize/8)
		mem := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), uverbs.DoorbellSize)
		b, err := NewBell(mem, ev, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AddBell(context.Background(), b); err != nil {
			t.Fatal(err)
		}
		for i := range 3000 {
			handle := i * 7 % uverbs.MaxQPHandle
			atomic.OrUint64(&words[uverbs.DoorbellMap/8+handle/64], 1<<(handle%64))
			atomic.OrUint64(&words[uverbs.DoorbellSummary/8+handle/4096], 1<<(handle/64%64))
			if atomic.LoadUint32((*uint32)(unsafe.Pointer(&mem[uverbs.DoorbellSleeping]))) != 0 {
				if err := shm.Signal(ev); err != nil {
					t.Fatal(err)
				}
			}
			for end := time.Now().Add(time.Minute); atomic.LoadUint64(&words[uverbs.DoorbellMap/8+handle/64]) != 0; {
				if time.Now().After(end) {
					t.Fatalf("bell %d did not reach the NIC", i)
				}
			}
		}
		if err := errors.Join(s.RemoveBell(b), b.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestContended checks that after two long yields in a row the loop sleeps for a while instead of polling, and yields again
// later. A single long yield changes nothing.
func TestContended(t *testing.T) {
	s := idleShard(t)
	if err := s.ep.open(); err != nil {
		t.Fatal(err)
	}
	defer s.ep.close()
	s.poll, s.lastWork = time.Hour, Now()
	s.nics[0].scanned = mono.Never // no work is due
	s.giveUp = func() {}
	const short = -time.Minute // also if the thread loses its core
	turn := func(took time.Duration) { s.idle(Now().Add(-took)) }
	turn(2 * longYield)
	for range inARow {
		turn(short)
	}
	turn(2 * longYield)
	turn(short)
	if s.sleeps != 0 || s.yields != inARow+3 {
		t.Errorf("single long yields: %d yields, %d sleeps", s.yields, s.sleeps)
	}
	turn(2 * longYield)
	before := s.yields
	s.idle(s.contended - 1)
	if s.contended == 0 || s.sleeps != 1 || s.yields != before {
		t.Errorf("two long yields in a row: %d yields, %d sleeps", s.yields-before, s.sleeps)
	}
	if s.idle(s.contended); s.yields == before {
		t.Error("the loop does not poll any more")
	}
}

// idleShard makes a shard without a thread, with one NIC on a link without traffic. The caller is its loop.
func idleShard(t *testing.T) *Shard {
	t.Helper()
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	s := alone(&NIC{nic: nic, port: nullPort{}, up: true}).shard
	s.loops.Lock()
	return s
}

// nullPort is a link without traffic.
type nullPort struct{}

func (nullPort) Send(mono.Time, *link.Frame) error           { return nil }
func (nullPort) Recv(mono.Time, []byte) ([]byte, int, error) { return nil, 0, port.ErrAgain }
func (nullPort) NextTimeout() mono.Time                      { return mono.Never }
func (nullPort) FD() int                                     { return -1 }
func (nullPort) Offload() link.Offload                       { return link.Offload{} }
func (nullPort) Close() error                                { return nil }

// fullPort has no room until it is opened.
type fullPort struct {
	nullPort
	open          atomic.Bool
	refused, sent atomic.Int32
}

func (p *fullPort) Send(_ mono.Time, f *link.Frame) error {
	if !p.open.Load() {
		p.refused.Add(1)
		return port.ErrAgain
	}
	if f.Len < 14 || len(f.Bufs) != 1 && p.sent.Load() == 0 {
		return errors.New("not the frame that was held")
	}
	p.sent.Add(1)
	return nil
}

func TestFrameIsHeld(t *testing.T) {
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	p := &fullPort{}
	s, err := New(Config{NIC: nic, Port: p, Poll: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	err = s.Do(context.Background(), func(now mono.Time, n *rocev2.NIC) { // the NIC announces addresses
		err = n.SetAddrs(now, []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the frame is not sent again", func() bool { return p.refused.Load() > 2 })
	st, err := s.Stats(context.Background())
	if err != nil || st.TxBlocked != 1 || st.PortErrs != 0 {
		t.Errorf("%+v, %v", st, err)
	}
	p.open.Store(true)
	eventually(t, "the frame was not sent", func() bool { return p.sent.Load() > 0 })
}

func TestIdleTurnAllocatesNothing(t *testing.T) {
	s := idleShard(t)
	s.poll = -1
	now := Now()
	allocs := testing.AllocsPerRun(1000, func() {
		s.input(now)
		s.output()
		s.control(now)
		s.idle(now)
	})
	if allocs != 0 {
		t.Errorf("%v allocations in a turn", allocs)
	}
}

// TestRescan checks that the shard finds posted receives of a queue pair in the error state. It also checks that the
// scan causes no wakeups when there is no such queue pair.
func TestRescan(t *testing.T) {
	rq := &posted{}
	nic, q := brokenQP(t, rq)
	p := &flushes{}
	s := alone(&NIC{nic: nic, poster: p})
	s.shard.lastWork = 1
	s.Watch(q, rq)
	const turn = mono.Time(rescanEvery)
	for _, step := range []struct {
		what    string
		at      mono.Time
		posted  int
		next    mono.Time
		flushes int
	}{
		{"nothing posted", turn, 0, 2 * turn, 0},
		{"too early", turn + 1, 3, 2 * turn, 0},
		{"posted", 2 * turn, 3, 3 * turn, 1},
	} {
		rq.n = step.posted
		if s.rescan(step.at); s.nextScan() != step.next || p.n != step.flushes {
			t.Errorf("%s: again at %d, %d flushes", step.what, s.nextScan(), p.n)
		}
	}
	s.Unwatch(q)
	if s.rescan(3 * turn); s.nextScan() != mono.Never {
		t.Errorf("nobody is broken: again at %d", s.nextScan())
	}
	if s.rescan(4 * turn); s.scanned != 3*turn {
		t.Error("looks though there was no work since")
	}
}

// TestRescanOfMany scans many queue pairs in parts while some are removed.
func TestRescanOfMany(t *testing.T) {
	rq := &posted{n: 1}
	nic, q := brokenQP(t, rq)
	p := &flushes{}
	s := alone(&NIC{nic: nic, poster: p})
	s.shard.lastWork = 1
	others := make([]rocev2.QueuePair, 1000)
	for i := range others {
		s.Watch(&others[i], rq)
		s.Unwatch(&others[i])
		s.Watch(q, rq) // the same queue pair many times; Unwatch finds only the last
	}
	for range 4 {
		before := p.n
		if s.rescan(mono.Time(rescanEvery)); p.n-before > rescanBudget || p.n == before {
			t.Errorf("%d flushes in a turn", p.n-before)
		}
	}
	if p.n != len(others) || s.nextScan() != mono.Time(2*rescanEvery) {
		t.Errorf("%d flushes, next look at %d", p.n, s.nextScan())
	}
}

type flushes struct{ n int }

func (f *flushes) RecvPosted(mono.Time, *rocev2.QueuePair) { f.n++ }

// posted is a receive queue with n posted receives.
type posted struct{ n int }

func (p *posted) Next(*qp.RecvWQE) bool { return false }
func (p *posted) Len() int              { return p.n }
func (p *posted) Reset()                {}

// none is an empty send queue and a completion ring that drops everything.
type none struct{}

func (none) Next(*qp.SendWQE) bool { return false }
func (none) Pending() bool         { return false }
func (none) Retire(int)            {}
func (none) Reset()                {}
func (none) Push(*qp.CQE) bool     { return true }
func (none) Arm(rocev2.Arm)        {}
func (none) Armed() rocev2.Arm     { return 0 }
func (none) Len() int              { return 0 }
func (none) Disarm()               {}

func brokenQP(t *testing.T, rq rocev2.RecvQueue) (*rocev2.NIC, *rocev2.QueuePair) {
	t.Helper()
	nic, err := rocev2.New(rocev2.Config{Name: "a", MAC: inet.MAC{2, 0, 0, 0, 0, 1}, MTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	pd, err := nic.AllocPD(nil)
	if err != nil {
		t.Fatal(err)
	}
	cq, err := nic.CreateCQ(rocev2.CQAttr{Entries: 1, Ring: none{}})
	if err != nil {
		t.Fatal(err)
	}
	q, err := nic.CreateQP(rocev2.QPAttr{Type: qp.RC, PD: pd, SendCQ: cq, RecvCQ: cq, SQ: none{}, RQ: rq,
		Caps: rocev2.QPCaps{MaxSendWR: 1, MaxRecvWR: 4}})
	if err != nil {
		t.Fatal(err)
	}
	if err := nic.ModifyQP(1, q, qp.Attr{State: qp.Err}, qp.AttrState, nil); err != nil {
		t.Fatal(err)
	}
	return nic, q
}

// TestBellBudget rings all doorbells of a client. Each turn handles some and the next one continues there. No
// doorbell is lost, and every turn serves another client as well.
func TestBellBudget(t *testing.T) {
	nic, q := brokenQP(t, &posted{})
	s := alone(&NIC{nic: nic})
	all := make([]*Bell, 2)
	for i := range all {
		b := newBell(t)
		for h := range uint32(uverbs.MaxQPHandle) {
			b.Set(h, q)
		}
		all[i] = b
	}
	s.bells = all
	greedy, modest := all[0], all[1]
	for w := range mapWords {
		greedy.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, w, ^uint64(0))
	}
	turns := 0
	for ; greedy.ringing(); turns++ {
		modest.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, turns%mapWords, 1<<(turns%64))
		if before := s.stats.Doorbells; !s.pollDoorbells(1) || s.stats.Doorbells-before != bellBudget+1 {
			t.Fatalf("%d bells handled in turn %d", s.stats.Doorbells-before, turns)
		}
		if modest.ringing() {
			t.Fatal("the other client did not reach the NIC")
		}
	}
	if want := uverbs.MaxQPHandle / bellBudget; turns != want {
		t.Errorf("all are handled after %d turns, want %d", turns, want)
	}
	// A doorbell that rings all the time does not starve others of its client.
	for range 3 * uverbs.MaxQPHandle / bellBudget {
		for w := range mapWords / 2 {
			greedy.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, w, ^uint64(0))
		}
		greedy.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, mapWords-1, 1)
		s.pollDoorbells(1)
		if *greedy.word(uverbs.DoorbellMap, mapWords-1) == 0 {
			return
		}
	}
	t.Error("a bell never reaches the NIC")
}

// commanded counts the commands of a client that always has another one.
type commanded int

func (c *commanded) Command(mono.Time, *rocev2.NIC) { *c++ }

func newBell(t *testing.T) *Bell {
	t.Helper()
	words := make([]uint64, uverbs.DoorbellSize/8)
	b, err := NewBell(unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), uverbs.DoorbellSize), -1, new(commanded))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// commands returns the number of commands run.
func commands(s *NIC) (n int) {
	for _, b := range s.bells {
		n += int(*b.commander.(*commanded))
	}
	return n
}

// TestDoorbellBudget checks that clients with endless doorbells and commands cannot extend a turn beyond the budget, and
// that all of them get their turn.
func TestDoorbellBudget(t *testing.T) {
	nic, q := brokenQP(t, &posted{})
	for _, what := range []struct {
		name string
		ring func(b *Bell)
		most int // clients per turn
	}{
		{"bells", func(b *Bell) { b.ring(uverbs.DoorbellSummary, uverbs.DoorbellMap, 0, ^uint64(0)) }, 32},
		{"commands", func(b *Bell) {
			*(*uint32)(unsafe.Pointer(&b.mem[uverbs.DirectState])) = uverbs.DirectAsked
		}, 8},
	} {
		s := alone(&NIC{nic: nic})
		const clients = 100
		for range clients {
			b := newBell(t)
			for h := range uint32(64) {
				b.Set(h, q)
			}
			s.bells = append(s.bells, b)
		}
		served := map[int]bool{}
		for range clients/what.most + 1 {
			for _, b := range s.bells {
				what.ring(b)
			}
			before, done := s.bellTurn, commands(s)
			if s.pollDoorbells(1); commands(s) != done {
				t.Fatal("a command is carried out before what was posted has left")
			}
			s.runCommands(1)
			n := (s.bellTurn - before + clients) % clients
			if n == 0 || n > what.most {
				t.Fatalf("%s: %d clients are served in a turn, want %d", what.name, n, what.most)
			}
			for i := range n {
				served[(before+1+i)%clients] = true
			}
		}
		if len(served) != clients {
			t.Errorf("%s: %d clients are served in all", what.name, len(served))
		}
	}
}
