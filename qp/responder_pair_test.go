package qp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/qptest"
)

// messages is a stream from node 0 to node 1 of a pair. Each message has its number as immediate data.
type messages struct {
	t    *testing.T
	p    *qptest.Pair
	data [][]byte
	grh  int
}

const slot = 0x1000 // bytes of memory for each message

func newMessages(t *testing.T, o qptest.Options, n int) *messages {
	p, err := qptest.NewPair(o)
	if err != nil {
		t.Fatal(err)
	}
	m := &messages{t: t, p: p, data: make([][]byte, n)}
	for _, x := range p.Nodes {
		x.H.Register(lkey, 0, n*slot, qp.AccessLocalWrite)
		x.H.Register(rkey, 0, n*slot, qp.AccessRemoteWrite)
	}
	return m
}

// send posts a message and a receive for one.
func (m *messages) send(i, size int, op qp.WROpcode) {
	b := make([]byte, size)
	for k := range b {
		b[k] = byte(i*31 + k*7 + k>>8)
	}
	m.data[i] = b
	at := uint64(i * slot)
	copy(m.p.Nodes[0].H.Regions[lkey].Mem[at:], b)
	m.p.Nodes[1].Recv(uint64(i), qp.SGE{Addr: at, Length: 100, LKey: lkey}, qp.SGE{Addr: at + 100, Length: slot - 100, LKey: lkey})
	m.p.Nodes[0].Send(qp.SendWQE{
		WRID: uint64(i), Opcode: op, Flags: qp.SendSignaled, Imm: uint32(i), AH: 1, RemoteQPN: 21, RemoteVA: at, RKey: rkey,
		SGEs: []qp.SGE{{Addr: at, Length: uint32(size), LKey: lkey}},
	})
}

// received checks that arrived messages are complete, and returns their numbers in order of arrival.
func (m *messages) received() (got []int) {
	m.t.Helper()
	n := m.p.Nodes[1]
	for _, c := range n.H.RecvCQ {
		i := int(c.Imm)
		want := m.data[i]
		mem := n.H.Regions[lkey].Mem[c.WRID*slot:]
		if c.Opcode == qp.WCRecvWithImm {
			mem = n.H.Regions[rkey].Mem[i*slot:]
		}
		mem = mem[:m.grh+len(want)]
		if c.Status != qp.StatusSuccess || int(c.ByteLen) != len(mem) || !bytes.Equal(mem[m.grh:], want) {
			m.t.Fatalf("message %d of %d bytes received as %+v", i, len(want), c)
		}
		if !bytes.Equal(mem[:m.grh], qptest.GRH[:m.grh]) {
			m.t.Fatalf("GRH % x", mem[:m.grh])
		}
		got = append(got, i)
	}
	return got
}

// TestUCPair: with loss, arrived messages are complete and in order; without loss, all messages arrive.
func TestUCPair(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			loss := int(seed % 30)
			m := newMessages(t, qptest.Options{Type: qp.UC, Hook: func(int, *bth.Packet) []time.Duration {
				if rng.IntN(100) < loss {
					return nil
				}
				return []time.Duration{0}
			}}, 80)
			for i := range m.data {
				m.send(i, rng.IntN(1500), []qp.WROpcode{qp.WRSendImm, qp.WRWriteImm}[rng.IntN(2)])
			}
			m.p.Run(mono.Never)
			got := m.received()
			for k := 1; k < len(got); k++ {
				if got[k] <= got[k-1] {
					t.Fatalf("received %v", got)
				}
			}
			if loss == 0 && len(got) != len(m.data) || len(got) == 0 {
				t.Fatalf("received %d", len(got))
			}
			if n := len(m.p.Nodes[0].H.SendCQ); n != len(m.data) {
				t.Fatalf("%d sends completed", n)
			}
		})
	}
}

// TestUCPairDisorder reorders and duplicates packets. Arrived messages are complete.
func TestUCPairDisorder(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := newMessages(t, qptest.Options{Type: qp.UC, Hook: func(int, *bth.Packet) []time.Duration {
			switch rng.IntN(20) {
			case 0:
				return []time.Duration{0, 50}
			case 1:
				return []time.Duration{100}
			}
			return []time.Duration{0}
		}}, 60)
		for i := range m.data {
			m.send(i, rng.IntN(900), qp.WRSendImm)
			m.p.Run(m.p.Now.Add(time.Duration(rng.IntN(200))))
		}
		m.p.Run(mono.Never)
		if got := m.received(); len(got) < 20 {
			t.Fatalf("seed %d: received %v", seed, got)
		}
	}
}

func TestUDPair(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	m := newMessages(t, qptest.Options{Type: qp.UD, Attr: qp.Attr{PathMTU: 5}, Hook: func(int, *bth.Packet) []time.Duration {
		return make([]time.Duration, rng.IntN(3)) // lost, once, twice
	}}, 100)
	m.grh = 40
	for i := range m.data {
		m.send(i, rng.IntN(slot-40), qp.WRSendImm)
	}
	m.p.Run(mono.Never)
	if n := len(m.received()); n < 50 || m.p.Nodes[1].Counters.UDDropped != 0 && n != 100 {
		t.Errorf("received %d, dropped %d", n, m.p.Nodes[1].Counters.UDDropped)
	}
}

// TestRCPair runs over an encoded link with loss, duplicates and delay.
func TestRCPair(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 4))
		m := newMessages(t, qptest.Options{Attr: qp.Attr{SQPSN: 0xfffff0, RQPSN: 0xfffff0}, Hook: func(int, *bth.Packet) []time.Duration {
			d := make([]time.Duration, []int{0, 1, 1, 1, 1, 1, 1, 1, 1, 2}[rng.IntN(10)])
			if len(d) > 0 && rng.IntN(30) == 0 {
				d[0] = 5 * time.Microsecond
			}
			return d
		}}, 40)
		for i := range m.data {
			m.send(i, rng.IntN(1000), []qp.WROpcode{qp.WRSendImm, qp.WRWriteImm}[rng.IntN(2)])
		}
		if !m.p.Wait(func() bool { return len(m.p.Nodes[0].H.SendCQ) == len(m.data) }) {
			t.Fatalf("seed %d: %d sends completed", seed, len(m.p.Nodes[0].H.SendCQ))
		}
		if got := m.received(); len(got) != len(m.data) || got[0] != 0 || got[39] != 39 {
			t.Fatalf("seed %d: received %v", seed, got)
		}
	}
}

// TestSharedReceiveQueue: two queue pairs share one receive queue.
func TestSharedReceiveQueue(t *testing.T) {
	shared := new(qptest.RecvQueue)
	o := qptest.Options{Config: func(node int, c *qp.Config) {
		c.HasSRQ = true
		c.Host.(*qptest.Host).Recvs = shared
	}}
	p, err := qptest.NewPair(o)
	if err != nil {
		t.Fatal(err)
	}
	var seen []uint64
	for i, n := range p.Nodes {
		n.H.Register(lkey, 0, slot, qp.AccessLocalWrite)
		for k := range 6 {
			n.Recv(uint64(6*i+k), qp.SGE{Addr: 0, Length: slot, LKey: lkey})
			n.Send(qp.SendWQE{Opcode: qp.WRSend, SGEs: []qp.SGE{{Addr: 0, Length: 700, LKey: lkey}}})
		}
	}
	p.Run(mono.Never)
	for _, n := range p.Nodes {
		for _, c := range n.H.RecvCQ {
			seen = append(seen, 1<<c.WRID)
		}
	}
	var all uint64
	for _, bit := range seen {
		all |= bit
	}
	if len(seen) != 12 || all != 1<<12-1 {
		t.Errorf("received %d: %b", len(seen), all)
	}
}

// TestResponderAllocatesNothing: no operation allocates memory per packet.
func TestResponderAllocatesNothing(t *testing.T) {
	l := newLone(t, qp.RC, qp.RTS, false, loneAttr)
	for i := range uint64(8) {
		l.post(qp.RecvWQE{WRID: i, SGEs: []qp.SGE{{localVA, 300, lkey}, {localVA + 300, 300, lkey}}})
	}
	var packets []bth.Packet
	for _, line := range []string{
		"send_first len=256", "send_middle len=256", "send_last len=80", "send_only_imm len=9 ackreq", "write_only_imm len=5 total=5",
		"write_first len=256 total=300", "write_last len=44 ackreq", "read total=700", "fetch_add", "send_only ackreq",
	} {
		p, err := l.pack(line)
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, p)
	}
	psn := bth.MakePSN(100)
	var tr qp.Transmit
	run := func() {
		l.h.Recvs.Taken, l.h.RecvCQ = 0, l.h.RecvCQ[:0]
		for i := range packets {
			p := &packets[i]
			p.PSN = psn
			if d := l.q.Receive(l.now, p, qp.RxMeta{}); d != qp.Accepted {
				t.Fatalf("%v: %v", p.Opcode, d)
			}
			if psn = psn.Next(); p.Opcode.IsReadRequest() {
				psn = psn.Add(2)
			}
		}
		l.q.Receive(l.now, &packets[0], qp.RxMeta{}) // duplicate
		packets[9].PSN = psn.Add(1)
		l.q.Receive(l.now, &packets[9], qp.RxMeta{}) // beyond the expected PSN
		for l.q.PollTransmit(l.now, &tr) {
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestIdleFootprint: ten thousand idle queue pairs should not fill a cache.
func TestIdleFootprint(t *testing.T) {
	if n := unsafe.Sizeof(qp.QP{}); n > 1536 {
		t.Errorf("a queue pair has %d bytes", n)
	} else {
		t.Logf("%d bytes", n)
	}
}

func BenchmarkResponderWrite(b *testing.B) {
	l := newLone(b, qp.RC, qp.RTS, false, loneAttr)
	p, err := l.pack("write_only len=256 total=256 ackreq")
	if err != nil {
		b.Fatal(err)
	}
	psn := bth.MakePSN(100)
	var tr qp.Transmit
	for b.Loop() {
		p.PSN = psn
		psn = psn.Next()
		l.q.Receive(l.now, &p, qp.RxMeta{})
		l.q.PollTransmit(l.now, &tr)
	}
}

func BenchmarkResponderRead(b *testing.B) {
	l := newLone(b, qp.RC, qp.RTS, false, loneAttr)
	p, err := l.pack("read total=12288")
	if err != nil {
		b.Fatal(err)
	}
	psn := bth.MakePSN(100)
	var tr qp.Transmit
	b.SetBytes(12288)
	for b.Loop() {
		p.PSN = psn
		psn = psn.Add(48)
		l.q.Receive(l.now, &p, qp.RxMeta{})
		for l.q.PollTransmit(l.now, &tr) {
		}
	}
}
