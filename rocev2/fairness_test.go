package rocev2_test

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/nictest"
)

// bottleneck is the queue of a link of a given rate, with RED marking (Floyd and Jacobson 1993). DCTCP is the case
// kMin = kMax; Zhu et al. 2015, section 3.1, has the general case.
type bottleneck struct {
	rate       float64 // bit/s
	kMin, kMax float64 // bytes
	pMax       float64
	free       mono.Time
	peak       float64 // bytes, since the last reset to zero
	pair       *nictest.Pair
}

func (q *bottleneck) hook(f *nictest.Flight) nictest.Fate {
	if f.From != q.pair.A {
		return nictest.Fate{}
	}
	q.free = max(q.free, f.At)
	depth := q.free.Sub(f.At).Seconds() * q.rate / 8
	q.peak = max(q.peak, depth)
	q.free = q.free.Add(time.Duration(float64(len(f.Frame)) * 8 * 1e9 / q.rate))
	p := 0.0
	switch {
	case depth >= q.kMax:
		p = 1
	case depth > q.kMin:
		p = q.pMax * (depth - q.kMin) / (q.kMax - q.kMin)
	}
	if tos(f.Frame)&3 == ect0 && q.pair.RNG.Float64() < p {
		markCE(f.Frame)
	}
	return nictest.Fate{}
}

// flow is a queue pair that always has something to send.
type flow struct {
	qp    *nictest.QP
	write qp.SendWQE
	bytes uint64 // completed
}

const flowWrite = 32 << 10

func newFlow(p *nictest.Pair) *flow {
	a, _ := p.RC()
	src, dst := p.A.Buffer(flowWrite), p.B.Buffer(flowWrite)
	return &flow{qp: a, write: nictest.Write(1, dst.At(0), src.SGE())}
}

// pump keeps n writes outstanding.
func (f *flow) pump(n int) {
	for c, ok := f.qp.SendCQ.Poll(); ok; c, ok = f.qp.SendCQ.Poll() {
		if c.Status != qp.StatusSuccess {
			f.qp.Node.Pair().Fatalf("completion with status %d", c.Status)
		}
		f.bytes += flowWrite
	}
	for f.qp.SQ.Outstanding() < n {
		f.qp.Post(f.write)
	}
}

// TestFlowsShareABottleneck: two flows share a bottleneck of 10 Gb/s. The second starts while the first uses all of
// it. Their shares become equal, the link stays busy, and the queue stays short.
func TestFlowsShareABottleneck(t *testing.T) {
	const rate = 10e9
	for _, c := range []struct {
		algorithm  string
		params     ccalgo.Params
		kMin, kMax float64
		pMax       float64
		alone      time.Duration // of the first flow
		settle     time.Duration // until shares are measured
		queue      float64       // bytes, the maximum
	}{
		// P_max is ten times the paper's, which is for a link four times as fast.
		{"dcqcn", ccalgo.Params{"line_rate_bps": rate}, 5e3, 200e3, 0.1, 5 * time.Millisecond, 40 * time.Millisecond, 200e3},
		{"dctcp", nil, 30e3, 30e3, 1, 2 * time.Millisecond, 5 * time.Millisecond, 80e3},
		{"mp-rdma", ccalgo.Params{"line_rate_bps": rate, "base_rtt_us": 40}, 10e3, 100e3, 0.8, 2 * time.Millisecond, 5 * time.Millisecond, 150e3},
		{"nscc", ccalgo.Params{"line_rate_bps": rate, "base_rtt_us": 45}, 30e3, 30e3, 1, 2 * time.Millisecond, 20 * time.Millisecond, 150e3},
		// By delay: the switch marks nothing. TIMELY is missing, because its flows do not converge to one share (Zhu
		// et al., CoNEXT 2016).
		{"swift", ccalgo.Params{"base_target_us": 60}, 1e9, 1e9, 0, 2 * time.Millisecond, 10 * time.Millisecond, 150e3},
	} {
		t.Run(c.algorithm, func(t *testing.T) {
			q := &bottleneck{rate: rate, kMin: c.kMin, kMax: c.kMax, pMax: c.pMax}
			p := nictest.New(t, nictest.Options{Seed: 1, Rate: rate, Delay: 20 * time.Microsecond, Hook: q.hook,
				Config: with(c.algorithm, c.params)})
			q.pair = p
			first, second := newFlow(p), newFlow(p)
			p.RunUntil(func() bool { first.pump(32); return false }, c.alone)
			both := func() bool { first.pump(32); second.pump(32); return false }
			p.RunUntil(both, c.settle)
			before := [2]uint64{first.bytes, second.bytes}
			q.peak = 0
			const window = 20 * time.Millisecond
			p.RunUntil(both, window)
			x, y := float64(first.bytes-before[0]), float64(second.bytes-before[1])
			jain := (x + y) * (x + y) / (2 * (x*x + y*y))
			goodput := (x + y) * 8 / window.Seconds()
			t.Logf("%.2f and %.2f Gb/s, Jain's index %.4f, queue up to %.0f bytes, %d CNPs", x*8/window.Seconds()/1e9,
				y*8/window.Seconds()/1e9, jain, q.peak, p.B.Counter("np_cnp_sent"))
			if share := bestGoodput(rate); jain < 0.98 || goodput < 0.9*share || q.peak > c.queue {
				t.Errorf("Jain's index %.4f, goodput %.2f of %.2f Gb/s, queue %.0f", jain, goodput/1e9, share/1e9, q.peak)
			}
		})
	}
}

// bestGoodput returns the goodput of WRITEs at path MTU 1024 over a saturated link.
func bestGoodput(rate float64) float64 {
	const headers = 14 + 20 + 8 + bth.BTHLen + bth.ICRCLen
	return rate * 1024 / (1024 + headers)
}
