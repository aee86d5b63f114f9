package qp_test

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"testing"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/qp/profile"
	"roced.io/roced/qp/qptest"
)

// benchTransports are the compared transports.
var benchTransports = []struct {
	name, profile string
	spec          profile.Spec
}{
	{name: "rc", profile: "rc"},
	{name: "irn", profile: "irn"},
	{name: "melo", profile: "melo"},
	{name: "mp-rdma", profile: "mp-rdma"},
	{name: "eunomia-gbn", profile: "eunomia", spec: eunomiaOver(0)},
	{name: "eunomia-sr", profile: "eunomia", spec: eunomiaOver(1)},
}

func eunomiaOver(selective float64) profile.Spec {
	return profile.Spec{Recovery: profile.Part{Name: "eunomia", Params: map[string]float64{
		"selective_repeat": selective, "rto_us": 320,
	}}}
}

// benchNIC has the state that the queue pairs of a NIC share. Tests that run at the same time have NICs of their own.
type benchNIC struct {
	counters qp.Counters
	scratch  qp.Scratch
}

// benchTune applies the daemon's tuning to a configuration.
var benchTune = func(*qp.Config) {}

const (
	benchMTU   = 1024
	benchTick  = 1000 // ns per turn of the bench
	benchBurst = 12   // packets per turn: 100 Gb/s
	benchDelay = 8000 // ns one way
)

// benchHost has endless work and memory for one packet; the content of packets does not matter.
type benchHost struct {
	*qptest.Host
	wqe          qp.SendWQE
	depth, taken int
	left         int // requests to hand out
	memory       []byte
	scratch      []byte
	failed       bool
}

func (h *benchHost) HasSend() bool { return h.left > 0 && h.taken < h.depth }

func (h *benchHost) NextSend(w *qp.SendWQE) bool {
	if !h.HasSend() {
		return false
	}
	h.left--
	h.taken++
	sges, inline := append(w.SGEs[:0], h.wqe.SGEs...), w.Inline[:0]
	*w = h.wqe
	w.SGEs, w.Inline = sges, inline
	return true
}

func (h *benchHost) SendRetired(n int) { h.taken -= n }

func (h *benchHost) NextRecv(w *qp.RecvWQE) bool {
	w.SGEs = append(w.SGEs[:0], h.wqe.SGEs...)
	return true
}

func (h *benchHost) CompleteSend(c qp.CQE) { h.failed = h.failed || c.Status != qp.StatusSuccess }
func (h *benchHost) CompleteRecv(c qp.CQE) { h.failed = h.failed || c.Status != qp.StatusSuccess }

func (h *benchHost) ReadLocal(_ uint32, _ uint64, n int, _ uint32) ([]byte, bool) {
	return h.memory[:n], true
}

func (h *benchHost) ReadRemote(_ uint32, _ uint64, n int, _ uint32) ([]byte, bool) {
	return h.memory[:n], true
}
func (h *benchHost) WriteLocal(uint32, uint64, []byte, uint32) bool     { return true }
func (h *benchHost) WriteRecv(uint32, uint64, []byte, uint32) bool      { return true }
func (h *benchHost) WriteRemote(uint32, uint64, []byte, uint32) bool    { return true }
func (h *benchHost) CheckLocal(uint32, uint64, uint32, qp.Access) bool  { return true }
func (h *benchHost) CheckRemote(uint32, uint64, uint32, qp.Access) bool { return true }
func (h *benchHost) Scratch(n int) []byte                               { return h.scratch[:n] }
func (h *benchHost) Fetch(p []byte) ([]byte, bool)                      { return p, true }
func (h *benchHost) FetchAdd(uint32, uint64, uint64) (uint64, bool)     { return 0, true }

func newBenchHost() *benchHost {
	return &benchHost{memory: make([]byte, benchMTU), scratch: make([]byte, benchMTU)}
}

// benchAttr returns attributes with a path MTU of 1 KB, by its code or in bytes.
func benchAttr(peer int) qp.Attr {
	a := qp.Attr{
		AccessFlags: qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic, MaxRdAtomic: 16, MaxDestRdAtomic: 16,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1, DestQPN: uint32(peer),
	}
	if f := reflect.ValueOf(&a).Elem().FieldByName("PathMTU"); f.Kind() == reflect.Uint8 {
		f.SetUint(3)
	} else if f.CanUint() {
		f.SetUint(benchMTU)
	} else {
		f.SetInt(benchMTU)
	}
	return a
}

// benchEnd is one end of a benchmark.
type benchEnd struct {
	q    *qp.QP
	h    *benchHost
	out  []benchFlight // by time of arrival; entries before head have arrived
	head int
}

type benchFlight struct {
	at  mono.Time
	pkt bth.Packet
}

// bench is two connected queue pairs with a link between them that loses packets.
type bench struct {
	nic  *benchNIC // both ends are queue pairs of one NIC
	ends [2]benchEnd
	now  mono.Time
	loss uint32 // of 2^32
	rng  uint32
	t    qp.Transmit
}

func newBenchQP(tb testing.TB, m *profile.Maker, name string, s profile.Spec, h qp.Host, nic *benchNIC, qpn int) *qp.QP {
	p, err := m.New(name, s)
	if err != nil {
		tb.Fatal(err)
	}
	c := qp.Config{Counters: &nic.counters, Scratch: &nic.scratch,
		Type: qp.RC, QPN: bth.QPN(qpn), MaxSendWR: 1024, MaxSendSGE: 4, MaxRecvSGE: 4, Host: h, Profile: p,
	}
	benchTune(&c)
	q := qp.New(c)
	if err := qptest.Connect(1, q, qp.RC, benchAttr(qpn^1), qp.RTS); err != nil {
		tb.Fatal(err)
	}
	return q
}

func newBench(tb testing.TB, name string, s profile.Spec, loss float64) *bench {
	b := &bench{nic: new(benchNIC), now: 1, loss: uint32(loss * (1 << 32)), rng: 1}
	for i := range b.ends {
		h := newBenchHost()
		h.Host = qptest.NewHost()
		b.ends[i] = benchEnd{h: h, q: newBenchQP(tb, profile.NewMaker(profile.Link{}), name, s, h, b.nic, 20+i), out: make([]benchFlight, 0, 4096)}
	}
	return b
}

// lost draws from a linear congruential generator.
func (b *bench) lost() bool {
	b.rng = b.rng*1664525 + 1013904223
	return b.rng < b.loss
}

// turn runs a microsecond of a NIC.
func (b *bench) turn() {
	busy := false
	for i := range b.ends {
		e := &b.ends[i]
		for range benchBurst {
			if !e.q.PollTransmit(b.now, &b.t) {
				break
			}
			busy = true
			if !b.lost() {
				e.out = append(e.out, benchFlight{b.now + benchDelay, b.t.Packet})
			}
		}
		e.q.Flushed(b.now)
	}
	next := b.ends[0].q.NextTimeout().Min(b.ends[1].q.NextTimeout())
	for i := range b.ends {
		if e := &b.ends[i]; e.head < len(e.out) {
			next = next.Min(e.out[e.head].at)
		}
	}
	b.now += benchTick
	if !busy && next != mono.Never {
		b.now = max(b.now, next)
	}
	for i := range b.ends {
		e, to := &b.ends[i], b.ends[1-i].q
		for ; e.head < len(e.out) && e.out[e.head].at <= b.now; e.head++ {
			to.Receive(b.now, &e.out[e.head].pkt, qp.RxMeta{Path: 50000})
		}
		if e.head == len(e.out) || e.head > 2048 {
			e.out, e.head = append(e.out[:0], e.out[e.head:]...), 0
		}
		if e.q.NextTimeout() <= b.now {
			e.q.OnTimeout(b.now)
		}
	}
}

// BenchmarkPackets measures the cost of a data packet, at both ends together.
func BenchmarkPackets(b *testing.B) {
	operations := []struct {
		name string
		op   qp.WROpcode
	}{{"write", qp.WRWrite}, {"send", qp.WRSend}, {"read", qp.WRRead}}
	for _, tr := range benchTransports {
		for _, o := range operations {
			for _, packets := range []int{1, 64} {
				for _, loss := range []float64{0, 0.01} {
					b.Run(fmt.Sprintf("%s/%s/packets=%d/loss=%g", tr.name, o.name, packets, loss), func(b *testing.B) {
						benchPackets(b, newBench(b, tr.profile, tr.spec, loss), o.op, packets)
					})
				}
			}
		}
	}
}

func benchPackets(b *testing.B, x *bench, op qp.WROpcode, packets int) {
	n := uint32(packets * benchMTU)
	sges := []qp.SGE{{Addr: 1 << 20, Length: n, LKey: 1}}
	for i := range x.ends {
		x.ends[i].h.wqe = qp.SendWQE{Opcode: op, Flags: qp.SendSignaled, Length: n, RemoteVA: 1 << 20, RKey: 1, SGEs: sges}
	}
	h := x.ends[0].h
	h.depth = max(1024/packets, 4)
	h.left = h.depth * 4 // warm up: buffers grow to their final size
	run := func() {
		x.ends[0].q.Doorbell(x.now)
		for h.left+h.taken > 0 {
			if x.turn(); h.failed || x.ends[1].h.failed {
				b.Fatal("a request has failed")
			}
		}
	}
	run()
	h.left = max(b.N/packets, 1)
	b.ReportAllocs()
	b.ResetTimer()
	run()
}

// BenchmarkDistributions runs BenchmarkPackets over RC with and without histograms.
func BenchmarkDistributions(b *testing.B) {
	for _, packets := range []int{1, 64} {
		for name, d := range map[string]*qp.Distributions{"without": nil, "with": qp.NewDistributions()} {
			b.Run(fmt.Sprintf("packets=%d/%s", packets, name), func(b *testing.B) {
				x := newBench(b, "rc", profile.Spec{}, 0)
				x.nic.counters.Distributions = d
				benchPackets(b, x, qp.WRWrite, packets)
			})
		}
	}
}

// BenchmarkConnected measures the heap bytes of an idle connected queue pair.
func BenchmarkConnected(b *testing.B) {
	for _, tr := range benchTransports {
		b.Run(tr.name, func(b *testing.B) { b.ReportMetric(connectedBytes(b, tr.profile, tr.spec), "B/qp") })
	}
}

// connectedBytes returns the heap bytes of an idle connected queue pair.
func connectedBytes(tb testing.TB, name string, s profile.Spec) float64 {
	const pairs = 1000 // one end of each
	var before, after runtime.MemStats
	m, h, nic, qps := profile.NewMaker(profile.Link{}), newBenchHost(), new(benchNIC), make([]*qp.QP, pairs)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range qps {
		qps[i] = newBenchQP(tb, m, name, s, h, nic, 20+i)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(qps)
	return float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / pairs
}

// TestConnectedIsSmall limits the heap bytes for rc. Garbage of other tests can only disturb some of the rounds.
func TestConnectedIsSmall(t *testing.T) {
	least := math.Inf(1)
	for range 3 {
		if n := connectedBytes(t, "rc", profile.Spec{}); n > 0 {
			least = min(least, n)
		}
	}
	t.Logf("%.0f bytes", least)
	if least > 776 {
		t.Errorf("%.0f bytes, at most 776", least)
	}
}
