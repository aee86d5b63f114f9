// Package inside measures the internal state of transports during a simulation: how far out of order packets
// arrive, the tracking state of receivers, and the round-trip times that senders measure.
package inside

import (
	"roced.io/roced/bth"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/reorder"
)

// Inside is what has been measured so far.
type Inside struct {
	degrees      []uint64 // packets by out-of-order degree; the last entry has all higher degrees
	packets      uint64
	bytes, ahead uint64 // payload bytes, and those ahead of a gap
	early        uint64 // refused packets

	live     []int // by host: current bytes of state
	conns    []int // by host: connections in live
	peak     int   // of live
	peakOne  int   // of one connection
	peakWay  int   // of the requests of one connection
	peakPool int   // blocks of MELO's pool on a host
	area     float64
	bits     float64 // like area, of bitmaps alone
	lifetime float64

	rtt, excess histogram
	all         []*end
}

// bitmapSlots is L of MP-RDMA (3.3).
const bitmapSlots = 64

// mostDegree is the size of the table of degrees.
const mostDegree = 1 << 16

// New returns an Inside for a number of hosts.
func New(hosts int) *Inside {
	return &Inside{degrees: make([]uint64, mostDegree+1), live: make([]int, hosts), conns: make([]int, hosts)}
}

// end is a queue pair.
type end struct {
	in          *Inside
	host, bytes int
	bitmap      int // part of bytes
	since, born mono.Time
	last        mono.Time
	known, done bool
	sent        []mono.Time // by PSN: when it was last sent
}

// Watch measures q until another tracer replaces this one. outstanding is the maximum number of packets in flight,
// whose send times it keeps to verify round-trip times. Zero: it does not verify them.
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
		if e.Degree < bitmapSlots { // it could have been tracked
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

// answered compares the round-trip time of an acknowledgement with the true one: the time since the newest
// acknowledged packet was sent.
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

// size records a change of the state, and of the part that is bitmaps.
func (x *end) size(now mono.Time, n, bitmap int) {
	in := x.in
	if !x.known {
		x.known, x.born, x.since = true, now, now
		in.conns[x.host]++
	}
	in.area += float64(float64(x.bytes) * float64(now-x.since))
	in.bits += float64(float64(x.bitmap) * float64(now-x.since))
	in.live[x.host] += n - x.bytes
	x.bytes, x.bitmap, x.since = n, bitmap, now
	in.peakOne = max(in.peakOne, n)
	in.peak = max(in.peak, in.live[x.host])
	in.peakPool = max(in.peakPool, (in.live[x.host]-meloState*in.conns[x.host])/meloBlock)
}

// A connection of MELO has 20 bytes for each direction besides blocks, and 3 bytes for each block of eight bits
// (3.2.4).
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

// Finish ends all measurements at now, the end of the simulation.
func (in *Inside) Finish(now mono.Time) {
	for _, x := range in.all {
		x.end(max(now, x.last))
	}
	in.all = nil
}

// ForgetDegrees restarts the count of out-of-order degrees.
func (in *Inside) ForgetDegrees() {
	clear(in.degrees)
	in.packets = 0
}

// Degree returns the out-of-order degree that a part of all packets, from 0 to 1, does not exceed; NaN without
// packets.
func (in *Inside) Degree(part float64) float64 {
	return percentile(in.degrees, in.packets, part)
}

// Early returns the number of refused packets that could have been tracked.
func (in *Inside) Early() float64 { return float64(in.early) }

// Ahead returns the part of the payload that arrived ahead of a gap.
func (in *Inside) Ahead() float64 { return float64(in.ahead) / float64(in.bytes) }

// Pool returns the maximum number of blocks of MELO's pool in use on a host.
func (in *Inside) Pool() int { return in.peakPool }

// State returns the bytes of a connection's tracking state: the maximum, and the mean over its life.
func (in *Inside) State() (most int, mean float64) { return in.peakOne, in.area / in.lifetime }

// StateOfRequests returns the maximum for the requests of a connection, without READ responses.
func (in *Inside) StateOfRequests() int { return in.peakWay }

// Host returns the bytes of tracking state on a host: the maximum, and the mean over hosts and a time in seconds.
func (in *Inside) Host(seconds float64) (most int, mean float64) {
	return in.peak, in.area / (seconds * 1e9) / float64(len(in.live))
}

// Bitmaps returns the bytes of bitmaps on a host, as the mean over hosts and a time in seconds.
func (in *Inside) Bitmaps(seconds float64) float64 {
	return in.bits / (seconds * 1e9) / float64(len(in.live))
}

// Result returns the measurements; call Finish before.
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
