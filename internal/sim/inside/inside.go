// Package inside tells what transports do inside while a simulation runs: how far out of order packets come,
// what receivers keep for that, and how long round trips are as senders measure them.
package inside

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
)

// Inside is what queue pairs have told so far.
type Inside struct {
	degrees      []uint64 // packets by out-of-order degree, the last entry those beyond
	packets      uint64
	bytes, ahead uint64 // of payload; ahead of a gap
	early        uint64 // packets that were declined

	live     []int // by host: bytes of state now
	conns    []int // by host: connections that are in live
	peak     int   // of live
	peakOne  int   // of one connection
	peakWay  int   // of the requests of one
	peakPool int   // blocks of MELO's pool on a host
	area     float64
	bits     float64 // as area, of bitmaps alone
	lifetime float64

	rtt, excess histogram
	all         []*end
}

// bitmapSlots is L of MP-RDMA (3.3).
const bitmapSlots = 64

// mostDegree bounds the table of degrees.
const mostDegree = 1 << 16

// New returns one for so many hosts.
func New(hosts int) *Inside {
	return &Inside{degrees: make([]uint64, mostDegree+1), live: make([]int, hosts), conns: make([]int, hosts)}
}

// end is a queue pair.
type end struct {
	in          *Inside
	host, bytes int
	bitmap      int // of bytes
	since, born mono.Time
	last        mono.Time
	known, done bool
	sent        []mono.Time // by PSN: when it was sent last
}

// Watch has q tell from now on, until another tracer sees it. Times of packets are kept for round trips
// if it sends at most outstanding of them at once; zero: they are not.
func (in *Inside) Watch(q *nic.QP, outstanding uint32) {
	x := &end{in: in, host: q.Host()}
	if outstanding > 0 {
		size := 1
		for uint32(size) < outstanding {
			size *= 2
		}
		x.sent = make([]mono.Time, size)
	}
	in.all = append(in.all, x)
	q.Trace(x)
}

// Trace implements qp.Tracer.
func (x *end) Trace(now mono.Time, e qp.TraceEvent) {
	x.last = now
	if e.Response {
		return
	}
	switch e.Kind {
	case qp.TraceFootprint:
		x.in.peakWay = max(x.in.peakWay, e.Requests)
		x.size(now, e.Bytes, e.Bitmap)
	case qp.TraceReceived:
		x.in.received(&e)
	case qp.TraceSent:
		x.left(now, &e)
	case qp.TraceAck:
		x.answered(now, &e)
	}
}

func (in *Inside) received(e *qp.TraceEvent) {
	if e.Drop != qp.Accepted && e.Drop != qp.DropOutOfOrder || e.Verdict == reorder.Duplicate {
		return
	}
	in.packets++
	in.degrees[min(e.Degree, mostDegree)]++
	if e.Drop != qp.Accepted {
		if e.Degree < bitmapSlots { // could be tracked, but was declined
			in.early++
		}
		return
	}
	in.bytes += uint64(e.Length)
	if e.Verdict == reorder.Held {
		in.ahead += uint64(e.Length)
	}
}

func (x *end) left(now mono.Time, e *qp.TraceEvent) {
	for i := range min(int(e.Span), len(x.sent)) {
		x.sent[x.place(e.PSN.Add(i))] = now
	}
}

func (x *end) place(psn bth.PSN) int { return int(psn.Uint32()) & (len(x.sent) - 1) }

// answered compares the sample of an acknowledgement with the truth: how long ago the last packet that it tells of
// was sent.
func (x *end) answered(now mono.Time, e *qp.TraceEvent) {
	if e.RTT <= 0 {
		return
	}
	x.in.rtt.add(uint64(e.RTT))
	if len(x.sent) == 0 {
		return
	}
	newest := e.Feedback.Expected.Add(-1)
	if e.Feedback.HasSACK {
		newest = e.Feedback.SACK
	}
	truth := now.Sub(x.sent[x.place(newest)])
	x.in.excess.add(uint64(max(e.RTT-truth, truth-e.RTT)))
}

// size notes a new size of the state, and how much of it are bits of packets.
func (x *end) size(now mono.Time, n, bitmap int) {
	in := x.in
	if !x.known {
		x.known, x.born, x.since = true, now, now
		in.conns[x.host]++
	}
	in.area += float64(x.bytes) * float64(now-x.since)
	in.bits += float64(x.bitmap) * float64(now-x.since)
	in.live[x.host] += n - x.bytes
	x.bytes, x.bitmap, x.since = n, bitmap, now
	in.peakOne = max(in.peakOne, n)
	in.peak = max(in.peak, in.live[x.host])
	in.peakPool = max(in.peakPool, (in.live[x.host]-meloState*in.conns[x.host])/meloBlock)
}

// What a connection of MELO has besides blocks, in each direction 20 bytes, and for each block of eight
// bits (3.2.4).
const meloState, meloBlock = 2 * 20, 3

// Closed implements qp.Tracer.
func (x *end) Closed() { x.end(x.last) }

func (x *end) end(now mono.Time) {
	x.sent = nil
	if x.done || !x.known {
		return
	}
	x.done = true
	x.size(now, x.bytes, x.bitmap)
	x.in.lifetime += float64(now - x.born)
	x.in.live[x.host] -= x.bytes
	x.in.conns[x.host]--
}

// Finish ends what is still open. The simulation has ended at now.
func (in *Inside) Finish(now mono.Time) {
	for _, x := range in.all {
		x.end(max(now, x.last))
	}
	in.all = nil
}

// ForgetDegrees begins to count out-of-order degrees anew, when what is of interest begins.
func (in *Inside) ForgetDegrees() {
	clear(in.degrees)
	in.packets = 0
}

// Degree is the out-of-order degree that a part of all packets, from 0 to 1, do not exceed; NaN without packets.
func (in *Inside) Degree(part float64) float64 {
	return percentile(in.degrees, in.packets, part)
}

// Early is how many packets were declined that could have been tracked.
func (in *Inside) Early() float64 { return float64(in.early) }

// Ahead is the part of the payload that came ahead of a gap.
func (in *Inside) Ahead() float64 { return float64(in.ahead) / float64(in.bytes) }

// Pool is how many blocks of MELO's pool were in use at most on a host.
func (in *Inside) Pool() int { return in.peakPool }

// State is how many bytes receivers had for a connection to track what comes, at most and in the mean over its life.
func (in *Inside) State() (most int, mean float64) { return in.peakOne, in.area / in.lifetime }

// StateOfRequests is how many they had at most for the requests of a connection, without those for READ responses.
func (in *Inside) StateOfRequests() int { return in.peakWay }

// Host is how many they had on a host, at most, and in the mean over hosts and a time in seconds.
func (in *Inside) Host(seconds float64) (most int, mean float64) {
	return in.peak, in.area / (seconds * 1e9) / float64(len(in.live))
}

// Bitmaps is how many bytes of bitmaps alone there were on a host, in the mean over hosts and a time in seconds.
func (in *Inside) Bitmaps(seconds float64) float64 {
	return in.bits / (seconds * 1e9) / float64(len(in.live))
}

// Result is what Finish has ended.
func (in *Inside) Result() *result.Inside {
	most, mean := in.State()
	host, _ := in.Host(1)
	return &result.Inside{
		Packets: in.packets, Ahead: zero(in.Ahead()),
		Degree: result.Distribution{Count: int(in.packets), Mean: mean0(in.degrees, in.packets), P50: zero(in.Degree(0.5)), P95: zero(in.Degree(0.95)),
			P99: zero(in.Degree(0.99)), P999: zero(in.Degree(0.999)), Max: zero(in.Degree(1))},
		StateMost: most, StateMean: zero(mean), HostStateMost: host,
		RTT: in.rtt.describe(), RTTError: in.excess.describe(),
	}
}
