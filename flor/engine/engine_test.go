package engine

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// script is a NIC and a user that record their calls. It transmits nothing.
type script struct {
	wqes    []WQE
	qps     []QPN
	acks    []Ack
	recvs   []int
	told    []uint64
	errs    []error
	closed  []error
	got     []string
	revoked []uint32
	gone    []QPN
	room    int
	poor    bool // there is no memory for large messages
	unused  int
	nic     mono.Time
	e       *Engine
}

func (s *script) Room(QPN) bool { return len(s.wqes) < s.room }
func (s *script) Post(qp QPN, w *WQE) {
	s.wqes, s.qps = append(s.wqes, *w), append(s.qps, qp)
}
func (s *script) PostRecv(i int) { s.recvs = append(s.recvs, i) }
func (s *script) PostAck(_ *Conn, b []byte) {
	var a Ack
	if err := a.Parse(b); err != nil {
		panic(err)
	}
	s.acks = append(s.acks, a)
}
func (s *script) Expose(Buffer) (uint64, uint32) { return 0x1000, 77 }
func (s *script) Revoke(key uint32)              { s.revoked = append(s.revoked, key) }
func (s *script) Disconnect(qp QPN, _ bool)      { s.gone = append(s.gone, qp) }
func (s *script) Time() mono.Time                { return s.nic }
func (s *script) Told(_ mono.Time, _ *Conn, id uint64, e error) {
	s.told, s.errs = append(s.told, id), append(s.errs, e)
}
func (s *script) Delivered(_ mono.Time, _ *Conn, m Message) {
	s.got = append(s.got, string(m.Data))
	s.e.Release(m)
}
func (s *script) Landing(_ *Conn, n int) (Buffer, bool) {
	return Buffer{Data: make([]byte, n)}, !s.poor
}
func (s *script) Unused(*Conn, Buffer) { s.unused++ }
func (s *script) Closed(_ mono.Time, _ *Conn, err error) {
	s.closed = append(s.closed, err)
}

const testPeer = 9

func newScript(t testing.TB, cfg Config) (*script, *Conn) {
	t.Helper()
	s := &script{room: 1 << 20}
	if cfg.Congestion == "" {
		cfg.Congestion, cfg.CongestionWith = "static", map[string]float64{"window_bytes": 64 << 10}
	}
	cfg.Pool = make([]Buffer, 8)
	for i := range cfg.Pool {
		cfg.Pool[i].Data = make([]byte, HeaderLen+32<<10)
	}
	var err error
	if s.e, err = New(cfg, s, s); err != nil {
		t.Fatal(err)
	}
	c, err := s.e.Open(1, ConnConfig{QPs: []QPN{1, 2, 3}, Peers: []QPN{11, 12, 13}, AckPeer: testPeer})
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func (s *script) header(i int) (h Header) {
	_ = h.Parse(s.wqes[i].Header[:])
	return h
}

// send sends n bytes on c.
func (s *script) send(t testing.TB, c *Conn, now mono.Time, id uint64, n int) {
	t.Helper()
	if err := c.Send(now, id, 0, Buffer{Data: make([]byte, n)}); err != nil {
		t.Fatal(err)
	}
}

// left completes the i-th WQE.
func (s *script) left(now mono.Time, i int, at mono.Time) {
	s.e.Complete(now, &Completion{QP: s.qps[i], Kind: Sent, ID: s.wqes[i].ID, At: at})
}

// ack acknowledges SENDs by their global numbers and WRITEs by their immediates.
func (s *script) ack(now, at mono.Time, delay time.Duration, names ...any) {
	a := Ack{QPN: 1, Delay: delay}
	for _, n := range names {
		switch n := n.(type) {
		case Imm:
			a.AddWrite(n &^ immHint)
		case uint64:
			a.AddSend(n)
		}
	}
	s.e.OnAck(now, testPeer, at, a.Append(nil))
}

// receive passes h and payload to the engine as a SEND of the peer.
func (s *script) receive(now mono.Time, h Header, payload string, at mono.Time) {
	buf := s.recvs[0]
	s.recvs = s.recvs[1:]
	b := s.e.cfg.Pool[buf].Data
	h.Put(b)
	copy(b[HeaderLen:], payload)
	s.e.Complete(now, &Completion{QP: 1, Kind: Received, Buf: buf, Bytes: uint32(HeaderLen + len(payload)), At: at})
}

func (s *script) written(now mono.Time, i Imm, n uint32) {
	buf := s.recvs[0]
	s.recvs = s.recvs[1:]
	s.e.Complete(now, &Completion{QP: 1, Kind: Written, Buf: buf, Bytes: n, Imm: i})
}

// TestFigure14 is the example of the paper's figure 14. A message of 40 KB goes by WRITEs of 8 and 32 KB, with a SEND
// of 1 KB between them. The first WRITE and the SEND are lost. Two SENDs of 4 KB retransmit the WRITE, with its own
// reliable number and new ones. The SEND keeps its reliable number; all retransmissions have new global numbers.
func TestFigure14(t *testing.T) {
	s, c := newScript(t, Config{Unit: 4 << 10, CongestionWith: map[string]float64{"window_bytes": 48 << 10}, Congestion: "static"})
	s.send(t, c, 1, 1, 40<<10)
	if h := s.header(0); len(s.wqes) != 1 || h.Kind != KindRequest || h.Length != 40<<10 {
		t.Fatalf("%d WQEs", len(s.wqes))
	}
	c.chunker = fixedChunks(8 << 10)
	s.room = 2 // room for the first WRITE and the SEND only
	s.receive(2, Header{Kind: KindGrant, Message: 0, Key: 5, Addr: 0x8000}, "", 0)
	s.send(t, c, 2, 2, 1<<10)
	s.room, c.chunker = 4, fixedChunks(32<<10)
	s.left(2, 0, 1)
	if len(s.wqes) != 4 || s.wqes[1].Imm != MakeImm(false, 0, 0) || s.wqes[3].Imm&^immHint != MakeImm(false, 0, 2) {
		t.Fatalf("%d WQEs", len(s.wqes))
	}
	if w := s.wqes[3]; w.RemoteAddr != 0x8000+8<<10 || w.RemoteKey != 5 || len(w.Data.Data) != 32<<10 {
		t.Fatalf("%d bytes to %#x", len(w.Data.Data), w.RemoteAddr)
	}
	s.room, c.chunker = 1<<20, fixedChunks(4<<10)
	s.ack(3, 0, 0, s.wqes[3].Imm) // acknowledges the second WRITE
	s.left(3, 1, 0)
	var got []Header
	for i := 4; i < len(s.wqes); i++ {
		got = append(got, s.header(i))
	}
	hints(got)
	want := []Header{
		{Kind: KindRequest, RN: 0, GN: 4, Length: 40 << 10}, // was not acknowledged either
		{Kind: KindMessage, RN: 1, GN: 5, Length: 1 << 10},
		{Kind: KindRewrite, RN: 2, GN: 6, Message: uint32(MakeImm(false, 0, 0))},
		{Kind: KindRewrite, RN: 3, GN: 7, Message: uint32(MakeImm(false, 0, 1))},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v", got)
	}
}

func hints(hs []Header) {
	for i := range hs {
		hs[i].Hint = false
	}
}

// fixedChunks returns chunks of one size.
type fixedChunks uint32

func (fixedChunks) OnRTT(time.Duration)  {}
func (fixedChunks) OnLoss()              {}
func (f fixedChunks) Size(uint64) uint32 { return uint32(f) }

// TestAckTriggers: an acknowledgement leaves at once after 32 WQEs, 32 KB, a hint, or a number out of order. Otherwise
// it leaves after 120 us (Flor 5).
func TestAckTriggers(t *testing.T) {
	small := func(rn uint32) Header {
		return Header{Kind: KindMessage, RN: rn, GN: uint64(rn), Message: rn, Length: 1}
	}
	for _, c := range []struct {
		name string
		do   func(s *script, i uint32) bool
		want int // number of WQEs acknowledged together
	}{
		{"32 WQEs", func(s *script, i uint32) bool { s.receive(1, small(i), "x", 0); return true }, 32},
		{"32 KB", func(s *script, i uint32) bool {
			h := small(i)
			h.Length = 11 << 10
			s.receive(1, h, string(make([]byte, 11<<10)), 0)
			return true
		}, 3},
		{"hint", func(s *script, i uint32) bool { h := small(i); h.Hint = i == 4; s.receive(1, h, "x", 0); return true }, 5},
		{"out of order", func(s *script, i uint32) bool { s.receive(1, small(i+i/6), "x", 0); return true }, 7},
		{"WRITE out of order", func(s *script, i uint32) bool {
			if i == 0 {
				s.receive(1, Header{Kind: KindRequest, Length: 64 << 10}, "", 0)
			} else {
				s.written(1, MakeImm(false, 0, i-1+i/4), 1<<10)
			}
			return true
		}, 5},
		{"WRITE with a hint", func(s *script, i uint32) bool {
			if i == 0 {
				s.receive(1, Header{Kind: KindRequest, Length: 64 << 10}, "", 0)
			} else {
				s.written(1, MakeImm(i == 3, 0, i-1), 1<<10)
			}
			return true
		}, 4},
		{"timer", func(s *script, i uint32) bool {
			if i < 3 {
				s.receive(1, small(i), "x", 0)
				return true
			}
			if at := s.e.NextTimeout(); at != 1+120_000 {
				t.Errorf("the timer is set to %d", at)
			}
			s.e.OnTimeout(1 + 120_000)
			return false
		}, 3},
	} {
		s, _ := newScript(t, Config{})
		for i := uint32(0); i < 40 && len(s.acks) == 0; i++ {
			if !c.do(s, i) {
				break
			}
		}
		if len(s.acks) == 0 || s.acks[0].Len() != c.want || s.acks[0].QPN != 11 {
			t.Errorf("%s: %+v, want %d together", c.name, s.acks, c.want)
		}
	}
}

// TestRTT: the round trip excludes the receiver's delay (Flor 4.1, equation 1). The order in which the sender sees the
// completions of its WQE and of the acknowledgement does not matter.
func TestRTT(t *testing.T) {
	for _, ackFirst := range []bool{false, true} {
		s, c := newScript(t, Config{})
		r := &rttNote{fixedChunks: 1 << 10}
		c.chunker = r
		s.send(t, c, 1, 1, 100)
		if !ackFirst {
			s.left(2000, 0, 5_001_000) // T1
		}
		s.ack(200_000, 5_151_000, 100*time.Microsecond, s.wqes[0].ID) // T4
		if ackFirst {
			s.left(201_000, 0, 5_001_000)
		}
		if len(r.rtts) != 1 || r.rtts[0] != 50*time.Microsecond {
			t.Errorf("acknowledgement first %v: %v, want 50 us", ackFirst, r.rtts)
		}
	}
}

type rttNote struct {
	fixedChunks
	rtts []time.Duration
}

func (r *rttNote) OnRTT(rtt time.Duration) { r.rtts = append(r.rtts, rtt) }

// TestAckDelay: an acknowledgement carries the time since its last WQE arrived, by the NIC's clock. That clock differs
// from the software clock.
func TestAckDelay(t *testing.T) {
	s, _ := newScript(t, Config{})
	s.nic = 7_000_000
	s.receive(1_000, Header{Kind: KindMessage, Length: 1}, "x", 6_999_000) // the NIC's clock is 6.999 ms ahead
	s.e.OnTimeout(s.e.NextTimeout())
	if len(s.acks) != 1 || s.acks[0].Delay != 121*time.Microsecond {
		t.Errorf("%+v", s.acks)
	}
}

// TestBackup: the backup sends the uncompleted WQEs of a failed queue pair as SENDs, in order. The failed queue pair is
// reconnected (Flor 6).
func TestBackup(t *testing.T) {
	for _, hardware := range []bool{true, false} {
		s, c := newScript(t, Config{Hardware: hardware})
		for id := range uint64(3) {
			s.send(t, c, 1, id, 100)
		}
		s.left(2, 0, 0)
		if hardware && !slices.Equal(s.told, []uint64{0}) {
			t.Errorf("told of %v", s.told)
		}
		s.e.Complete(3, &Completion{QP: 1, Kind: Failed, ID: s.wqes[1].ID})
		from := 3
		want := []uint32{1, 2}
		if !hardware { // nothing was acknowledged
			want = []uint32{0, 1, 2}
		}
		for i, rn := range want {
			if h := s.header(from + i); s.qps[from+i] != 2 || h.Kind != KindMessage || h.RN != rn {
				t.Errorf("hardware %v: %+v by queue pair %d", hardware, h, s.qps[from+i])
			}
		}
		if !slices.Equal(s.gone, []QPN{1}) || c.Primary() != 2 || s.e.Counters().Switches != 1 {
			t.Errorf("hardware %v: disconnected %v, sends by %d", hardware, s.gone, c.Primary())
		}
		s.e.Complete(4, &Completion{QP: 1, Kind: Failed, ID: s.wqes[2].ID})
		if s.e.Counters().Switches != 1 {
			t.Error("one failure, two switches")
		}
	}
}

// TestFollow: a receiver abandons a queue pair when its peer uses another one, and accepts nothing from it any more.
func TestFollow(t *testing.T) {
	s, c := newScript(t, Config{Hardware: true})
	buf := s.recvs[0]
	h := Header{Kind: KindMessage, Length: 1}
	h.Put(s.e.cfg.Pool[buf].Data)
	s.e.Complete(1, &Completion{QP: 2, Kind: Received, Buf: buf, Bytes: HeaderLen + 1})
	if len(s.got) != 1 || !slices.Equal(s.gone, []QPN{1}) || c.Primary() != 2 {
		t.Errorf("%d messages, disconnected %v, sends by %d", len(s.got), s.gone, c.Primary())
	}
	s.receive(2, Header{Kind: KindMessage, RN: 1, GN: 1, Message: 1, Length: 1}, "x", 0)
	if len(s.got) != 1 {
		t.Error("something late was taken")
	}
}

// TestCongestionWindow: bytes in flight never exceed the window, but one WQE may always be in flight.
func TestCongestionWindow(t *testing.T) {
	s, c := newScript(t, Config{Congestion: "static", CongestionWith: map[string]float64{"window_bytes": 10_000}})
	c.chunker = fixedChunks(4 << 10)
	s.send(t, c, 1, 1, 32<<10)
	if b, window := c.InFlight(); window != 10_000 || b != 8<<10 || len(s.wqes) != 2 {
		t.Errorf("%d of %d bytes in flight in %d WQEs", b, window, len(s.wqes))
	}
	if s.header(0).Hint || !s.header(1).Hint {
		t.Error("the hint is for the last WQE in the window")
	}
	s, c = newScript(t, Config{Congestion: "static", CongestionWith: map[string]float64{"window_bytes": 100}})
	s.send(t, c, 1, 1, 3<<10)
	if b, _ := c.InFlight(); b != 1<<10 || !s.header(0).Hint {
		t.Errorf("%d bytes in flight", b)
	}
	// The engine paces WQEs if the window is less than a unit per round trip.
	s, c = newScript(t, Config{Congestion: "static", CongestionWith: map[string]float64{"rate_bps": 8e9}})
	c.chunker = fixedChunks(1 << 10)
	s.send(t, c, 1_000, 1, 2<<10)
	if at := s.e.NextTimeout(); len(s.wqes) != 1 || at != 1_000+1024 {
		t.Errorf("%d WQEs, the next one at %d", len(s.wqes), at)
	}
	if s.e.OnTimeout(1_000 + 1024); len(s.wqes) != 2 {
		t.Errorf("%d WQEs", len(s.wqes))
	}
}

// TestHostile: hostile input of a peer is refused or harmless, and counted. Another connection continues.
func TestHostile(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 200 {
		s, c := newScript(t, Config{MaxRTO: time.Millisecond})
		good, err := s.e.Open(1, ConnConfig{QPs: []QPN{51}, Peers: []QPN{61}, AckPeer: testPeer + 1})
		if err != nil {
			t.Fatal(err)
		}
		s.send(t, c, 1, 1, 5000)
		s.send(t, c, 1, 2, 100_000)
		now := mono.Time(1)
		for range 100 {
			now += mono.Time(rng.IntN(100_000))
			hostile(rng, s, now)
			s.e.OnTimeout(now)
		}
		ctr := s.e.Counters()
		if ctr.BadAcks == 0 || ctr.BadHeaders == 0 || ctr.BadImms == 0 || ctr.NoCompletion == 0 {
			t.Fatalf("round %d: nothing was counted: %+v", round, ctr)
		}
		from := len(s.wqes)
		s.send(t, good, now, 3, 10)
		if len(s.wqes) != from+1 || s.qps[from] != 51 {
			t.Fatalf("round %d: the other connection sends nothing", round)
		}
		s.left(now, from, 1)
		a := Ack{QPN: 51}
		a.AddSend(s.wqes[from].ID)
		if s.e.OnAck(now, testPeer+1, 1, a.Append(nil)); !slices.Contains(s.told, 3) {
			t.Fatalf("round %d: the other connection receives nothing", round)
		}
		if n := len(s.recvs) + s.e.held; n != 8 {
			t.Fatalf("round %d: %d of 8 buffers", round, n)
		}
		c.Close(now)
		good.Close(now)
	}
}

// hostile sends a random invalid input as the peer.
func hostile(rng *rand.Rand, s *script, now mono.Time) {
	num := func() uint32 {
		if rng.IntN(2) == 0 {
			return uint32(rng.IntN(40))
		}
		return rng.Uint32()
	}
	switch rng.IntN(6) {
	case 0:
		b := make([]byte, rng.IntN(60))
		for i := range b {
			b[i] = byte(rng.IntN(3))
		}
		s.e.OnAck(now, testPeer, now, b)
	case 1:
		s.e.OnAck(now, uint64(rng.IntN(20)), now, binary.BigEndian.AppendUint32(make([]byte, ackHeader), num()))
	case 2:
		if rng.IntN(2) == 0 {
			s.ack(now, now, time.Duration(num()), uint64(num()), Imm(num()))
		} else {
			s.ack(now, now, 0, Imm(num()))
		}
	case 3:
		h := Header{Kind: Kind(rng.IntN(6)), RN: num(), GN: rng.Uint64(), Message: num() & MaxMessageID, Length: num(), Offset: num(), Key: num(), Addr: rng.Uint64()}
		s.receive(now, h, string(make([]byte, rng.IntN(33<<10-HeaderLen-1024))), now)
	case 4:
		s.written(now, Imm(num()), num())
	case 5:
		s.e.Complete(now, &Completion{QP: QPN(rng.IntN(4)), Kind: Sent, ID: rng.Uint64()})
	}
}

// TestForgedAck: an acknowledgement of unsent WQEs, or from another source, acknowledges nothing.
func TestForgedAck(t *testing.T) {
	s, c := newScript(t, Config{})
	s.send(t, c, 1, 1, 100)
	s.left(1, 0, 1)
	gn := s.wqes[0].ID
	s.ack(2, 1, 0, gn, gn+1)
	s.ack(2, 1, 0, gn, MakeImm(false, 0, 0))
	a := Ack{QPN: 1}
	a.AddSend(gn)
	s.e.OnAck(2, testPeer+1, 1, a.Append(nil))
	a.QPN = 7
	s.e.OnAck(2, testPeer, 1, a.Append(nil))
	if n := s.e.Counters().BadAcks; n != 4 || len(s.told) != 0 {
		t.Errorf("%d refused, told of %v", n, s.told)
	}
	if s.ack(2, 1, 0, gn); len(s.told) != 1 {
		t.Error("the right one was refused")
	}
}

// TestSilence: the engine ends the connection of a silent peer and reports each message.
func TestSilence(t *testing.T) {
	for n := range 3 { // only one of them is retransmitted each time
		s, c := newScript(t, Config{GiveUp: time.Second})
		for id := range uint64(n + 1) {
			s.send(t, c, 1, id, 100+int(id)*100_000)
		}
		for at := s.e.NextTimeout(); at != mono.Never && at < 10e9; at = s.e.NextTimeout() {
			for i := range s.wqes {
				s.left(at, i, 0)
			}
			s.e.OnTimeout(at)
		}
		for i := range s.wqes {
			s.e.Complete(1<<40, &Completion{QP: 1, Kind: Failed, ID: s.wqes[i].ID})
		}
		if len(s.told) != n+1 || !errors.Is(errors.Join(s.errs...), ErrSilent) || !errors.Is(c.Err(), ErrSilent) {
			t.Errorf("told of %v: %v; %v", s.told, s.errs, c.Err())
		}
		if n := s.e.Counters().Timeouts; n < 5 || n > 20 {
			t.Errorf("%d timeouts in a second", n)
		}
		if err := c.Send(1<<41, 3, 0, Buffer{}); !errors.Is(err, ErrSilent) {
			t.Errorf("%v", err)
		}
	}
}

func TestRefused(t *testing.T) {
	s, c := newScript(t, Config{Queue: 2})
	if err := c.Send(1, 1, 0, Buffer{Data: make([]byte, 1<<20+1)}); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	s.send(t, c, 1, 1, 10)
	s.send(t, c, 1, 2, 10)
	if err := c.Send(1, 3, 0, Buffer{}); !errors.Is(err, ErrFull) {
		t.Errorf("the third of two: %v", err)
	}
	if _, err := s.e.Open(1, ConnConfig{QPs: []QPN{1}, Peers: []QPN{1}}); !errors.Is(err, ErrConfig) {
		t.Errorf("a queue pair of two connections: %v", err)
	}
	pool := make([]Buffer, 4)
	for i := range pool {
		pool[i].Data = make([]byte, HeaderLen+32<<10)
	}
	for name, cfg := range map[string]Config{
		"unit":       {Unit: 1000, Pool: pool},
		"pool":       {Pool: pool[:3]},
		"congestion": {Congestion: "best", Pool: pool},
		"chunking":   {Chunking: "best", Pool: pool},
		"writes":     {Writes: 3, Pool: pool},
		"buffers":    {Pool: make([]Buffer, 4)},
		"acks":       {AckWQEs: 33, Pool: pool},
	} {
		if _, err := New(cfg, s, s); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	// Each RC connection may hold one buffer of the pool.
	e, err := New(Config{Hardware: true, Pool: pool}, s, s)
	for i := QPN(1); i <= 3 && err == nil; i++ {
		_, err = e.Open(1, ConnConfig{QPs: []QPN{i}, Peers: []QPN{i}})
	}
	if !errors.Is(err, ErrConfig) || e.Connections() != 2 {
		t.Errorf("%d connections: %v", e.Connections(), err)
	}
}

// TestManyConnections: 10^4 connections leave no state.
func TestManyConnections(t *testing.T) {
	l := newLab(t, 1, false, faults{lose: 0.05}, Config{MaxSend: 4 << 10})
	for i := range 10_000 {
		ends := l.connect([2]Numbers{})
		for side, n := range l.nodes {
			if err := n.send(ends[side], uint64(2*i+side+1), 8+i%6000); err != nil {
				t.Fatal(err)
			}
		}
		l.run(l.now.Add(50 * time.Microsecond))
		if i%3 == 0 { // some end with all messages in flight
			ends[i%2].Close(l.now)
		}
		l.run(l.now.Add(100 * time.Millisecond))
		for side, n := range l.nodes {
			ends[side].Close(l.now)
			clear(n.sent)
			clear(n.got)
			n.landings, n.unused = n.landings[:0], 0
			clear(n.closed)
		}
		l.run(l.now.Add(time.Millisecond))
		for _, n := range l.nodes {
			clear(n.qps)
		}
	}
	l.run(mono.Never)
	for _, n := range l.nodes {
		if err := n.leaks(); err != nil {
			t.Error(err)
		}
	}
}

// TestPool: peers hold at most Partials buffers of the pool each, and at most half of the pool. Closing a connection
// frees its buffers.
func TestPool(t *testing.T) {
	for _, c := range []struct{ partials, held int }{{2, 2}, {8, 4}} { // partials is per connection; held is at most half of the pool of eight
		s, k := newScript(t, Config{Partials: c.partials})
		for i := range uint32(6) {
			s.receive(1, Header{Kind: KindMessage, RN: i, GN: uint64(i), Message: i, Length: 2048}, string(make([]byte, 1024)), 0)
		}
		if n := s.e.Counters().NoRoom; s.e.held != c.held || n != uint64(6-c.held) || len(s.recvs) != 8-c.held {
			t.Errorf("%d held, %d refused, %d of 8 posted; want %d held", s.e.held, n, len(s.recvs), c.held)
		}
		if k.Close(2); len(s.recvs) != 8 {
			t.Errorf("%d of 8 buffers are posted when the connection has ended", len(s.recvs))
		}
	}
}

// TestMemoryOfNIC: the engine reports a message only when the NIC does not read its memory any more, even if the
// connection has ended before.
func TestMemoryOfNIC(t *testing.T) {
	s, c := newScript(t, Config{})
	s.send(t, c, 1, 1, 100)
	s.send(t, c, 1, 2, 100)
	s.ack(2, 0, 0, s.wqes[0].ID)
	c.Close(3)
	if len(s.told) != 0 {
		t.Errorf("told of %v while the NIC has them", s.told)
	}
	for i := range s.wqes {
		s.e.Complete(4, &Completion{QP: 1, Kind: Failed, ID: s.wqes[i].ID})
	}
	if !slices.Equal(s.told, []uint64{1, 2}) || s.e.Connections() != 0 {
		t.Errorf("told of %v; %d connections", s.told, s.e.Connections())
	}
}
