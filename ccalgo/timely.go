package ccalgo

import (
	"math"
	"time"

	"roced.io/roced/plugin/mono"
)

// TIMELY is Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015. Its rate follows the
// gradient of the round-trip time (section 4.3, algorithm 1). It needs no support of the network or the peer.
type TIMELY struct {
	None
	ewma       float64       // [alpha] weight of a new difference
	beta       float64       // [beta] multiplicative decrease
	delta      float64       // [delta] additive step, bit/s
	tLow       time.Duration // [T_low] RTT below which the rate always increases
	tHigh      time.Duration // [T_high] RTT above which the rate always decreases
	minRTT     time.Duration // [minRTT] normalizes the gradient
	haiAfter   float64       // [N] consecutive falling gradients before N steps at once
	segment    float64       // bytes acknowledged between updates
	line, min  float64       // bit/s
	rate       float64
	prev       time.Duration // previous RTT, 0 for none
	diff       float64       // [rtt_diff] in ns
	falling    float64       // consecutive updates with a gradient not above zero
	sinceBytes float64       // acknowledged since the last update
}

// newTIMELY has the parameters of section 6 of the paper. A flow starts at line rate.
func newTIMELY(r reader) Controller {
	t := &TIMELY{
		ewma:     r.gain("alpha", 0.875),
		beta:     r.gain("beta", 0.8),
		delta:    r.rate("delta_bps", 10e6),
		tLow:     r.Micros("t_low_us", 50),
		tHigh:    r.Micros("t_high_us", 500),
		minRTT:   r.Micros("min_rtt_us", 20),
		haiAfter: r.Value("n", 5, 1, 1e6),
		segment:  r.Value("segment_bytes", 16384, 0, 1e9),
		line:     r.rate("line_rate_bps", 40e9),
		min:      r.rate("min_rate_bps", 10e6),
	}
	t.min = math.Min(t.min, t.line)
	t.Reset(0)
	return t
}

// Reset implements Controller.
func (t *TIMELY) Reset(int) {
	t.rate, t.prev, t.diff, t.falling, t.sinceBytes = t.line, 0, 0, 0, 0
}

// OnAck implements Controller. It takes a round-trip time once a segment has been acknowledged (section 4.1: completions of
// 16 to 64 KB each).
func (t *TIMELY) OnAck(_ mono.Time, s Sample) {
	t.sinceBytes += float64(s.Bytes)
	if s.RTT <= 0 || t.sinceBytes < t.segment {
		return
	}
	t.sinceBytes = 0
	if t.prev == 0 {
		t.prev = s.RTT
		return
	}
	t.diff = float64((1-t.ewma)*t.diff) + float64(t.ewma*float64(s.RTT-t.prev))
	t.prev = s.RTT
	t.update(s.RTT, t.diff/float64(t.minRTT))
}

// update is algorithm 1. HAI (section 4.3) takes N steps at once.
func (t *TIMELY) update(rtt time.Duration, gradient float64) {
	switch {
	case rtt < t.tLow:
		t.rate += t.delta
		t.falling = 0
	case rtt > t.tHigh:
		t.rate *= 1 - float64(t.beta*(1-float64(t.tHigh)/float64(rtt)))
		t.falling = 0
	case gradient <= 0:
		if t.falling++; t.falling >= t.haiAfter {
			t.rate += float64(t.haiAfter * t.delta)
		} else {
			t.rate += t.delta
		}
	default:
		t.rate *= math.Max(1-float64(t.beta*gradient), 0)
		t.falling = 0
	}
	t.rate = math.Min(math.Max(t.rate, t.min), t.line)
}

// Limits implements Controller.
func (t *TIMELY) Limits() (windowBytes, rateBps uint64) { return Unlimited, uint64(t.rate) }
