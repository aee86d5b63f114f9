package soak

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// lean is two NICs with minimal clients, so that tests measure the NICs.
type lean struct {
	nics [2]*rocev2.NIC
	pds  [2]*rocev2.PD
	cqs  [2]*rocev2.CQ
	mrs  [2]*rocev2.MR
	mem  [2][]byte
	now  mono.Time
	buf  []byte
	sent int // frames
	pkts int // datagrams
	qps  [2][]*rocev2.QueuePair
	reqs []*requests // of NIC 0
}

// requests is a send queue of equal requests. If endless, it never runs out; otherwise it holds left requests.
type requests struct {
	w       qp.SendWQE
	left    int
	endless bool
	out     int
	retired int
}

func (r *requests) Next(w *qp.SendWQE) bool {
	if !r.Pending() {
		return false
	}
	r.left--
	sges, inline := append(w.SGEs[:0], r.w.SGEs...), w.Inline[:0]
	*w = r.w
	w.SGEs, w.Inline = sges, inline
	r.out++
	return true
}

func (r *requests) Pending() bool { return (r.endless || r.left > 0) && r.out < leanDepth }
func (r *requests) Retire(n int)  { r.out -= n; r.retired += n }
func (r *requests) Reset()        {}

// nothing is a receive queue of endless empty requests, and a ring that accepts all completions.
type nothing struct{}

func (nothing) Next(w *qp.RecvWQE) bool { return true }
func (nothing) Len() int                { return 1 }
func (nothing) Reset()                  {}
func (nothing) Push(*qp.CQE) bool       { return true }
func (nothing) Arm(rocev2.Arm)          {}
func (nothing) Armed() rocev2.Arm       { return 0 }
func (nothing) Disarm()                 {}

const (
	leanMem   = 1 << 20
	leanDepth = 16
)

func newLean(tb testing.TB, o link.Offload) *lean {
	l := &lean{now: mono.Time(time.Second), buf: make([]byte, 0, 1<<17)}
	for i := range l.nics {
		var err error
		l.nics[i], err = rocev2.New(rocev2.Config{
			Name: "lean", MAC: inet.MAC{2, 0, 0, 0, 0, byte(i + 1)}, MTU: 4300, Offload: o,
			Addrs: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24)},
		})
		check(tb, err)
		l.mem[i] = make([]byte, leanMem)
		l.pds[i], err = l.nics[i].AllocPD(nil)
		check(tb, err)
		l.cqs[i], err = l.nics[i].CreateCQ(rocev2.CQAttr{Entries: 1, Ring: nothing{}})
		check(tb, err)
		l.mrs[i], err = l.nics[i].RegMR(l.pds[i], rocev2.MRAttr{VA: 4096, Length: leanMem, Mem: rocev2.NewBytes(l.mem[i]),
			Access: qp.AccessLocalWrite | qp.AccessRemoteWrite | qp.AccessRemoteRead | qp.AccessRemoteAtomic})
		check(tb, err)
	}
	return l
}

func check(tb testing.TB, err error) {
	if err != nil {
		tb.Fatal(err)
	}
}

// connect adds a pair of queue pairs; the queue pairs of NIC 0 send w.
func (l *lean) connect(tb testing.TB, w qp.SendWQE) {
	r := &requests{w: w}
	var pair [2]*rocev2.QueuePair
	for i := range pair {
		sq := rocev2.SendQueue(idleQueue)
		if i == 0 {
			sq = r
		}
		var err error
		pair[i], err = l.nics[i].CreateQP(rocev2.QPAttr{Type: qp.RC, PD: l.pds[i], SendCQ: l.cqs[i], RecvCQ: l.cqs[i],
			SQ: sq, RQ: nothing{}, Caps: rocev2.QPCaps{MaxSendWR: leanDepth, MaxRecvWR: leanDepth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}})
		check(tb, err)
		l.qps[i] = append(l.qps[i], pair[i])
	}
	l.reqs = append(l.reqs, r)
	for i, q := range pair {
		l.ready(tb, i, q, pair[1-i])
	}
}

var idleQueue = new(requests)

// ready takes a queue pair to RTS.
func (l *lean) ready(tb testing.TB, i int, q, peer *rocev2.QueuePair) {
	n := l.nics[i]
	av := rocev2.AddressVector{DGID: l.nics[1-i].GIDs()[0].GID, SGIDIndex: 0}
	check(tb, n.ModifyQP(l.now, q, qp.Attr{State: qp.Init, Port: 1, AccessFlags: qp.AccessRemoteRead | qp.AccessRemoteWrite | qp.AccessRemoteAtomic},
		qp.AttrState|qp.AttrPort|qp.AttrPKeyIndex|qp.AttrAccessFlags, nil))
	check(tb, n.ModifyQP(l.now, q, qp.Attr{State: qp.RTR, PathMTU: 5, DestQPN: uint32(peer.Num()), MaxDestRdAtomic: 4, MinRNRTimer: 1},
		qp.AttrState|qp.AttrAV|qp.AttrPathMTU|qp.AttrDestQPN|qp.AttrRQPSN|qp.AttrMaxDestRdAtomic|qp.AttrMinRNRTimer, &av))
	check(tb, n.ModifyQP(l.now, q, qp.Attr{State: qp.RTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 4},
		qp.AttrState|qp.AttrSQPSN|qp.AttrTimeout|qp.AttrRetryCnt|qp.AttrRNRRetry|qp.AttrMaxRdAtomic, nil))
}

// write returns a WRITE of n bytes.
func (l *lean) write(n int) qp.SendWQE {
	return qp.SendWQE{Opcode: qp.WRWrite, Length: uint32(n), RemoteVA: 4096, RKey: l.mrs[1].RKey,
		SGEs: []qp.SGE{{Addr: 4096, Length: uint32(n), LKey: l.mrs[0].LKey}}}
}

// turn carries up to 64 frames each way and advances the clock by a microsecond, like the loop of the daemon. It
// reports whether there was a frame.
func (l *lean) turn() bool {
	l.now = l.now.Add(time.Microsecond)
	sent := l.sent
	for i, n := range l.nics {
		if n.NextTimeout() <= l.now {
			n.Advance(l.now)
		}
		for range 64 {
			f := n.PollTransmit(l.now)
			if f == nil {
				break
			}
			l.buf = f.AppendTo(l.buf[:0])
			l.sent++
			l.pkts++
			if f.SegSize > 0 {
				l.pkts += (f.Len - f.HdrLen - 1) / f.SegSize
			}
			l.nics[1-i].Receive(l.now, l.buf, f.SegSize)
		}
	}
	return l.sent != sent
}

func (l *lean) settle() {
	for quiet := 0; quiet < 3; {
		if quiet++; l.turn() {
			quiet = 0
		}
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestManyQueuePairs connects 10000 queue pairs. It measures the memory of each of the 20000 ends, first idle, then
// after sending and receiving once.
func TestManyQueuePairs(t *testing.T) {
	const pairs, most = 10_000, 4096
	l := newLean(t, link.Offload{MaxSegments: 16, MaxBytes: 65549})
	w := l.write(16)
	before := heap()
	for range pairs {
		l.connect(t, w)
	}
	l.settle()
	idle := heap()
	perQP := func(now uint64) uint64 { return (now - before) / (2 * pairs) }
	t.Logf("connected: %d bytes of state per queue pair", perQP(idle))
	reads := l.write(16)
	reads.Opcode, reads.RemoteVA = qp.WRRead, 8192
	for _, w := range []qp.SendWQE{w, reads} {
		for i, r := range l.reqs {
			r.w, r.left = w, 2
			l.nics[0].Doorbell(l.now, l.qps[0][i])
		}
		l.settle()
	}
	for i, r := range l.reqs {
		if r.retired != 4 {
			t.Fatalf("queue pair %d has completed %d requests of 4", i, r.retired)
		}
	}
	used := heap()
	t.Logf("used: %d bytes of state per queue pair", perQP(used))
	if perQP(idle) > most || perQP(used) > most {
		t.Errorf("more than %d", most)
	}
	runtime.KeepAlive(l)
}

// busy makes n queue pairs send for d of wall time, and returns the throughput.
func busy(tb testing.TB, n int, o link.Offload, d time.Duration) (bytesPerSecond float64) {
	const size = 16 << 10
	l := newLean(tb, o)
	for range n {
		l.connect(tb, l.write(size))
	}
	l.settle()
	for i, r := range l.reqs {
		r.endless = true
		l.nics[0].Doorbell(l.now, l.qps[0][i])
	}
	for range 2000 {
		l.turn()
	}
	done := l.retired()
	start := time.Now()
	for time.Since(start) < d {
		for range 100 {
			l.turn()
		}
	}
	elapsed := time.Since(start).Seconds()
	return float64(l.retired()-done) * size / elapsed
}

func (l *lean) retired() (n int) {
	for _, r := range l.reqs {
		n += r.retired
	}
	return n
}

// BenchmarkBusyQPs compares the throughput of 8 and of 1000 busy queue pairs.
func BenchmarkBusyQPs(b *testing.B) {
	for _, o := range []link.Offload{{}, {MaxSegments: 64, MaxBytes: 65549}} {
		b.Run(fmt.Sprintf("segments=%d", max(o.MaxSegments, 1)), func(b *testing.B) {
			few, many := 0.0, 0.0
			for range b.N {
				few += busy(b, 8, o, 300*time.Millisecond)
				many += busy(b, 1000, o, 300*time.Millisecond)
			}
			b.ReportMetric(few/float64(b.N)*8/1e9, "Gbit/s-8")
			b.ReportMetric(many/float64(b.N)*8/1e9, "Gbit/s-1000")
			b.ReportMetric(many/few, "ratio")
		})
	}
}

// TestNoAllocations transfers data in steady state: packets allocate no memory.
func TestNoAllocations(t *testing.T) {
	for _, o := range []link.Offload{{}, {MaxSegments: 64, MaxBytes: 65549}} {
		for _, op := range []qp.WROpcode{qp.WRWrite, qp.WRSend, qp.WRRead, qp.WRFetchAdd} {
			l := newLean(t, o)
			w := l.write(20_000)
			w.Opcode = op
			switch op {
			case qp.WRSend:
				w.Length, w.SGEs = 0, nil
			case qp.WRFetchAdd:
				w.Length, w.SGEs[0].Length = 8, 8
			}
			for range 3 {
				l.connect(t, w)
			}
			l.settle()
			for i, r := range l.reqs {
				r.endless = true
				l.nics[0].Doorbell(l.now, l.qps[0][i])
			}
			for range 1000 {
				l.turn()
			}
			pkts := l.pkts
			n := testing.AllocsPerRun(200, func() { l.turn() })
			if n != 0 || l.pkts < pkts+200 {
				t.Errorf("offload %v, operation %d: %v allocations in a turn; %d packets in 201 turns", o, op, n, l.pkts-pkts)
			}
		}
	}
}
