// Package aimd is a congestion control of our own: a window that grows by a packet each round trip,
// and halves when the round trip takes longer than a target, or a packet was marked or lost.
package aimd

import (
	"time"

	"roced.io/roced/ccalgo"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

// Name is what configurations and scenarios call it.
const Name = "aimd"

// Register makes it known to roced and rocesim.
func Register() { ccalgo.Register(Name, New) }

// controller has the state of one queue pair. What it does not care about, such as CNPs, it has
// from ccalgo.None.
type controller struct {
	ccalgo.None
	target   time.Duration // more than this is a queue
	max      float64       // window in packets
	mtu      float64
	window   float64 // in bytes
	halvedAt mono.Time
	rtt      time.Duration
}

// New makes a controller. The base round trip comes from the topology in the simulator.
func New(r *param.Reader) ccalgo.Controller {
	base := r.Micros("base_rtt_us", 16)
	return &controller{
		target: time.Duration(float64(base) * r.Value("target", 1.5, 1, 1000)),
		max:    r.Value("max_packets", 256, 1, 1e6),
	}
}

// Reset begins anew, with ten packets.
func (c *controller) Reset(mtu int) {
	c.mtu = float64(mtu)
	c.window = min(10, c.max) * c.mtu
	c.halvedAt, c.rtt = 0, 0
}

// ECNCapable asks switches to mark packets rather than to drop them.
func (c *controller) ECNCapable() bool { return true }

// OnAck grows by a packet each window, or halves.
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

// OnLoss halves.
func (c *controller) OnLoss(now mono.Time, _ uint32, _ bool) { c.halve(now) }

// halve does so at most once a round trip: what is in flight then tells of the same queue.
func (c *controller) halve(now mono.Time) {
	if c.halvedAt != 0 && now.Sub(c.halvedAt) < c.rtt {
		return
	}
	c.halvedAt = now
	c.window = max(c.window/2, c.mtu)
}

// Limits is the window, and no rate.
func (c *controller) Limits() (windowBytes, rateBps uint64) {
	return uint64(c.window), ccalgo.Unlimited
}
