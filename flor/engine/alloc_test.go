package engine

import (
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// still is a NIC and a user that only record the pending WQEs and the last acknowledgement.
type still struct {
	script
	wqes [64]WQE
	head int
	tail int
	recv int
	ack  [MaxAckLen]byte
	n    int
	land Buffer
}

func (s *still) Room(QPN) bool                             { return true }
func (s *still) Post(_ QPN, w *WQE)                        { s.wqes[s.tail%len(s.wqes)] = *w; s.tail++ }
func (s *still) PostRecv(i int)                            { s.recv = i }
func (s *still) PostAck(_ *Conn, b []byte)                 { s.n = copy(s.ack[:], b) }
func (s *still) Revoke(uint32)                             {}
func (s *still) Told(mono.Time, *Conn, uint64, error)      {}
func (s *still) Delivered(_ mono.Time, _ *Conn, m Message) { s.e.Release(m) }
func (s *still) Landing(*Conn, int) (Buffer, bool)         { return s.land, true }

// exchange connects two engines and passes messages without delay.
type exchange struct {
	nics [2]still
	ends [2]*Conn
	now  mono.Time
}

func newExchange(t testing.TB) *exchange {
	x := &exchange{now: 1}
	for i := range x.nics {
		cfg := Config{Pool: make([]Buffer, 4)}
		for k := range cfg.Pool {
			cfg.Pool[k].Data = make([]byte, HeaderLen+32<<10)
		}
		n := &x.nics[i]
		n.land.Data = make([]byte, 1<<20)
		var err error
		if n.e, err = New(cfg, n, n); err != nil {
			t.Fatal(err)
		}
		if x.ends[i], err = n.e.Open(1, ConnConfig{QPs: []QPN{1}, Peers: []QPN{1}, AckPeer: testPeer}); err != nil {
			t.Fatal(err)
		}
	}
	return x
}

// pass delivers the WQEs posted by one end to the other end, and returns the acknowledgement.
func (x *exchange) pass(from int) {
	a, b := &x.nics[from], &x.nics[1-from]
	for ; a.head != a.tail; a.head++ {
		x.deliver(a, b, &a.wqes[a.head%len(a.wqes)])
	}
	if b.n == 0 {
		x.now = x.now.Add(120 * time.Microsecond)
		b.e.OnTimeout(x.now)
	}
	n := b.n
	b.n = 0
	a.e.OnAck(x.now, testPeer, x.now, b.ack[:n])
}

func (x *exchange) deliver(a, b *still, w *WQE) {
	x.now += 1000
	a.e.Complete(x.now, &Completion{QP: 1, Kind: Sent, ID: w.ID, At: x.now})
	cp := Completion{QP: 1, Kind: Written, Buf: b.recv, Bytes: uint32(len(w.Data.Data)), Imm: w.Imm, At: x.now}
	if w.Op == OpSend {
		to := b.e.cfg.Pool[b.recv].Data
		copy(to, w.Header[:])
		copy(to[HeaderLen:], w.Data.Data)
		cp.Kind, cp.Bytes = Received, cp.Bytes+HeaderLen
	}
	b.e.Complete(x.now, &cp)
}

// TestNoAllocation: messages by SEND and by WRITE allocate nothing.
func TestNoAllocation(t *testing.T) {
	x := newExchange(t)
	small, large := Buffer{Data: make([]byte, 100)}, Buffer{Data: make([]byte, 40<<10)}
	messages := func() {
		if err := x.ends[0].Send(x.now, 1, 0, small); err != nil {
			t.Fatal(err)
		}
		x.pass(0)
		if err := x.ends[0].Send(x.now, 2, 0, large); err != nil {
			t.Fatal(err)
		}
		x.pass(0) // request
		x.pass(1) // grant
		for x.ends[0].outstanding > 0 {
			x.pass(0)
		}
	}
	messages()
	if n := testing.AllocsPerRun(200, messages); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if c := x.nics[1].e.Counters(); c.Messages != 404 {
		t.Errorf("%d messages came", c.Messages)
	}
}

// BenchmarkMessage measures the computation of both ends for a message of 100 bytes, with one acknowledgement per
// message.
func BenchmarkMessage(b *testing.B) {
	x := newExchange(b)
	small := Buffer{Data: make([]byte, 100)}
	b.ReportAllocs()
	for b.Loop() {
		_ = x.ends[0].Send(x.now, 1, 0, small)
		x.pass(0)
	}
}
