package papers

import (
	"math"

	"roced/mono"
	"roced/qp"
	"roced/reorder"
	"roced/sim/engine"
	"roced/sim/scenario"
)

// tracks is what receivers' queue pairs tell of what they track.
type tracks struct {
	degrees      []uint64 // packets by out-of-order degree, the last entry those beyond
	packets      uint64
	bytes, ahead uint64 // of payload; ahead of a gap
	early        uint64 // packets that were declined

	live     []int // by host: bytes of state now
	conns    []int // by host: connections that are in live
	peak     int   // of live
	peakOne  int   // of one connection
	peakPool int   // blocks of MELO's pool on a host
	area     float64
	lifetime float64
	all      []*track
}

// bitmapSlots is L of MP-RDMA (3.3).
const bitmapSlots = 64

// mostDegree bounds the table of degrees.
const mostDegree = 1 << 16

func newTracks(hosts int) *tracks {
	return &tracks{degrees: make([]uint64, mostDegree+1), live: make([]int, hosts), conns: make([]int, hosts)}
}

// track is one connection's.
type track struct {
	t           *tracks
	host, bytes int
	since, born mono.Time
	last        mono.Time
	known, done bool
}

// open returns the tracer of a new connection.
func (t *tracks) open(host int) *track {
	x := &track{t: t, host: host}
	t.all = append(t.all, x)
	return x
}

// Trace implements qp.Tracer.
func (x *track) Trace(now mono.Time, e qp.TraceEvent) {
	x.last = now
	switch t := x.t; {
	case e.Kind == qp.TraceFootprint && !e.Response:
		x.size(now, e.Bytes)
	case e.Kind == qp.TraceReceived && !e.Response && (e.Drop == qp.Accepted || e.Drop == qp.DropOutOfOrder) && e.Verdict != reorder.Duplicate:
		t.packets++
		t.degrees[min(e.Degree, mostDegree)]++
		if e.Drop != qp.Accepted {
			if e.Degree < bitmapSlots { // could be tracked, but was declined
				t.early++
			}
			return
		}
		t.bytes += uint64(e.Length)
		if e.Verdict == reorder.Held {
			t.ahead += uint64(e.Length)
		}
	}
}

// size notes a new size of the state.
func (x *track) size(now mono.Time, n int) {
	t := x.t
	if !x.known {
		x.known, x.born, x.since = true, now, now
		t.conns[x.host]++
	}
	t.area += float64(x.bytes) * float64(now-x.since)
	t.live[x.host] += n - x.bytes
	x.bytes, x.since = n, now
	t.peakOne = max(t.peakOne, n)
	t.peak = max(t.peak, t.live[x.host])
	t.peakPool = max(t.peakPool, (t.live[x.host]-meloState*t.conns[x.host])/meloBlock)
}

// What a connection of MELO has besides blocks, in each direction 20 bytes, and for each block of eight
// bits (3.2.4).
const meloState, meloBlock = 2 * 20, 3

// Closed implements qp.Tracer.
func (x *track) Closed() { x.end(x.last) }

func (x *track) end(now mono.Time) {
	if x.done {
		return
	}
	x.done = true
	x.size(now, x.bytes)
	x.t.lifetime += float64(now - x.born)
	x.t.live[x.host] -= x.bytes
	x.t.conns[x.host]--
}

func (t *tracks) number(n *scenario.Number, ended engine.Time) float64 {
	now := ended.Mono()
	for _, x := range t.all {
		if !x.done && x.known {
			x.end(max(now, x.last))
		}
	}
	switch n.Of {
	case "degree":
		return t.degree(n.Take)
	case "early":
		return float64(t.early)
	case "copied":
		return 100 * float64(t.ahead) / float64(t.bytes)
	case "pool":
		// What a connection has lost to another one it says with its next packet only; then the pool has
		// been full.
		return min(100*float64(t.peakPool)*8/1024, 100)
	case "state":
		if n.Take == "max" {
			return float64(t.peakOne)
		}
		return t.area / t.lifetime
	case "state-nic":
		if n.Take == "max" {
			return float64(t.peak)
		}
		return t.area / (ended.Seconds() * 1e9) / float64(len(t.live))
	}
	return math.NaN()
}

// degree is a percentile of the out-of-order degree, or the largest.
func (t *tracks) degree(take string) float64 {
	part := map[string]float64{"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}[take]
	if part == 0 {
		part = 1
	}
	seen := uint64(0)
	for d, n := range t.degrees {
		if seen += n; seen > 0 && float64(seen) >= part*float64(t.packets) {
			return float64(d)
		}
	}
	return math.NaN()
}
