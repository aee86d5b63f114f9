package ccalgo

import (
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// nscc returns a control whose window is cwnd. By default B and the target are 12 us, the MTU is 1000, and the scaling factors of
// the specification are 1: alpha is 4000, fi is 5000, eta is 150.
func nscc(t *testing.T, cwnd float64, p Params) *NSCC {
	t.Helper()
	n := made[*NSCC](t, "nscc", p)
	n.cwnd = cwnd
	n.OnSent(us, 1000, 50_000)
	return n
}

// ack returns a sample of 4000 bytes. delay is that of the queue, in us; the window of 50,000 bytes stays in flight.
func nsccAck(delay float64, marked bool) Sample {
	return Sample{Bytes: 4000, InFlight: 50_000, ECN: marked, RTT: time.Duration((12 + delay) * 1e3)}
}

func TestNSCCDefaults(t *testing.T) {
	for _, c := range []struct {
		name                          string
		p                             Params
		target, threshold, period     time.Duration
		alpha, eta, fi, fast, maximum float64
	}{
		{"reference", nil, 12_000, 48_000, 12_000, 4000, 150, 5000, 0.25, 225e3},
		{"trimming", Params{"trimming": 1}, 9000, 1<<63 - 1, 12_000, 3000, 150, 5000, 0.25, 225e3},
		{"faster", Params{"line_rate_bps": 400e9, "base_rtt_us": 6}, 6000, 24_000, 6000, 4000, 300, 10_000, 0.5, 450e3},
		{"given", Params{"target_delay_us": 3, "qa_threshold_us": 7, "adjust_period_threshold_us": 5, "eta_bytes": 1, "fi_bytes": 2, "fi_scale": 3,
			"max_cwnd_bytes": 4000, "trimming": 1}, 3000, 7000, 5000, 1000, 1, 2, 3, 4000},
	} {
		n := made[*NSCC](t, "nscc", c.p)
		if n.target != c.target || n.threshold != c.threshold || n.period != c.period {
			t.Errorf("%s: target %v, threshold %v, period %v", c.name, n.target, n.threshold, n.period)
		}
		near(t, c.name+": alpha", n.alpha, c.alpha)
		near(t, c.name+": eta", n.eta, c.eta)
		near(t, c.name+": fi", n.fi, c.fi)
		near(t, c.name+": fi_scale", n.fastScale, c.fast)
		near(t, c.name+": first window", n.cwnd, c.maximum)
	}
}

// TestNSCCReactions: mark and delay select one of four reactions.
func TestNSCCReactions(t *testing.T) {
	for _, c := range []struct {
		name      string
		delay     float64
		marked    bool
		inc, cwnd float64
	}{
		{"empty network", 2, false, 4000 * 4000 * (1 - 2.0/12), 50_000},
		{"nearly the target", 11.999, false, 4000 * 4000 * (0.001 / 12), 50_000},
		{"delay without mark", 12, false, 5000 * 4000, 50_000},
		{"mark without delay", 11.999, true, 0, 50_000},
		{"mark and delay", 16, true, 0, 50_000 * (1 - 0.8*4/16)},
	} {
		n := nscc(t, 50_000, Params{"adjust_period_threshold_us": 1e6})
		n.decreased = -100 * us
		n.OnAck(2*us, nsccAck(c.delay, c.marked))
		near(t, c.name+": inc_bytes", n.inc+1, c.inc+1)
		near(t, c.name+": cwnd", n.cwnd, c.cwnd)
	}
}

// TestNSCCDecrease: only an average above the target cuts the window, once per base round-trip time, by half at most.
func TestNSCCDecrease(t *testing.T) {
	n := nscc(t, 100_000, Params{"qa_gate": 31})
	at := us
	n.OnAck(at+12*us, nsccAck(36, true))
	near(t, "cwnd within a base RTT of the start", n.cwnd, 100_000+150)
	n.OnAck(at+13*us, nsccAck(36, true))
	near(t, "cwnd", n.cwnd, 100_150*0.5)
	n.OnAck(at+25*us, nsccAck(36, true))
	near(t, "cwnd within a base RTT of the cut", n.cwnd, 50_075+150)
	n.OnAck(at+26*us, nsccAck(24, true))
	near(t, "cwnd after a cut of less than half", n.cwnd, 50_225*(1-0.8*12/24))

	// One SACK hardly moves the average of the SACKs of a round trip.
	n = nscc(t, 100_000, nil)
	s := nsccAck(24, true)
	s.Receiver.Reported = true
	n.OnAck(at+20*us, s)
	near(t, "average", n.avg, 0.0125*24e3)
	near(t, "cwnd", n.cwnd, 100_000+150)

	n = nscc(t, 1500, Params{"gamma": 1, "max_md_jump": 0})
	n.OnAck(at+20*us, nsccAck(8000, true))
	near(t, "smallest cwnd", n.cwnd, 1000+150)
}

// TestNSCCAdjustment: increases are applied after adjust_bytes_threshold bytes, or after the period, then with eta.
func TestNSCCAdjustment(t *testing.T) {
	n := nscc(t, 50_000, nil)
	one := 4000 * 4000 * 0.5 // increase by an acknowledgement
	n.OnAck(2*us, nsccAck(6, false))
	n.OnAck(3*us, nsccAck(6, false))
	near(t, "cwnd after 8 packets", n.cwnd, 50_000)
	n.OnAck(4*us, nsccAck(6, false))
	near(t, "cwnd after more", n.cwnd, 50_000+3*one/50_000)
	cwnd := n.cwnd
	n.OnAck(13*us, nsccAck(6, false))
	near(t, "cwnd after the period", n.cwnd, cwnd+one/cwnd+150)
	cwnd = n.cwnd
	n.OnAck(24*us, nsccAck(6, false))
	near(t, "cwnd before the next period", n.cwnd, cwnd)
	n.cwnd = 224_990
	n.OnAck(25*us, nsccAck(6, false))
	near(t, "greatest cwnd", n.cwnd, 225_000)
}

// TestNSCCFastIncrease: after a whole window without delay, each byte grows the window by a quarter, until there is a delay.
func TestNSCCFastIncrease(t *testing.T) {
	n := nscc(t, 10_000, Params{"adjust_period_threshold_us": 1e6, "adjust_bytes_threshold": 1e9})
	for range 2 {
		n.OnAck(2*us, nsccAck(0.9, false))
	}
	near(t, "cwnd before a window", n.cwnd, 10_000)
	n.OnAck(2*us, nsccAck(0.9, false))
	near(t, "cwnd after a window", n.cwnd, 11_000)
	n.OnAck(2*us, nsccAck(0, false))
	near(t, "cwnd", n.cwnd, 12_000)
	n.OnAck(2*us, nsccAck(1, false))
	n.OnAck(2*us, nsccAck(0, false))
	near(t, "cwnd after a delay", n.cwnd, 12_000)
	n.faster, n.fast = true, 20_000
	n.decrease(2 * us)
	n.OnAck(2*us, nsccAck(0, false))
	near(t, "cwnd after a delayed mark", n.cwnd, 12_000)
	n.faster, n.cwnd = true, 224_500
	n.OnAck(2*us, nsccAck(0, false))
	near(t, "greatest cwnd", n.cwnd, 225_000)
}

// TestNSCCQuickAdaptation: at the end of an interval of base and target, trimming, a loss or a very long delay sets the window
// to the bytes that have arrived, if these are few. Marks of packets in flight at that time have no effect.
func TestNSCCQuickAdaptation(t *testing.T) {
	trim := Sample{InFlight: 9000, Receiver: Receiver{Reason: uint8(bth.MRCTrimmed)}}
	quiet := nsccAck(12, true)
	long := nsccAck(48.001, true)
	for _, c := range []struct {
		name string
		p    Params
		s    Sample
		at   mono.Time
		cwnd float64
	}{
		{"trimming", nil, trim, 26 * us, 8000},
		{"delay above the threshold", nil, long, 26 * us, 12_000}, // its bytes count
		{"delay at the threshold", nil, nsccAck(48, true), 26 * us, 150_000 * 0.5},
		{"within the interval", nil, trim, 25 * us, 149_000},
		{"disabled", Params{"disable_qa": 1}, trim, 26 * us, 149_000},
		{"enough has arrived", Params{"qa_gate": 5}, trim, 26 * us, 149_000}, // 7031 bytes
	} {
		n := nscc(t, 150_000, c.p)
		n.adjusted = 1e15    // no adjustment
		n.OnAck(2*us, quiet) // begins an interval
		n.decreased = us
		n.OnAck(3*us, quiet)
		n.OnAck(4*us, quiet)
		n.OnAck(c.at, c.s)
		near(t, c.name+": cwnd", n.cwnd, c.cwnd)
	}

	n := nscc(t, 150_000, nil)
	n.adjusted = 1e15
	n.OnAck(2*us, quiet)
	n.OnAck(3*us, nsccAck(0, false))
	n.OnAck(26*us, trim)
	near(t, "bytes to ignore", n.toIgnore, 9000)
	near(t, "increase", n.inc+1, 1)
	for i := range 2 { // 8000 bytes
		n.OnAck(mono.Time(50+i)*us, quiet)
		near(t, "cwnd, marks of packets in flight", n.cwnd, 4000)
	}
	n.OnAck(51*us, nsccAck(6, false))
	near(t, "increase, without a mark", n.inc, 4000*4000*0.5)
	n.avg = 24e3
	n.OnAck(52*us, quiet)
	n.OnAck(53*us, trim)
	if n.cwnd >= 4000 {
		t.Errorf("cwnd %v after 9000 bytes", n.cwnd)
	}
	n = nscc(t, 5000, nil)
	n.adjusted = 1e15
	n.OnAck(2*us, quiet)
	n.OnAck(3*us, nsccAck(5, true))
	n.OnAck(3*us, nsccAck(5, true))
	n.OnAck(26*us, trim)
	near(t, "cwnd that is smaller", n.cwnd, 4000)
}

// TestNSCCLosses: a trimmed and a lost packet each cost an MTU of the window, reported once or twice. NACKs for want of a
// resource cost nothing.
func TestNSCCLosses(t *testing.T) {
	for _, c := range []struct {
		reason  bth.MRCReason
		lost    uint32
		timeout bool
		cwnd    float64
		ignored float64
	}{
		{0, 1, false, 49_000, 1000},
		{0, 2, true, 48_000, 2000},
		{0, 100, true, 1000, 100_000},
		{bth.MRCTrimmed, 1, false, 49_000, 1000},
		{bth.MRCTrimmedLastHop, 1, false, 49_000, 1000},
		{bth.MRCTrimmed, 0, false, 49_000, 1000},
		{bth.MRCTrimmed, 3, false, 47_000, 3000},
		{bth.MRCTrimmed, 1, true, 48_000, 2000},
		{bth.MRCOutOfWindow, 1, false, 50_000, 0},
		{bth.MRCNoPacketBuffer, 1, false, 50_000, 0},
	} {
		n := nscc(t, 50_000, nil)
		if c.reason != 0 {
			n.OnAck(2*us, Sample{InFlight: 50_000, RTT: 20 * time.Microsecond, Receiver: Receiver{Reason: uint8(c.reason)}})
		}
		n.OnLoss(2*us, c.lost, c.timeout)
		near(t, c.reason.String()+": cwnd", n.cwnd, c.cwnd)
		near(t, c.reason.String()+": bytes ignored", n.ignored+1, c.ignored+1)
		n.OnLoss(3*us, 1, false)
		near(t, c.reason.String()+": cwnd after an inferred loss", n.cwnd, max(c.cwnd-1000, 1000))
	}
	n := nscc(t, 50_000, nil)
	n.OnAck(2*us, Sample{RTT: 10 * time.Microsecond, Receiver: Receiver{Reason: uint8(bth.MRCTrimmed)}})
	near(t, "base RTT by a NACK", float64(n.base), 10e3)
	near(t, "average delay", n.avg, 0.0125*12e3)
}

// TestNSCCPenalty: the receiver shrinks the window in proportion to the bytes that arrive, stops its growth, and restores it.
func TestNSCCPenalty(t *testing.T) {
	n := nscc(t, 80_000, Params{"adjust_period_threshold_us": 1e6, "adjust_bytes_threshold": 1e9})
	ack := func(r Receiver) {
		r.Reported = true
		n.OnAck(2*us, Sample{InFlight: 50_000, RTT: 14 * time.Microsecond, Receiver: r})
	}
	arrived := 17 * 256 * 1000 / 1088.0
	ack(Receiver{Penalty: 64, Received: 17})
	near(t, "cwnd", n.cwnd, 50_000-arrived/2)
	near(t, "increase", n.inc+1, 1)
	ack(Receiver{Penalty: 127, Received: 34})
	near(t, "cwnd", n.cwnd, 50_000-arrived/2-arrived*127/128)
	ack(Receiver{Received: 51})
	near(t, "cwnd without penalty", n.cwnd, 50_000-arrived/2-arrived*127/128)
	near(t, "increase", n.inc, 4000*arrived*(1-2.0/12))
	ack(Receiver{Received: 51, Restore: true})
	near(t, "restored cwnd", n.cwnd, 80_000)
	n.cwnd = 70_000
	ack(Receiver{Received: 51, Restore: true})
	near(t, "cwnd, with nothing to restore", n.cwnd, 70_000)
	n.cwnd = 1001
	ack(Receiver{Penalty: 127, Received: 1000})
	near(t, "smallest cwnd", n.cwnd, 1000)
}

// TestNSCCReports: the receiver's count wraps, an older one has no effect, and its headers do not count as payload.
func TestNSCCReports(t *testing.T) {
	n := nscc(t, 50_000, nil)
	for _, c := range []struct {
		count, units uint32
	}{{4, 4}, {10, 6}, {7, 0}, {10, 0}, {1<<23 + 9, 1<<23 - 1}, {1<<24 - 1, 1<<23 - 10}, {3, 4}, {1<<24 - 2, 0}} {
		before := n.achieved
		n.OnAck(2*us, Sample{Bytes: 999_999, Receiver: Receiver{Reported: true, Received: c.count}})
		near(t, "bytes", n.achieved-before+1, float64(c.units)*256*1000/1088+1)
	}
}

// TestNSCCRoundTrips: the delay of one packet judges the bytes of all since the last one, with their marks. A round trip that
// timestamps of 16 bits cannot measure is discarded with its bytes.
func TestNSCCRoundTrips(t *testing.T) {
	n := nscc(t, 50_000, Params{"adjust_period_threshold_us": 1e6, "adjust_bytes_threshold": 1e9})
	none := Sample{Bytes: 1000, InFlight: 50_000}
	n.OnAck(2*us, none)
	n.OnAck(2*us, none)
	near(t, "increase without a round trip", n.inc+1, 1)
	n.OnAck(2*us, nsccAck(6, false))
	near(t, "increase", n.inc, 4000*6000*0.5)
	n.OnAck(2*us, none)
	stale := none
	stale.RTT, stale.ECN = 1<<16*128, true
	n.OnAck(30*us, stale)
	near(t, "increase after a discarded round trip", n.inc, 4000*6000*0.5)
	near(t, "average after it", n.avg, 6e3)
	n.OnAck(31*us, nsccAck(6, false))
	near(t, "increase after another", n.inc, 4000*10_000*0.5)
	marked := none
	marked.ECN = true
	n.OnAck(32*us, marked)
	n.avg = 1e6
	n.OnAck(33*us, nsccAck(18, false))
	near(t, "cwnd after an earlier mark", n.cwnd, 50_000*(1-0.8*6/18))
	last := none
	last.RTT = 1<<16*128 - 1
	n.cwnd, n.achieved = 200_000, 0
	n.OnAck(70*us, last)
	near(t, "average after the longest round trip", n.avg, 1<<16*128-1-12e3)
}

// TestNSCCBase: a shorter round trip becomes the base and scales the greatest window, unless that is disabled.
func TestNSCCBase(t *testing.T) {
	for measure, want := range []struct{ base, cwnd, avg float64 }{{12e3, 225_000, 0}, {4e3, 75_000, 2e3}} {
		n := nscc(t, 225_000, Params{"measure_base_rtt": float64(measure)})
		n.OnAck(20*us, Sample{Bytes: 1000, RTT: 4 * time.Microsecond})
		near(t, "base", float64(n.base), want.base)
		near(t, "cwnd", n.cwnd, want.cwnd)
		n.OnAck(21*us, Sample{Bytes: 1000, RTT: 6 * time.Microsecond})
		near(t, "average", n.avg+1, want.avg+1)
	}
}

func TestEchoedRTT(t *testing.T) {
	const unit, span = mono.Time(128), mono.Time(128 << 16)
	for _, c := range []struct {
		name      string
		sent, now mono.Time
		echo      uint16
		want      time.Duration
	}{
		{"plain", 1000 * unit, 1100 * unit, 1000, 12_800},
		{"wraps", 65_530 * unit, 65_540 * unit, 65_530, 1280},
		{"within a unit", 1000*unit + 3, 1000*unit + 90, 1000, 128},
		{"sent late in a unit", 1000*unit + 127, 1001 * unit, 1000, 128},
		{"of a retransmission", 1000 * unit, 1100 * unit, 1090, 1280},
		{"longest", 1000 * unit, 1000*unit + span - 1, 1000, 65_535 * 128},
		{"too old", 1000 * unit, 1000*unit + span, 1000, 0},
		{"before the packet", 1000 * unit, 1100 * unit, 998, 0},
		{"in the future", 1000 * unit, 1100 * unit, 1101, 0},
	} {
		if got := EchoedRTT(c.now, c.sent, c.echo); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestSharedReports: a shared NSCC gets the sum of its members' counts.
func TestSharedReports(t *testing.T) {
	s := NewShares("nscc", nil, PerDestination)
	c := members(t, s, 2)
	for _, m := range c {
		m.(Bound).Bind(Flow{})
	}
	n := c[0].(*member).share.Controller.(*NSCC)
	report := func(i int, received uint32) {
		c[i].OnAck(us, Sample{Receiver: Receiver{Reported: true, Received: received}})
	}
	for _, r := range []struct {
		i              int
		received, want uint32
	}{{0, 10, 10}, {1, 4, 14}, {0, 12, 16}, {0, 11, 16}, {1, 5, 17}, {1, 1<<23 + 4, 1<<23 + 16}, {1, 1<<24 - 1, 11 + 1<<24}} {
		report(r.i, r.received)
		if want := r.want & receivedMask; n.last != want {
			t.Errorf("queue pair %d reports %d: the sum is %d, want %d", r.i, r.received, n.last, want)
		}
	}
	c[1].(Bound).Unbind()
	c[0].Reset(1000)
	report(0, 3)
	if n.last != 3 {
		t.Errorf("the sum is %d after a reset", n.last)
	}
}
