package ccalgo

import (
	"math"
	"time"

	"roced.io/roced/plugin/mono"
)

// MPRDMA is the congestion window of Lu et al., "Multi-Path Transport for RDMA in Datacenters", NSDI 2018, section 3.2: one
// window for all virtual paths, which reacts to the mark of each acknowledgement. path.MPRDMA selects the paths.
//
// The paper has one acknowledgement per packet. An acknowledgement of several packets counts as that many.
type MPRDMA struct {
	None
	increase float64 // [1/cwnd] numerator, packets
	decrease float64 // [1/2] packets
	initial  float64 // [IW] packets; 0: one BDP
	line     float64 // bit/s, for the BDP
	baseRTT  time.Duration
	idleRTTs float64 // restart from IW after that idle time, 0: never
	always   bool    // the window grows even if the sender does not fill it
	min, max float64 // packets
	mtu      float64
	cwnd     float64       // packets
	rtt      time.Duration // latest measurement
	lastSent mono.Time
	started  bool // a packet has been sent
	// The maximum in flight in this round trip and in the one before, in packets, and the start of this one.
	peak, peakBefore float64
	roundAt          mono.Time
}

// mostIW limits an IW of one BDP. The paper's BDP of 40 Gb/s and 16 us is 54 packets of 1500 bytes ("at start up, each
// connection uses 54 virtual paths", 5.2). That is less than the slots of the receiver's bitmap (L = 64), which drops
// packets too far ahead.
const mostIW = 54

// newMPRDMA has the parameters of section 3.2 and of "Connection restart" (three idle RTTs); IW is one BDP (section 5.1).
func newMPRDMA(r reader) Controller {
	m := &MPRDMA{
		increase: r.Value("increase_packets", 1, 0, 1e3),
		decrease: r.Value("decrease_packets", 0.5, 0, 1e3),
		initial:  r.Value("iw_packets", 0, 0, 1e6),
		line:     r.rate("line_rate_bps", 40e9),
		baseRTT:  r.Micros("base_rtt_us", 16),
		idleRTTs: r.Value("idle_rtts", 3, 0, 1e6),
		min:      r.Value("min_cwnd_packets", 1, 1, 1e6),
		max:      r.Value("max_cwnd_packets", 4096, 1, 1e6),
		always:   r.Bool("grow_unfilled", false),
	}
	m.min = min(m.min, m.max)
	m.Reset(1024)
	return m
}

// Reset implements Controller.
func (m *MPRDMA) Reset(mtu int) {
	m.mtu = float64(max(mtu, 1))
	m.rtt, m.lastSent, m.started = m.baseRTT, 0, false
	m.roundAt = 0
	m.restart()
}

// restart sets the window to IW.
func (m *MPRDMA) restart() {
	m.cwnd, m.peak, m.peakBefore = m.initial, 0, 0
	if m.cwnd == 0 {
		m.cwnd = min(m.line/8*m.baseRTT.Seconds()/m.mtu, mostIW)
	}
	m.clamp()
}

// ECNCapable implements Controller.
func (*MPRDMA) ECNCapable() bool { return true }

// OnSent implements Controller. It restarts after an idle time ("Connection restart").
func (m *MPRDMA) OnSent(now mono.Time, bytes, inflight uint32) {
	idle := m.started && inflight <= bytes
	if idle && m.idleRTTs > 0 && float64(now.Sub(m.lastSent)) > m.idleRTTs*float64(m.rtt) {
		m.restart()
	}
	m.lastSent, m.started = now, true
	if now.Sub(m.roundAt) > m.rtt {
		m.peak, m.peakBefore, m.roundAt = 0, m.peak, now
	}
	m.peak = max(m.peak, float64(inflight)/m.mtu)
}

// OnAck implements Controller (section 3.2): the window grows by 1/cwnd or shrinks by 1/2 for each packet acknowledged.
//
// The window grows only if the sender filled it in this round trip or in the one before. The link of the NIC, the
// application or a synchronise operation may be slower: "use it or lose it" (3.5), as in TCP (RFC 2861). Otherwise it would
// grow without limit where no packet is marked. Then cwnd/RTT would no longer be the rate, which determines the delay of
// synchronise operations (3.4). Packets would wait at the NIC, each for a path that an acknowledgement named long ago. The
// paper has no such rule; the parameter grow_unfilled removes it.
func (m *MPRDMA) OnAck(_ mono.Time, s Sample) {
	if s.RTT > 0 {
		m.rtt = s.RTT
	}
	packets := math.Ceil(float64(s.Bytes) / m.mtu)
	switch {
	case s.ECN:
		m.cwnd -= float64(m.decrease * packets)
	case m.always || max(m.peak, m.peakBefore) > m.cwnd-2: // less 1 for the fraction and 1 for growth since
		m.cwnd += m.increase * packets / m.cwnd
	}
	m.clamp()
}

// Shrink implements Shrinker.
func (m *MPRDMA) Shrink(packets int) {
	m.cwnd -= float64(packets)
	m.clamp()
}

func (m *MPRDMA) clamp() { m.cwnd = min(max(m.cwnd, m.min), m.max) }

// Limits implements Controller.
func (m *MPRDMA) Limits() (windowBytes, rateBps uint64) { return uint64(m.cwnd * m.mtu), Unlimited }
