package ccalgo

import (
	"math"

	"roced.io/roced/plugin/mono"
)

// Reno is TCP's additive increase and multiplicative decrease, RFC 5681: slow start, one packet per round trip, half of the
// data in flight after a loss, one packet after a timeout. Recovery is the transport's; no window grows until all packets
// in flight at the loss are acknowledged (RFC 6582). As in Linux, each acknowledged byte counts, the part beyond ssthresh
// grows the window linearly, and a window that does not limit the sender does not grow (RFC 7661 4.1).
type Reno struct {
	None
	initial  float64 // packets
	min, max float64 // packets

	mtu      float64
	cwnd     float64 // bytes
	ssthresh float64 // bytes
	inFlight float64 // bytes
	recover  float64 // bytes in flight at the last loss, not acknowledged yet
}

// newReno has the initial window of RFC 6928 and, as RFC 5681 equation 4, at least two packets after a loss. The greatest
// window is a choice of this implementation.
func newReno(r reader) Controller {
	c := &Reno{
		initial: r.Value("initial_cwnd_packets", 10, 1, 1e6),
		min:     r.Value("min_ssthresh_packets", 2, 1, 1e6),
		max:     r.Value("max_cwnd_packets", 4096, 1, 1e6),
	}
	c.min = math.Min(c.min, c.max)
	c.Reset(1024)
	return c
}

// Reset implements Controller.
func (c *Reno) Reset(mtu int) {
	c.mtu = float64(max(mtu, 1))
	c.cwnd, c.ssthresh = math.Min(c.initial, c.max)*c.mtu, math.Inf(1)
	c.inFlight, c.recover = 0, 0
}

// OnSent implements Controller.
func (c *Reno) OnSent(_ mono.Time, _, inflight uint32) { c.inFlight = float64(inflight) }

// OnAck implements Controller.
func (c *Reno) OnAck(_ mono.Time, s Sample) {
	acked, before := float64(s.Bytes), float64(s.InFlight)+float64(s.Bytes)
	c.inFlight = float64(s.InFlight)
	if c.recover > 0 {
		c.recover = math.Max(c.recover-acked, 0)
		return
	}
	if c.cwnd < c.ssthresh && c.cwnd < 2*before {
		slow := math.Min(acked, c.ssthresh-c.cwnd)
		c.cwnd, acked = c.cwnd+slow, acked-slow
	}
	if c.cwnd >= c.ssthresh && before+c.mtu > c.cwnd {
		c.cwnd += c.mtu * acked / c.cwnd
	}
	c.cwnd = math.Min(c.cwnd, c.max*c.mtu)
}

// OnLoss implements Controller: one reduction for all losses among the packets in flight (RFC 6582), equation 4 of RFC 5681.
// A timeout begins slow start.
func (c *Reno) OnLoss(_ mono.Time, _ uint32, timeout bool) {
	if c.recover == 0 {
		c.ssthresh = math.Max(c.inFlight/2, c.min*c.mtu)
		c.cwnd, c.recover = math.Min(c.cwnd, c.ssthresh), c.inFlight
	}
	if timeout {
		c.cwnd, c.recover, c.inFlight = c.mtu, 0, 0
	}
}

// Limits implements Controller.
func (c *Reno) Limits() (windowBytes, rateBps uint64) { return uint64(c.cwnd), Unlimited }
