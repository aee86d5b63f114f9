package ccalgo

import (
	"math"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// NSCC is the Network Signal based Congestion Control of the Ultra Ethernet Transport (UET 1.0 section 3.6.13), which MRC
// uses. The combination of mark and queueing delay selects the reaction. Delay is the round trip without the shortest one
// measured. Names in brackets are those of the specification's pseudo-code.
//
// The window counts payload, and the bytes in flight are those of the queue pair: a count of sent less received bytes, as
// the specification has it, drifts when a packet that counts as lost arrives.
type NSCC struct {
	None
	nsccParams

	mtu      float64
	cwnd     float64
	max      float64       // [max_wnd]
	base     time.Duration // [base_rtt]
	avg      float64       // [avg_delay] in ns
	inflight float64

	last     uint32  // Receiver.Received of the latest report
	judged   float64 // bytes that arrived since the latest round-trip time
	marked   bool    // one of their acknowledgements reported a mark
	refused  bool    // the latest event was a NACK
	saved    float64 // [saved_cwnd] before the receiver's penalty, 0: none
	limited  bool    // [rcv_limit_mode]
	inc      float64 // [inc_bytes]
	received float64 // [received_bytes] since the latest adjustment
	fast     float64 // [fi_count] bytes without delay
	faster   bool    // [increase]

	achieved float64 // [achieved_bytes] in the present interval of quick
	ignored  float64 // [bytes_ignored] since the latest quick adaptation
	toIgnore float64 // [bytes_to_ignore]
	trimmed  bool    // [trigger_qa]

	adjusted           mono.Time // [last_adjust_time], 0: never, like decreased
	decreased          mono.Time // [last_dec_time]
	quickAt            mono.Time // [qa_endtime], 0: none
	eta, fi, fastScale float64   // with their defaults for this MTU
	alpha              float64   // [alpha] times the target
	adjustBytes        float64
}

// nsccParams are the parameters. Zero selects the default that follows from rate, base RTT and MTU.
type nsccParams struct {
	line        float64       // bit/s
	configured  time.Duration // [config_base_rtt]
	measure     bool
	trimming    bool
	target      time.Duration // [target_qdelay]
	givenEta    float64       // [eta] bytes
	givenFI     float64       // [fi] bytes
	givenScale  float64       // [fi_scale]
	gamma       float64
	maxJump     float64 // [max_md_jump]
	disabled    bool    // [disable_quick_adapt]
	gate        float64 // 2 to the power of [qa_gate]
	threshold   time.Duration
	givenBytes  float64       // [adjust_bytes_threshold]
	period      time.Duration // [adjust_period_threshold]
	givenMax    float64       // [MaxWnd]
	delayWeight float64
}

const (
	// nsccBDP is the bandwidth-delay product of the reference network, 100 Gb/s and 12 us (htsim).
	nsccBDP = 150e3
	nsccRTT = 12 * time.Microsecond

	// noDelay is the delay below which the network counts as empty.
	//
	// Choice: the specification has "about 0". The simulator of its authors (htsim) has this value.
	noDelay = time.Microsecond

	// reportedHeaders are the bytes of a full packet beside its payload that a receiver of MRC counts: UDP length plus 40.
	reportedHeaders = 40 + bth.UDPLen + bth.BTHLen + bth.METHLen + bth.TSETHLen + bth.RETHLen + bth.ICRCLen

	// receivedMask has the bits of Receiver.Received.
	receivedMask = 1<<24 - 1

	// echoRange is the time after which the timestamps of MRC repeat.
	echoRange = bth.MRCTimestampUnit << 16 * time.Nanosecond
)

// newNSCC has the defaults of table 3-76 of the specification.
func newNSCC(r reader) Controller {
	micros := func(name string) time.Duration { return time.Duration(r.Value(name, 0, 0, 1e7) * 1e3) }
	n := &NSCC{}
	p := &n.nsccParams
	p.line = r.rate("line_rate_bps", 100e9)
	p.configured = r.Micros("base_rtt_us", 12)
	p.measure = r.Bool("measure_base_rtt", true)
	p.trimming = r.Bool("trimming", false)
	p.target = micros("target_delay_us")
	p.givenEta = r.Value("eta_bytes", 0, 0, 1e9)
	p.givenFI = r.Value("fi_bytes", 0, 0, 1e9)
	p.givenScale = r.Value("fi_scale", 0, 0, 1e3)
	p.gamma = r.gain("gamma", 0.8)
	p.maxJump = r.gain("max_md_jump", 0.5)
	p.disabled = r.Bool("disable_qa", false)
	p.gate = math.Exp2(float64(r.Int("qa_gate", 3, 0, 31)))
	p.threshold = micros("qa_threshold_us")
	p.givenBytes = r.Value("adjust_bytes_threshold", 0, 0, 1e9)
	p.period = micros("adjust_period_threshold_us")
	p.givenMax = r.Value("max_cwnd_bytes", 0, 0, 1e12)
	p.delayWeight = r.gain("delay_weight", 0.0125)
	n.complete()
	n.Reset(1024)
	return n
}

// complete sets the times that are not given.
func (p *nsccParams) complete() {
	base := p.configured
	switch {
	case p.target > 0:
	case p.trimming:
		p.target = base * 3 / 4
	default:
		p.target = base
	}
	p.target = max(p.target, 1)
	if p.period == 0 {
		p.period = base
	}
	switch {
	case p.threshold > 0:
	case p.trimming: // trimming reports overload earlier
		p.threshold = math.MaxInt64
	default:
		p.threshold = 4 * p.target
	}
	if p.givenMax == 0 {
		p.givenMax = 1.5 * p.line / 8 * base.Seconds()
	}
}

// Reset implements Controller. The window begins at its maximum.
func (n *NSCC) Reset(mtu int) {
	p := n.nsccParams
	*n = NSCC{nsccParams: p, mtu: float64(max(mtu, 1)), base: p.configured}
	a := p.line / 8 * p.configured.Seconds() / nsccBDP
	b := float64(p.target) / float64(nsccRTT)
	n.alpha = 4 * a * b * n.mtu
	n.eta = orDefault(p.givenEta, 0.15*n.mtu*a)
	n.fi = orDefault(p.givenFI, 5*n.mtu*a)
	n.fastScale = orDefault(p.givenScale, 0.25*a)
	n.adjustBytes = orDefault(p.givenBytes, 8*n.mtu)
	n.limit()
	n.cwnd = n.max
}

func orDefault(given, def float64) float64 {
	if given > 0 {
		return given
	}
	return def
}

// limit sets the maximum of the window for the base round-trip time.
func (n *NSCC) limit() {
	n.max = max(n.givenMax*(float64(n.base)/float64(n.configured)), n.mtu) // a ratio of at most 1, also rounded
}

// ECNCapable implements Controller.
func (*NSCC) ECNCapable() bool { return true }

// OnSent implements Controller.
func (n *NSCC) OnSent(now mono.Time, _, inflight uint32) {
	n.begin(now)
	n.inflight = float64(inflight)
}

// begin starts the clocks at the first event.
func (n *NSCC) begin(now mono.Time) {
	n.refused = false
	if n.adjusted == 0 {
		n.adjusted, n.decreased = now, now
	}
}

// OnAck implements Controller [OnACK, OnNACK].
//
// A round trip of 8.4 ms or longer is discarded, with the bytes of its interval, because the timestamps of MRC cannot measure
// it. If a transport measures only one packet per round trip, its delay applies to the bytes of all packets.
func (n *NSCC) OnAck(now mono.Time, s Sample) {
	n.begin(now)
	n.inflight = float64(s.InFlight)
	if s.Receiver.Reason != 0 {
		n.nack(now, s)
		return
	}
	arrived := n.arrived(s)
	n.ignored += arrived
	n.received += arrived
	n.achieved += arrived
	n.judged += arrived
	n.marked = n.marked || s.ECN
	n.penalize(s.Receiver, arrived)
	if s.RTT <= 0 {
		return
	}
	judged, marked := n.judged, n.marked
	n.judged, n.marked = 0, false
	if s.RTT >= echoRange {
		return
	}
	n.measured(s.RTT)
	delay := max(s.RTT-n.base, 0)
	n.average(delay, s.Receiver.Reported)
	if n.quick(now, false, marked, delay) {
		return
	}
	n.react(now, judged, marked, delay)
	n.adjust(now)
}

// arrived returns the payload bytes that s reports for the first time. The receiver's count also covers packets whose SACK
// was lost. It includes headers; packets are assumed to be full.
func (n *NSCC) arrived(s Sample) float64 {
	if !s.Receiver.Reported {
		return float64(s.Bytes)
	}
	units, ok := newlyReceived(s.Receiver.Received, n.last)
	if !ok {
		return 0
	}
	n.last = s.Receiver.Received
	return float64(units*bth.MRCReceivedUnit) * n.mtu / (n.mtu + reportedHeaders)
}

// newlyReceived returns the difference of two values of Receiver.Received; ok is false if now is older than last.
func newlyReceived(now, last uint32) (units uint32, ok bool) {
	d := (now - last) & receivedMask
	return d, d <= receivedMask/2
}

// penalize follows the receiver's flow control [apply_cwnd_penalty].
func (n *NSCC) penalize(r Receiver, arrived float64) {
	n.limited = r.Penalty > 0
	switch {
	case n.limited:
		if n.saved == 0 {
			n.saved = n.cwnd
		}
		n.cwnd = max(min(n.cwnd, n.inflight)-float64(r.Penalty)*arrived/128, n.mtu)
	case r.Restore && n.saved > 0:
		n.cwnd, n.saved = n.saved, 0
	}
}

// measured updates the base round-trip time [update_base_rtt].
func (n *NSCC) measured(rtt time.Duration) {
	if n.measure && rtt < n.base {
		n.base = rtt
		n.limit()
	}
}

// average adds a delay to the average.
//
// Choice: the specification averages over one base round-trip time and leaves the method open. The weight of htsim is for
// the several SACKs of a round trip. Other transports measure once per round trip, which then is the average.
func (n *NSCC) average(delay time.Duration, reported bool) {
	w := 1.0
	if reported {
		w = n.delayWeight
	}
	n.avg += w * (float64(delay) - n.avg)
}

// react handles the four combinations of mark and delay. A mark without delay has no effect here: another path may be
// better.
func (n *NSCC) react(now mono.Time, judged float64, marked bool, delay time.Duration) {
	high := delay >= n.target
	switch {
	case marked && high:
		n.decrease(now)
	case marked, n.limited:
	case high:
		n.inc += n.fi * judged
	case !n.increaseFast(judged, delay):
		n.inc += n.alpha * judged * (1 - float64(delay)/float64(n.target))
	}
}

// increaseFast grows the window exponentially once a whole window met an empty network [fast_increase].
func (n *NSCC) increaseFast(judged float64, delay time.Duration) bool {
	if delay >= noDelay {
		n.fast, n.faster = 0, false
		return false
	}
	n.fast += judged
	n.faster = n.faster || n.fast > n.cwnd
	if n.faster {
		n.cwnd = min(n.cwnd+n.fastScale*judged, n.max)
	}
	return n.faster
}

// decrease cuts the window in proportion to the excess of the average delay, at most once per base round-trip time
// [multiplicative_decrease].
func (n *NSCC) decrease(now mono.Time) {
	n.fast, n.faster = 0, false
	target := float64(n.target)
	if n.avg <= target || now.Sub(n.decreased) <= n.base {
		return
	}
	n.cwnd = max(n.cwnd*max(1-n.gamma*(n.avg-target)/n.avg, n.maxJump), n.mtu)
	n.decreased = now
}

// adjust applies the increases after enough bytes or time [fulfill_adjustment].
func (n *NSCC) adjust(now mono.Time) {
	over := now.Sub(n.adjusted) >= n.period
	if !over && n.received <= n.adjustBytes {
		return
	}
	n.cwnd += n.inc / n.cwnd
	if over {
		n.cwnd += n.eta
		n.adjusted = now
	}
	n.cwnd = min(n.cwnd, n.max)
	n.inc, n.received = 0, 0
}

// quick reduces the window to the bytes of one interval if these show heavy congestion [quick_adapt]. It returns whether the
// acknowledgement has no further effect: after an adaptation, marks of packets that were in flight then do not count.
//
// Choice: it never raises the window, as in htsim; the specification is silent.
func (n *NSCC) quick(now mono.Time, loss, marked bool, delay time.Duration) (done bool) {
	switch {
	case n.disabled:
		return false
	case marked && n.ignored < n.toIgnore:
		done = true
	case now >= n.quickAt:
		if n.quickAt != 0 && (n.trimmed || loss || delay > n.threshold) && n.achieved < min(n.max/n.gate, n.cwnd) {
			n.cwnd = max(n.achieved, n.mtu)
			n.toIgnore, n.ignored = n.inflight, 0
			n.trimmed, done = false, true
		}
		n.achieved = 0
		n.quickAt = now.Add(n.base + n.target)
	}
	if done {
		n.inc, n.received = 0, 0
	}
	return done
}

// nack handles the report that one packet was dropped; its size is assumed to be the MTU. Only trimming shows congestion of
// the network.
func (n *NSCC) nack(now mono.Time, s Sample) {
	n.refused = true
	if s.RTT > 0 && s.RTT < echoRange {
		n.measured(s.RTT)
	}
	switch bth.MRCReason(s.Receiver.Reason) {
	case bth.MRCTrimmed, bth.MRCTrimmedLastHop:
	default:
		return
	}
	n.average(n.configured, true)
	n.ignored += n.mtu
	n.trimmed = true
	if !n.quick(now, true, true, 0) {
		n.cwnd = max(n.cwnd-n.mtu, n.mtu)
	}
}

// OnLoss implements Controller [OnInferredLoss]. A packet that a NACK reported is not an inferred loss.
func (n *NSCC) OnLoss(_ mono.Time, lost uint32, timeout bool) {
	if n.refused && !timeout && lost > 0 {
		lost--
	}
	n.refused = false
	bytes := float64(lost) * n.mtu
	n.cwnd = max(n.cwnd-bytes, n.mtu)
	n.ignored += bytes
}

// Limits implements Controller.
func (n *NSCC) Limits() (windowBytes, rateBps uint64) { return uint64(n.cwnd), Unlimited }

// EchoedRTT returns the round-trip time of a packet of MRC from the timestamp that its acknowledgement echoes, at least one
// bth.MRCTimestampUnit. sent is the time of the packet's first transmission. EchoedRTT returns 0, not measured, if the
// timestamp may have repeated since then, or is none of the packet.
func EchoedRTT(now, sent mono.Time, echo uint16) time.Duration {
	const unit = bth.MRCTimestampUnit * time.Nanosecond
	age := now.Sub(sent)
	rtt := time.Duration(uint16(now/bth.MRCTimestampUnit)-echo) * unit
	if age >= echoRange || rtt > age+unit {
		return 0
	}
	return max(rtt, unit)
}
