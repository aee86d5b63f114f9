package qp

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/plugin/mono"
)

// TestClasses: a value belongs to the class with the smallest bound that is not less than the value.
func TestClasses(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, b := range []*Bounds{Times, Degrees} {
		for i := 1; i < len(b.Upper); i++ {
			if b.Upper[i] < 2*b.Upper[i-1] {
				t.Fatalf("%d is less than twice %d", b.Upper[i], b.Upper[i-1])
			}
		}
		values := []uint64{0, 1<<64 - 1}
		for _, u := range b.Upper {
			values = append(values, u, u+1, u-min(u, 1))
		}
		for range 10000 {
			values = append(values, rng.Uint64()>>rng.UintN(64))
		}
		for _, v := range values {
			h := newHistogram(b)
			h.add(v)
			want, _ := slices.BinarySearch(b.Upper, v)
			if h.Counts[want] != 1 || h.Sum != v {
				t.Fatalf("%d is in %v, not in class %d", v, h.Counts, want)
			}
		}
	}
}

// watcher computes from the events of a tracer the values that Distributions must have.
type watcher struct {
	d     *Distributions
	begun map[bool]mono.Time // first packet, of the WRITE and of the READ
}

func (*watcher) Closed() {}

func (w *watcher) Trace(now mono.Time, e TraceEvent) {
	switch {
	case e.Kind == TraceAck && e.RTT > 0:
		w.d.RTT.add(uint64(e.RTT))
	case e.Kind == TraceReceived && (e.Drop == Accepted || e.Drop == DropOutOfOrder):
		w.d.Degree.add(uint64(e.Degree))
	case e.Kind == TraceSent && !e.Response && !e.Retransmission:
		if read := e.Length == 0; w.begun[read] == 0 {
			w.begun[read] = now
		}
	}
}

// TestDistributions: the distributions agree with the events of a tracer, and recording them does not change the
// work.
func TestDistributions(t *testing.T) {
	transports := map[string]func() Profile{"rc": nil}
	for name, p := range extended {
		transports[name] = p
	}
	for name, profile := range transports {
		w := [2]*watcher{}
		for i := range w {
			w[i] = &watcher{NewDistributions(), map[bool]mono.Time{}}
		}
		p, without := tracedPair(t, profile, w[0], w[1]), tracedPair(t, profile)
		var got [2]*Distributions
		for i := range got {
			got[i] = NewDistributions()
			p.ends[i].q.ctr.Distributions = got[i]
		}
		p.run(t)
		without.run(t)
		if d := cmp.Diff(without.trace, p.trace); d != "" {
			t.Errorf("%s: (-without +with)\n%s", name, d)
		}
		for i := range got {
			if d := cmp.Diff(w[i].d.RTT.Counts, got[i].RTT.Counts) + cmp.Diff(w[i].d.Degree.Counts, got[i].Degree.Counts); d != "" {
				t.Errorf("%s, end %d: (-tracer +distributions)\n%s", name, i, d)
			}
		}
		if n := got[1].Degree.Sum; n == 0 && profile != nil {
			t.Errorf("%s: nothing came out of order", name)
		}
		for op, read := range map[Operation]bool{OpWrite: false, OpRead: true} {
			h := &got[0].Latency[op]
			if n := sum(h.Counts); n != 1 || h.Sum == 0 || h.Sum > uint64(p.now.Sub(w[0].begun[read])) {
				t.Errorf("%s: %d messages took %d ns, all %v", name, n, h.Sum, p.now.Sub(w[0].begun[read]))
			}
		}
	}
}

// TestDistributionsAllocate: recording allocates nothing.
func TestDistributionsAllocate(t *testing.T) {
	l := newLoop(t, 16, SendWQE{Opcode: WRWrite, Length: 4000, SGEs: []SGE{{memBase, 4000, 1}}})
	d := NewDistributions()
	l.q.ctr.Distributions = d
	if n := testing.AllocsPerRun(100, func() { l.round() }); n != 0 || sum(d.Latency[OpWrite].Counts) < 1600 {
		t.Errorf("%v allocations for %d messages", n, sum(d.Latency[OpWrite].Counts))
	}
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
