package ccalgo

import (
	"math"

	"roced.io/roced/plugin/mono"
)

// HPCC is Li et al., "HPCC: High Precision Congestion Control", SIGCOMM 2019. Switches report the load of each link; the
// sender keeps the bytes in flight on the most loaded one below its bandwidth-delay product (section 3, algorithm 1). Names
// in brackets are the paper's.
type HPCC struct {
	None
	line     float64 // [B] of the NIC in bytes per second
	trip     float64 // [T] base round-trip time in seconds
	eta      float64
	maxStage int
	ai       float64 // [W_AI]
	min      float64 // smallest window

	window float64 // [W]
	base   float64 // [W^c], changes once per round trip
	load   float64 // [U] normalized bytes in flight
	stage  int     // [incStage]
	left   float64 // bytes to acknowledge before the next change of base [lastUpdateSeq]

	last  Telemetry // [L]
	next  Telemetry // of the acknowledgement that OnAck is about to report
	fresh bool      // next is valid
}

// newHPCC has the parameters of section 5.1. The authors' simulator confirms them (alibaba-edu/High-Precision-Congestion-Control,
// commit 9f4be2a): RdmaHw has eta 0.95 and maxStage 5, mix/config.txt an increase of 50 Mb/s, 81 bytes in 13 us. The paper gives no
// smallest rate; config.txt has MIN_RATE 100 Mb/s.
func newHPCC(r reader) Controller {
	h := &HPCC{
		line:     r.rate("line_rate_bps", 100e9) / 8,
		trip:     r.Value("base_rtt_us", 13, 0.1, 1e6) / 1e6,
		eta:      r.Value("eta", 0.95, 0.01, 1),
		maxStage: r.Int("max_stage", 5, 0, 1e6),
		ai:       r.Value("w_ai_bytes", 80, 0, 1e9),
		min:      r.rate("min_rate_bps", 100e6) / 8,
	}
	h.min = math.Min(h.min, h.line) * h.trip
	h.Reset(1024)
	return h
}

// Reset implements Controller: a flow starts at line rate [W_init].
func (h *HPCC) Reset(int) {
	h.window, h.load, h.stage, h.left = h.most(), 1, 0, 0
	h.base, h.last.N, h.fresh = h.window, 0, false
}

// most returns the bandwidth-delay product of the NIC.
func (h *HPCC) most() float64 { return h.line * h.trip }

// OnTelemetry implements Telemetered.
func (h *HPCC) OnTelemetry(_ mono.Time, t *Telemetry) { h.next, h.fresh = *t, true }

// OnAck implements Controller [NewAck].
//
// Records of another path replace the old ones and change nothing else (section 4.1).
func (h *HPCC) OnAck(_ mono.Time, s Sample) {
	h.left -= float64(s.Bytes)
	if !h.fresh {
		return
	}
	h.fresh = false
	if h.last.N != h.next.N || h.last.Path != h.next.Path {
		h.last, h.left = h.next, float64(s.InFlight)
		return
	}
	if !h.measure() {
		return
	}
	update := h.left < 0
	h.compute(update)
	if update {
		h.left = float64(s.InFlight)
	}
	h.last = h.next
}

// measure updates the load of the most loaded link [MeasureInflight]. It returns false if the acknowledgement is older than
// the previous one, or a copy of it.
func (h *HPCC) measure() bool {
	most, over := -1.0, 0.0
	for i := range h.next.N {
		now, was := &h.next.Hops[i], &h.last.Hops[i]
		took := now.At.Sub(was.At).Seconds()
		if took <= 0 || now.Sent < was.Sent || now.Rate == 0 {
			return false
		}
		rate := float64(now.Rate) / 8
		u := float64(min(now.Queued, was.Queued))/float64(rate*h.trip) + float64(now.Sent-was.Sent)/took/rate
		if u > most {
			most, over = u, took
		}
	}
	share := math.Min(over/h.trip, 1)
	h.load = float64((1-share)*h.load) + float64(share*math.Max(most, 0))
	return h.next.N > 0
}

// compute sets the window from the load [ComputeWind]. Between two updates of the base, all acknowledgements scale the same
// base, so that a queue is not answered twice (section 3.2).
func (h *HPCC) compute(update bool) {
	stage := 0
	if h.load >= h.eta || h.stage >= h.maxStage {
		h.window = float64(h.base/math.Max(h.load/h.eta, 1e-6)) + h.ai
	} else {
		h.window, stage = h.base+h.ai, h.stage+1
	}
	h.window = math.Min(math.Max(h.window, h.min), h.most())
	if update {
		h.base, h.stage = h.window, stage
	}
}

// OnLoss implements Controller. Losses do not change the window; after a timeout no acknowledgement of the round trip is left.
func (h *HPCC) OnLoss(_ mono.Time, _ uint32, timeout bool) {
	if timeout {
		h.left = 0
	}
}

// Limits implements Controller: window, and the rate that spreads it over a round trip [R].
func (h *HPCC) Limits() (windowBytes, rateBps uint64) {
	return uint64(math.Max(h.window, 1)), uint64(h.window * 8 / h.trip)
}
