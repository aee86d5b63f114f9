package ccalgo

import (
	"math"
	"time"

	"roced.io/roced/plugin/mono"
)

// Swift is Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter", SIGCOMM 2020. Its
// window keeps the round-trip time at a target (section 3.1, algorithm 1). Windows are in packets; pacing implements a
// window of less than one packet (section 3.1).
//
// It controls the fabric delay, for which it takes the whole measured round trip. The paper separates the delay in the
// peer's host (endpoint window), but the acknowledgements of standard RC cannot carry it.
type Swift struct {
	None
	ai         float64       // [ai] additive increase, packets
	beta       float64       // [beta] multiplicative decrease
	maxMDF     float64       // [max_mdf] largest share of one decrease
	base       time.Duration // [base_target]
	hop        time.Duration // [h-bar] scaling by hops
	hops       float64       // [#hops], known from the topology
	fsAlpha    float64       // [alpha] of flow scaling, from the parameters below
	fsBeta     float64       // [beta] of flow scaling
	fsRange    time.Duration // [fs_range] maximum that flow scaling adds
	resetAfter int           // [RETX_RESET_THRESHOLD] consecutive timeouts
	min, max   float64       // [min_cwnd, max_cwnd]
	initial    float64

	mtu          float64
	cwnd         float64
	rtt          time.Duration // latest measurement
	decreased    mono.Time     // [t_last_decrease]
	hasDecreased bool
	retransmit   int // timeouts since the last acknowledgement
}

// newSwift has the parameters of the paper. Its section 3 gives no numbers for the target: 50 us is the base RTT of Flor's
// Swift-like control (section 6 of that paper), and flow scaling ends at 0.1 and 100 packets.
func newSwift(r reader) Controller {
	s := &Swift{
		ai:         r.Value("ai_packets", 1, 0, 1e3),
		beta:       r.gain("beta", 0.8),
		maxMDF:     r.gain("max_mdf", 0.5),
		base:       r.Micros("base_target_us", 50),
		hop:        time.Duration(r.Value("hop_scaling_us", 1, 0, 1e6) * 1e3),
		hops:       r.Value("hops", 0, 0, 255),
		fsRange:    time.Duration(r.Value("fs_range_us", 100, 0, 1e7) * 1e3),
		resetAfter: int(r.Value("retx_reset_threshold", 5, 1, 1e6)),
		min:        r.Value("min_cwnd_packets", 0.01, 1e-4, 1e6),
		max:        r.Value("max_cwnd_packets", 1024, 1, 1e6),
		initial:    r.Value("initial_cwnd_packets", 10, 1e-4, 1e6),
	}
	lo := r.Value("fs_min_cwnd_packets", 0.1, 1e-3, 1e6)
	hi := r.Value("fs_max_cwnd_packets", 100, 1e-3, 1e6)
	if hi > lo { // otherwise targets do not scale with flows
		s.fsAlpha = float64(s.fsRange) / (1/math.Sqrt(lo) - 1/math.Sqrt(hi))
		s.fsBeta = -s.fsAlpha / math.Sqrt(hi)
	}
	s.min = math.Min(s.min, s.max)
	s.Reset(1024)
	return s
}

// Reset implements Controller.
func (s *Swift) Reset(mtu int) {
	s.mtu = float64(max(mtu, 1))
	s.cwnd = math.Min(math.Max(s.initial, s.min), s.max)
	s.rtt, s.decreased, s.hasDecreased, s.retransmit = 0, 0, false, 0
}

// targetDelay scales the target with the path and with the number of flows, which a small window indicates (section 3.2).
func (s *Swift) targetDelay() time.Duration {
	flows := s.fsAlpha/math.Sqrt(s.cwnd) + s.fsBeta
	flows = math.Max(0, math.Min(flows, float64(s.fsRange)))
	return s.base + time.Duration(float64(s.hops*float64(s.hop))+flows)
}

// OnAck implements Controller (algorithm 1, "on receiving ACK").
func (s *Swift) OnAck(now mono.Time, a Sample) {
	s.retransmit = 0
	if a.RTT <= 0 {
		return
	}
	s.rtt = a.RTT
	target := s.targetDelay()
	if s.rtt >= target {
		over := float64(s.rtt-target) / float64(s.rtt)
		s.decrease(now, math.Min(s.beta*over, s.maxMDF))
		return
	}
	acked := float64(a.Bytes) / s.mtu
	if s.cwnd >= 1 {
		s.cwnd += float64(s.ai / s.cwnd * acked)
	} else {
		s.cwnd += float64(s.ai * acked)
	}
	s.clamp()
}

// OnLoss implements Controller: recovery and timeouts cause the largest decrease (section 3.4). Consecutive timeouts lead
// to the smallest window.
func (s *Swift) OnLoss(now mono.Time, _ uint32, timeout bool) {
	if !timeout {
		s.retransmit = 0
		s.decrease(now, s.maxMDF)
		return
	}
	if s.retransmit++; s.retransmit < s.resetAfter {
		s.decrease(now, s.maxMDF)
		return
	}
	s.cwnd, s.decreased, s.hasDecreased = s.min, now, true
}

// decrease reduces the window by a share, at most once per round-trip time.
func (s *Swift) decrease(now mono.Time, share float64) {
	if s.hasDecreased && now.Sub(s.decreased) < s.rtt {
		return
	}
	s.cwnd *= 1 - share
	s.clamp()
	s.decreased, s.hasDecreased = now, true
}

func (s *Swift) clamp() { s.cwnd = math.Min(math.Max(s.cwnd, s.min), s.max) }

// Limits implements Controller. A window of less than one packet becomes one packet per rtt/cwnd.
func (s *Swift) Limits() (windowBytes, rateBps uint64) {
	if s.cwnd >= 1 || s.rtt <= 0 {
		return uint64(math.Max(s.cwnd, 1) * s.mtu), Unlimited
	}
	return uint64(s.mtu), uint64(math.Max(s.cwnd*s.mtu*8/s.rtt.Seconds(), 1))
}
