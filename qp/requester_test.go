package qp

import (
	"bytes"
	"reflect"
	"testing"
	"unsafe"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

func ackFor(psn bth.PSN) bth.Packet {
	return bth.Packet{Opcode: bth.OpAcknowledge, PSN: psn, AETH: bth.AETH{Syndrome: bth.SyndromeACK}}
}

// TestPayloads compares the payloads of all packets with the described memory, for SGE lists of every shape.
func TestPayloads(t *testing.T) {
	for _, lens := range [][]uint32{
		{}, {0}, {1}, {256}, {257}, {1000}, {0, 300, 0}, {100, 100, 100, 100}, {256, 256}, {1, 255, 1, 255},
		{300, 0, 0, 300}, {2, 511, 3},
	} {
		for _, inline := range []bool{false, true} {
			q, h := newAt(t, RC, RTS)
			w, want := SendWQE{Opcode: WRWrite, RemoteVA: 1}, []byte{}
			for i, n := range lens {
				off := i * 700
				w.SGEs = append(w.SGEs, SGE{Addr: memBase + uint64(off), Length: n, LKey: 1})
				want = append(want, h.mem[off:off+int(n)]...)
				w.Length += n
			}
			if inline {
				q.cfg.MaxInline = 2000
				w.Flags, w.Inline, w.SGEs = SendInline, bytes.Clone(want), nil
			}
			h.queue = append(h.queue, w)
			var got []byte
			var tr Transmit
			for q.PollTransmit(1, &tr) {
				got = append(got, tr.Packet.Payload...)
			}
			if !bytes.Equal(got, want) || q.State() != RTS {
				t.Errorf("%v inline %v: %d bytes, want %d", lens, inline, len(got), len(want))
			}
		}
	}
}

// TestScatter READs into SGE lists of every shape.
func TestScatter(t *testing.T) {
	for _, lens := range [][]uint32{{1000}, {0, 300, 0}, {100, 100, 100, 100}, {1, 255, 1, 255}, {256, 44}} {
		q, h := newAt(t, RC, RTS)
		w := SendWQE{Opcode: WRRead}
		for i, n := range lens {
			w.SGEs = append(w.SGEs, SGE{Addr: memBase + uint64(i*700), Length: n, LKey: 1})
			w.Length += n
		}
		h.queue = append(h.queue, w)
		data := make([]byte, w.Length)
		for i := range data {
			data[i] = byte(200 - i)
		}
		var tr Transmit
		q.PollTransmit(1, &tr)
		sendReadResponses(t, q, tr.Packet.PSN, data)
		for i, n := range lens {
			if !bytes.Equal(h.mem[i*700:i*700+int(n)], data[:n]) {
				t.Errorf("%v: element %d differs", lens, i)
			}
			data = data[n:]
		}
		if h.retired != 1 {
			t.Errorf("%v: not complete", lens)
		}
	}
}

func sendReadResponses(t *testing.T, q *QP, psn bth.PSN, data []byte) {
	t.Helper()
	for first := true; ; first = false {
		n := min(len(data), 256)
		last := n == len(data)
		p := ackFor(psn)
		p.Opcode = bth.OpReadRespMiddle
		switch {
		case first && last:
			p.Opcode = bth.OpReadRespOnly
		case first:
			p.Opcode = bth.OpReadRespFirst
		case last:
			p.Opcode = bth.OpReadRespLast
		}
		p.Payload, data = data[:n], data[n:]
		if d := q.Receive(2, &p, RxMeta{}); d != Accepted {
			t.Fatalf("response %v: %v", psn, d)
		}
		if psn = psn.Next(); last {
			return
		}
	}
}

// TestAckLooksNoFurther: an acknowledgement costs time for the acknowledged requests only, not for the requests
// between them and a READ. The test makes a request behind the acknowledged ones look like the READ.
func TestAckLooksNoFurther(t *testing.T) {
	q, h := newAt(t, RC, RTS)
	for range 8 {
		h.queue = append(h.queue, SendWQE{Opcode: WRWrite})
	}
	h.queue = append(h.queue, SendWQE{Opcode: WRRead})
	var tr Transmit
	for q.PollTransmit(1, &tr) {
	}
	r := &q.req
	if r.rdOut != 1 || r.begun() != 9 {
		t.Fatalf("%d READs among %d requests are outstanding", r.rdOut, r.begun())
	}
	if s := r.unanswered(r.una.Add(9)); s != r.At(8) {
		t.Errorf("of all: %+v, want the READ", s)
	}
	r.At(5).kind, r.At(5).first = kindRead, r.una
	if s := r.unanswered(r.una.Add(3)); s != nil {
		t.Errorf("of three: %+v", s)
	}
}

// TestIdleIsSmall limits the size of an idle queue pair.
func TestIdleIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(QP{}); n > 568 { // 576 with the allocator's overhead
		t.Errorf("a QP has %d bytes", n)
	}
	if n := unsafe.Sizeof(slot{}); n > 256 {
		t.Errorf("a slot has %d bytes", n)
	}
	if q, _ := newAt(t, RC, RTS); !reflect.ValueOf(q.req.Ring).IsZero() {
		t.Error("the ring is made before it is needed")
	}
}

// TestLocateHalves: finding the request of a PSN among 1024 inspects eleven requests.
func TestLocateHalves(t *testing.T) {
	const n = 1024
	for want := range uint32(n) {
		r := &requester{}
		begin := func(i uint32) bth.PSN { return bth.MakePSN(0xfffff0 + i) }
		for i := range uint32(n) {
			r.Push().progress = progress{first: begin(i), sent: 1}
		}
		r.cursor, r.lastResent = r.Tail, r.Tail
		seen := map[*slot]bool{}
		r.search(begin(want), func(s *slot) bth.PSN { seen[s] = true; return s.first })
		if len(seen) > 11 {
			t.Fatalf("%d requests looked at to find %d", len(seen), want)
		}
		for i := range uint32(n) { // inspecting another request misleads the search
			if s := r.At(i); !seen[s] && i != want {
				s.first = begin(want)
			}
		}
		if i, k, ok := r.locate(begin(want)); !ok || i != want || k != 0 {
			t.Fatalf("request %d, packet %d, %v, want %d", i, k, ok, want)
		}
	}
}

// loop is a requester in steady state: it posts, sends and acknowledges a burst.
type loop struct {
	q    *QP
	h    *scriptHost
	tr   Transmit
	wqes []SendWQE
	now  mono.Time
}

func newLoop(t testing.TB, burst int, w SendWQE) *loop {
	h := newScriptHost(1 << 16)
	h.quiet = true
	q := New(Config{Tuning: Software, Type: RC, QPN: 17, Host: h, MaxSendWR: 64, MaxSendSGE: 4, MaxInline: 64, MaxUnacked: 128, SigAll: true})
	a := Attr{PathMTU: 3, DestQPN: 99, SQPSN: 100, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 16}
	if err := toRTS(q, a); err != nil {
		t.Fatal(err)
	}
	l := &loop{q: q, h: h}
	for range burst {
		l.wqes = append(l.wqes, w)
	}
	return l
}

func (l *loop) round() (packets int) {
	l.h.queue, l.h.taken, l.h.retired, l.h.cqes = l.wqes, 0, 0, 0
	l.now += 1000
	l.q.Doorbell(l.now)
	for l.q.PollTransmit(l.now, &l.tr) {
		packets++
	}
	l.q.Flushed(l.now)
	p := &l.tr.Packet
	psn := p.PSN
	*p = ackFor(psn)
	l.q.Receive(l.now, p, RxMeta{})
	l.q.NextTimeout()
	return packets
}

func TestNoAllocations(t *testing.T) {
	for name, w := range map[string]SendWQE{
		"write":  {Opcode: WRWrite, Length: 4000, SGEs: []SGE{{memBase, 4000, 1}}},
		"gather": {Opcode: WRSend, Length: 4000, SGEs: []SGE{{memBase, 1500, 1}, {memBase, 2500, 1}}},
		"inline": {Opcode: WRSend, Flags: SendInline, Length: 8, Inline: make([]byte, 8)},
	} {
		l := newLoop(t, 16, w)
		if n := testing.AllocsPerRun(100, func() {
			if l.round() < 16 || l.h.retired != 16 {
				t.Fatalf("%s: %d retired", name, l.h.retired)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per burst", name, n)
		}
	}
}

func benchmarkLoop(b *testing.B, burst int, w SendWQE) {
	l := newLoop(b, burst, w)
	packets := 0
	b.ReportAllocs()
	for b.Loop() {
		packets += l.round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packets), "ns/packet")
}

func BenchmarkWriteSmall(b *testing.B) {
	benchmarkLoop(b, 16, SendWQE{Opcode: WRWrite, Length: 64, SGEs: []SGE{{memBase, 64, 1}}})
}

func BenchmarkWriteLarge(b *testing.B) {
	benchmarkLoop(b, 1, SendWQE{Opcode: WRWrite, Length: 65000, SGEs: []SGE{{memBase, 65000, 1}}})
}
