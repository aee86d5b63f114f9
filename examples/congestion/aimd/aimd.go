// Package aimd is an example of a congestion control. Its window grows by one packet
// per round trip. It halves when the round trip exceeds a target, and when a packet
// was marked or lost.
package aimd

import (
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

// Name is the name of the algorithm in configurations and scenarios.
const Name = "aimd"

// Register adds the algorithm to roced and rocesim.
func Register() { ccalgo.Register(Name, New) }

// controller is the state of one queue pair. It inherits the methods that it does not
// need, such as OnCNP, from ccalgo.None.
type controller struct {
	ccalgo.None
	target   time.Duration // longest round trip without a queue
	max      float64       // window in packets
	mtu      float64
	window   float64 // in bytes
	halvedAt mono.Time
	rtt      time.Duration
}

// New makes a controller. In the simulator, the base round trip is that of the
// topology.
func New(r *param.Reader) ccalgo.Controller {
	base := r.Micros("base_rtt_us", 16)
	return &controller{
		target: time.Duration(float64(base) * r.Value("target", 1.5, 1, 1000)),
		max:    r.Value("max_packets", 256, 1, 1e6),
	}
}

// Reset sets the window to ten packets.
func (c *controller) Reset(mtu int) {
	c.mtu = float64(mtu)
	c.window = min(10, c.max) * c.mtu
	c.halvedAt, c.rtt = 0, 0
}

// ECNCapable returns true, so that switches mark packets instead of dropping them.
func (c *controller) ECNCapable() bool { return true }

// OnAck increases the window by a packet per round trip, or halves it.
func (c *controller) OnAck(now mono.Time, s ccalgo.Sample) {
	if s.RTT > 0 {
		c.rtt = s.RTT
	}
	if s.ECN || s.RTT > c.target {
		c.halve(now)
		return
	}
	c.window = min(c.window+c.mtu*float64(s.Bytes)/c.window, c.max*c.mtu)
}

// OnLoss halves the window.
func (c *controller) OnLoss(now mono.Time, _ uint32, _ bool) { c.halve(now) }

// halve halves the window at most once per round trip, because all packets in flight
// report the same queue.
func (c *controller) halve(now mono.Time) {
	if c.halvedAt != 0 && now.Sub(c.halvedAt) < c.rtt {
		return
	}
	c.halvedAt = now
	c.window = max(c.window/2, c.mtu)
}

// Limits returns the window, and no rate limit.
func (c *controller) Limits() (windowBytes, rateBps uint64) {
	return uint64(c.window), ccalgo.Unlimited
}
