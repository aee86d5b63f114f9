package ccalgo

import (
	"math"

	"roced.io/roced/plugin/mono"
)

// DCTCP is Alizadeh et al., "Data Center TCP", SIGCOMM 2010, section 3. Its window shrinks in proportion to the share of
// marked bytes, which it estimates once per window. RFC 8257 and RFC 5681 define the parts that the paper leaves to TCP:
// slow start, then growth by one packet per round trip, half the window after a loss, one packet after a timeout.
type DCTCP struct {
	None
	g        float64 // [g] gain of alpha
	initial  float64 // packets
	min, max float64 // packets

	mtu      float64
	cwnd     float64 // bytes
	ssthresh float64 // bytes
	alpha    float64 // [alpha] estimate of the marked share
	left     float64 // bytes of the observation window not acknowledged yet
	acked    float64 // bytes acknowledged in the observation window
	marked   float64 // part of acked with congestion experienced
	inFlight float64 // bytes in flight
	answered float64 // bytes in flight since before the last cut; their marks cause no further cut
}

// newDCTCP has the g of the paper (section 3.3: 1/16) and the initial window of RFC 6928. The other windows are choices of
// this implementation.
func newDCTCP(r reader) Controller {
	d := &DCTCP{
		g:       r.gain("g", 1.0/16),
		initial: r.Value("initial_cwnd_packets", 10, 1, 1e6),
		min:     r.Value("min_cwnd_packets", 1, 1, 1e6),
		max:     r.Value("max_cwnd_packets", 4096, 1, 1e6),
	}
	d.min = math.Min(d.min, d.max)
	d.Reset(1024)
	return d
}

// Reset implements Controller: alpha is 1 at the start (RFC 8257 section 3.3).
func (d *DCTCP) Reset(mtu int) {
	d.mtu = float64(max(mtu, 1))
	d.cwnd, d.ssthresh, d.alpha = d.initial*d.mtu, math.Inf(1), 1
	d.inFlight, d.answered = 0, 0
	d.clamp()
	d.newWindow(d.cwnd)
}

// newWindow begins an observation window of that many bytes.
func (d *DCTCP) newWindow(bytes float64) { d.left, d.acked, d.marked = bytes, 0, 0 }

// ECNCapable implements Controller.
func (*DCTCP) ECNCapable() bool { return true }

// OnSent implements Controller.
func (d *DCTCP) OnSent(_ mono.Time, _, inflight uint32) { d.inFlight = float64(inflight) }

// OnAck implements Controller. A mark cuts the window (equation 2), but only once for the bytes in flight at that time (RFC
// 8257 section 3.3). At the end of an observation window, which is independent of the cuts, alpha is updated (equation 1).
func (d *DCTCP) OnAck(_ mono.Time, s Sample) {
	n := float64(s.Bytes)
	d.acked += n
	d.inFlight = float64(s.InFlight)
	answered := d.answered > 0 // the acknowledged bytes were in flight at the last cut
	d.answered = math.Max(d.answered-n, 0)
	if s.ECN {
		d.marked += n
	}
	switch {
	case answered:
	case s.ECN:
		d.reduce(d.cwnd * (1 - float64(d.alpha/2)))
	default:
		d.grow(n)
	}
	if d.left -= n; d.left > 0 || d.acked == 0 {
		return
	}
	d.alpha = float64((1-d.g)*d.alpha) + d.g*d.marked/d.acked
	d.newWindow(float64(s.InFlight))
}

func (d *DCTCP) grow(acked float64) {
	if d.cwnd < d.ssthresh {
		d.cwnd += acked // slow start, RFC 5681 section 3.1
	} else {
		d.cwnd += d.mtu * acked / d.cwnd
	}
	d.clamp()
}

// reduce reduces the window, unless it was reduced for the bytes in flight already.
func (d *DCTCP) reduce(to float64) {
	if d.answered > 0 {
		return
	}
	d.answered = d.inFlight
	d.cwnd = to
	d.clamp()
	d.ssthresh = d.cwnd
}

// OnLoss implements Controller (RFC 8257 section 3.5: as in TCP).
func (d *DCTCP) OnLoss(_ mono.Time, _ uint32, timeout bool) {
	d.reduce(d.cwnd / 2)
	if timeout {
		d.cwnd = d.mtu
		d.clamp()
		d.inFlight, d.answered = 0, 0 // packets in flight count as lost
		d.newWindow(d.cwnd)
	}
}

func (d *DCTCP) clamp() { d.cwnd = math.Min(math.Max(d.cwnd, d.min*d.mtu), d.max*d.mtu) }

// Limits implements Controller.
func (d *DCTCP) Limits() (windowBytes, rateBps uint64) { return uint64(d.cwnd), Unlimited }
