package ccalgo

import (
	"math"
	"time"

	"roced.io/roced/plugin/mono"
)

// DCQCN is the reaction point of Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015. Its rate
// falls with congestion notification packets and rises with a timer and a byte counter. Brackets hold the names of the
// paper, section 3.1 and figure 7. Defaults are those of its table 2 and section 5.
//
// A flow starts at line rate. No timer runs before the first notification, or after the rate has returned to the line rate.
type DCQCN struct {
	None
	g         float64       // [g] gain of alpha
	alphaTime time.Duration // [K] alpha decays after each such time without a notification
	incTime   time.Duration // [T] length of the rate increase timer
	incBytes  float64       // [B] length of the byte counter
	threshold float64       // [F] events of fast recovery
	rAI, rHAI float64       // [R_AI, R_HAI] steps in bit/s
	line      float64       // bit/s
	min       float64       // bit/s
	clamp     bool          // each cut lowers the target
	period    time.Duration // the rate is cut at most once per period; zero: with each notification
	echo      bool          // marks that acknowledgements echo count as notifications
	window    time.Duration // not zero: the window is the amount that the rate sends in that time
	alpha0    float64       // [alpha] at the first notification
	maxCut    float64       // a cut takes at most this fraction of the rate
	first     float64       // bit/s: rate after the first notification at line rate; zero: an ordinary cut

	alpha      float64   // [alpha] estimate of congestion
	alphaAt    mono.Time // time up to which alpha has decayed
	current    float64   // [R_C]
	target     float64   // [R_T]
	timer      float64   // [T] events since the last notification
	byteEvents float64   // [BC] events since the last notification
	bytes      float64   // since the last event of the byte counter
	due        mono.Time // next event of the timer
	periodEnds mono.Time // zero before the first notification
	notified   bool      // in this period
}

// newDCQCN reads the parameters of the paper, which gives no value for R_HAI. Here it is ten times R_AI, as in QCN (IEEE
// 802.1Qau), the origin of hyper increase. Further parameters select variants:
//
//   - window_us adds a window.
//   - clamp_target 0 keeps the target at cuts without an increase in between, as an option of the simulators of the paper's
//     authors and of NICs does (clamp_tgt_rate).
//   - reduce_period_us cuts the rate only at the end of a period with a notification; periods begin with the first
//     notification (rate_reduce_monitor_period of NICs). Notifications need not be rare then.
//   - alpha, max_cut and first_rate_bps change the first cuts and the depth of all (initial_alpha_value, rpg_min_dec_fac and
//     rate_to_set_on_first_cnp of NICs).
//   - echo also takes the marks in acknowledgements as notifications, as those simulators do.
func newDCQCN(r reader) Controller {
	d := &DCQCN{
		g:         r.gain("g", 1.0/256),
		alphaTime: r.Micros("k_us", 55),
		incTime:   r.Micros("t_us", 55),
		incBytes:  r.Value("b_bytes", 10e6, 1, 1e12),
		threshold: r.Value("f", 5, 0, 1e6),
		rAI:       r.rate("r_ai_bps", 40e6),
		rHAI:      r.rate("r_hai_bps", 400e6),
		line:      r.rate("line_rate_bps", 40e9),
		min:       r.rate("min_rate_bps", 10e6),
		clamp:     r.Bool("clamp_target", true),
		period:    time.Duration(r.Value("reduce_period_us", 0, 0, 1e7) * 1e3),
		echo:      r.Bool("echo", false),
		window:    time.Duration(r.Value("window_us", 0, 0, 1e7) * 1e3),
		alpha0:    r.gain("alpha", 1),
		maxCut:    r.gain("max_cut", 1),
		first:     r.Value("first_rate_bps", 0, 0, 1e13),
	}
	d.min = math.Min(d.min, d.line)
	d.Reset(0)
	return d
}

// Reset implements Controller: line rate, and the initial alpha, which is 1 in section 3.1.
func (d *DCQCN) Reset(int) {
	d.alpha, d.alphaAt, d.due = d.alpha0, 0, mono.Never
	d.current, d.target = d.line, d.line
	d.timer, d.byteEvents, d.bytes = 0, 0, 0
	d.periodEnds, d.notified = 0, false
}

// ECNCapable implements Controller.
func (*DCQCN) ECNCapable() bool { return true }

// OnAck implements Controller.
func (d *DCQCN) OnAck(now mono.Time, s Sample) {
	if d.echo && s.ECN {
		d.OnCNP(now)
	}
}

// OnCNP implements Controller. It cuts the rate, with periods at their end.
func (d *DCQCN) OnCNP(now mono.Time) {
	switch {
	case d.period == 0:
	case d.periodEnds == 0:
		d.periodEnds = now.Add(d.period)
	default:
		if late := now.Sub(d.periodEnds); late >= 0 {
			d.periodEnds = d.periodEnds.Add((late/d.period + 1) * d.period)
		}
		d.notified = true
		return
	}
	d.cut(now)
}

// cut reduces the rate (section 3.1, equation 1) and restarts the increase.
func (d *DCQCN) cut(now mono.Time) {
	d.decayAlpha(now)
	if d.clamp || d.timer > 0 || d.byteEvents > 0 || d.due == mono.Never {
		d.target = d.current
	}
	next := d.current * (1 - math.Min(float64(d.alpha/2), d.maxCut))
	if d.first > 0 && d.due == mono.Never {
		next = math.Min(d.first, d.current)
	}
	d.current = math.Max(next, d.min)
	d.alpha = float64((1-d.g)*d.alpha) + d.g
	d.timer, d.byteEvents, d.bytes = 0, 0, 0
	d.due = now.Add(d.incTime)
}

// decayAlpha applies equation 2 for the time without notifications. Only a cut uses alpha, so it needs no timer.
func (d *DCQCN) decayAlpha(now mono.Time) {
	if d.alphaAt == 0 { // alpha starts with the first notification
		d.alphaAt = now
		return
	}
	periods := now.Sub(d.alphaAt) / d.alphaTime
	d.alpha *= math.Pow(1-d.g, float64(periods))
	d.alphaAt = now
}

// OnSent implements Controller. Each [B] bytes are an event.
func (d *DCQCN) OnSent(_ mono.Time, bytes, _ uint32) {
	if d.due == mono.Never {
		return
	}
	d.bytes += float64(bytes)
	for d.bytes >= d.incBytes && d.due != mono.Never {
		d.bytes -= d.incBytes
		d.byteEvents++
		d.increase()
	}
}

// Deadline implements Controller.
func (d *DCQCN) Deadline() mono.Time {
	if d.notified {
		return min(d.due, d.periodEnds)
	}
	return d.due
}

// maxCatchUp limits the number of timer events that a late call makes up for. With the paper's parameters, a tenth of them
// restores a rate of 400 Gb/s.
const maxCatchUp = 1 << 16

// OnTimeout implements Controller. It processes due events of the timer, and cuts the rate at the end of a period.
func (d *DCQCN) OnTimeout(now mono.Time) {
	if d.notified && now >= d.periodEnds {
		d.notified = false
		d.cut(now)
	}
	for n := 0; now >= d.due; n++ {
		if n == maxCatchUp {
			d.due = now.Add(d.incTime)
			return
		}
		d.due = d.due.Add(d.incTime)
		d.timer++
		d.increase()
	}
}

// increase raises the rate by one step (section 3.1, figure 7; equations 3 and 4).
func (d *DCQCN) increase() {
	switch {
	case math.Max(d.timer, d.byteEvents) <= d.threshold: // fast recovery
	case math.Min(d.timer, d.byteEvents) > d.threshold: // hyper increase
		d.target += float64((math.Min(d.timer, d.byteEvents) - d.threshold) * d.rHAI)
	default: // additive increase
		d.target += d.rAI
	}
	d.target = math.Min(d.target, d.line)
	d.current = float64((d.target + d.current) / 2)
	if d.line-d.current < d.line/1e4 {
		d.current, d.target, d.due = d.line, d.line, mono.Never
	}
}

// Limits implements Controller.
func (d *DCQCN) Limits() (windowBytes, rateBps uint64) {
	windowBytes = Unlimited
	if d.window > 0 {
		windowBytes = uint64(d.current / 8 * d.window.Seconds())
	}
	return windowBytes, uint64(d.current)
}
