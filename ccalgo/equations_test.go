package ccalgo

import (
	"math"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

// near compares a number with one calculated by hand.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-5*math.Abs(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func made[T Controller](t *testing.T, name string, p Params) T {
	t.Helper()
	c, err := New(name, p)
	if err != nil {
		t.Fatal(err)
	}
	c.Reset(1000)
	return c.(T)
}

const us = mono.Time(time.Microsecond)

// TestDCQCNEquations follows equations 1 to 4 of the paper.
func TestDCQCNEquations(t *testing.T) {
	d := made[*DCQCN](t, "dcqcn", nil)
	d.OnCNP(us)
	near(t, "R_C after the first CNP", d.current, 20e9)
	near(t, "R_T", d.target, 40e9)
	near(t, "alpha", d.alpha, 1)
	d.OnCNP(us + 1100*us) // twenty times K without a CNP
	alpha := math.Pow(255.0/256, 20)
	near(t, "R_C after the second CNP", d.current, 20e9*(1-alpha/2))
	near(t, "alpha after it", d.alpha, alpha*255/256+1.0/256)
	for i := range 5 { // fast recovery: each step covers half of the distance
		d.OnTimeout(us + (1100+55*mono.Time(i+1))*us)
	}
	distance := 20e9 * alpha / 2
	near(t, "R_C after fast recovery", d.current, 20e9-distance/32)
	d.OnTimeout(us + (1100+55*6)*us)
	near(t, "R_T after additive increase", d.target, 20e9+40e6)
	near(t, "R_C after additive increase", d.current, (20e9-distance/32+20e9+40e6)/2)
	target := d.target
	for range 6 { // the byte counter follows; its sixth event passes F too
		d.OnSent(us, 10e6, 0)
	}
	near(t, "R_T after hyper increase", d.target, target+5*40e6+400e6)
}

// TestDCQCNClamp: without clamping, two cuts set the target: the first of several in a row, and a cut after an
// increase.
func TestDCQCNClamp(t *testing.T) {
	for clamp, want := range map[float64]float64{1: 20e9, 0: 40e9} {
		d := made[*DCQCN](t, "dcqcn", Params{"clamp_target": clamp})
		d.OnCNP(us)
		d.OnCNP(2 * us)
		near(t, "R_T after two cuts", d.target, want)
		d.OnTimeout(100 * us)
		current := d.current
		d.OnCNP(101 * us)
		near(t, "R_T after an increase and a cut", d.target, current)
	}
}

// TestDCQCNPeriods: each period with a notification cuts the rate once, at its end; the first notification cuts it at
// once. Echoed marks count as notifications.
func TestDCQCNPeriods(t *testing.T) {
	d := made[*DCQCN](t, "dcqcn", Params{"reduce_period_us": 4, "echo": 1})
	d.OnCNP(us)
	near(t, "R_C at once", d.current, 20e9)
	d.OnCNP(2 * us)
	d.OnAck(3*us, Sample{ECN: true})
	d.OnAck(3*us, Sample{})
	near(t, "R_C in the period", d.current, 20e9)
	if d.Deadline() != 5*us {
		t.Errorf("the period ends at %d", d.Deadline())
	}
	d.OnTimeout(5 * us)
	near(t, "R_C after it", d.current, 10e9)
	if d.Deadline() != (5+55)*us {
		t.Errorf("after a cut something is due at %d", d.Deadline())
	}
	d.OnAck(14*us, Sample{ECN: true}) // in the period from 13 to 17
	if d.Deadline() != 17*us {
		t.Errorf("a later period ends at %d", d.Deadline())
	}
	d.OnTimeout(17 * us)
	near(t, "R_C after a mark", d.current, 5e9)
	plain := made[*DCQCN](t, "dcqcn", nil)
	plain.OnAck(us, Sample{ECN: true})
	near(t, "R_C after a mark that does not count", plain.current, 40e9)
}

// TestDCQCNByteCounter: the byte counter alone can drive fast recovery. Bytes sent before a CNP do not count after
// it.
func TestDCQCNByteCounter(t *testing.T) {
	d := made[*DCQCN](t, "dcqcn", nil)
	d.OnCNP(us)
	d.OnSent(us, 9e6, 0)
	near(t, "R_C before B bytes", d.current, 20e9)
	d.OnSent(us, 2e6, 0)
	near(t, "R_C after B bytes", d.current, 30e9)
	d.OnCNP(2 * us)
	d.OnSent(2*us, 9.5e6, 0)
	near(t, "R_C after another CNP", d.current, 15e9)
	if d.Deadline() != 2*us+55*us {
		t.Errorf("the timer is due at %d", d.Deadline())
	}
}

// TestTIMELYEquations follows algorithm 1 of the paper.
func TestTIMELYEquations(t *testing.T) {
	c := made[*TIMELY](t, "timely", Params{"line_rate_bps": 10e9})
	ack := func(rtt time.Duration) { c.OnAck(0, Sample{Bytes: 16384, RTT: rtt * time.Microsecond}) }
	ack(50)
	ack(60)
	near(t, "rate after a rise of 10 us", c.rate, 10e9*(1-0.8*0.875*10/20))
	ack(1000)
	near(t, "rate above T_high", c.rate, 6.5e9*(1-0.8*0.5))
	ack(40)
	near(t, "rate below T_low", c.rate, 3.9e9+10e6)
	ack(55) // the average of the differences is negative from here on
	rate := c.rate
	for range 3 {
		ack(51)
	}
	near(t, "rate after four falling gradients", c.rate, rate+3*10e6)
	ack(51)
	near(t, "rate in HAI", c.rate, rate+3*10e6+5*10e6)
	c.OnAck(0, Sample{Bytes: 16383, RTT: time.Second})
	c.OnAck(0, Sample{Bytes: 16384})
	near(t, "rate without a segment, and without an RTT", c.rate, rate+8*10e6)
}

// TestSwiftEquations follows sections 3.1 and 3.2 of the paper.
func TestSwiftEquations(t *testing.T) {
	s := made[*Swift](t, "swift", Params{"initial_cwnd_packets": 1, "hops": 3})
	alpha := 100e3 / (1/math.Sqrt(0.1) - 1/math.Sqrt(100))
	near(t, "target at one packet", float64(s.targetDelay()), math.Floor(50e3+3e3+alpha*0.9))
	s.cwnd = 400
	near(t, "target of one flow", float64(s.targetDelay()), 53e3)
	s.cwnd = 0.05
	near(t, "target of many flows", float64(s.targetDelay()), 153e3)
	s.cwnd = 1
	rtt := 2 * s.targetDelay()
	s.OnAck(us, Sample{Bytes: 1000, RTT: rtt})
	near(t, "cwnd at twice the target", s.cwnd, 1-0.8*0.5)
	w, r := s.Limits()
	near(t, "window below a packet", float64(w), 1000)
	near(t, "its rate", float64(r), 0.6*8000/rtt.Seconds())
	s.OnAck(us+1, Sample{Bytes: 1000, RTT: rtt})
	near(t, "cwnd within the same RTT", s.cwnd, 0.6)
	s.OnAck(us+2, Sample{Bytes: 500, RTT: time.Microsecond})
	near(t, "cwnd below one grows by ai", s.cwnd, 1.1)
	s.OnAck(us+3, Sample{Bytes: 2000, RTT: time.Microsecond})
	near(t, "cwnd above one grows by ai/cwnd", s.cwnd, 1.1+2/1.1)
	s.OnLoss(us+mono.Time(time.Second), 1, false)
	near(t, "cwnd after a loss", s.cwnd, (1.1+2/1.1)/2)
	for range 5 {
		s.OnLoss(us+mono.Time(time.Second), 1, true)
	}
	near(t, "cwnd after five timeouts", s.cwnd, 0.01)
}

// TestDCTCPEquations follows section 3.3 of the paper.
func TestDCTCPEquations(t *testing.T) {
	d := made[*DCTCP](t, "dctcp", Params{"initial_cwnd_packets": 8})
	for i := range 8 { // one window, of which a quarter is marked
		d.OnAck(0, Sample{Bytes: 1000, InFlight: 4000, ECN: i == 4 || i == 5})
	}
	alpha := 15.0/16 + 0.25/16
	near(t, "alpha", d.alpha, alpha)
	near(t, "cwnd: slow start until the mark, then half", d.cwnd, (8000+4000)/2)
	d.OnAck(0, Sample{Bytes: 1000, ECN: true})
	near(t, "cwnd after a mark of what was under way at the cut", d.cwnd, 6000)
	d.OnAck(0, Sample{Bytes: 1000, InFlight: 3000, ECN: true})
	near(t, "cwnd after one of what was not", d.cwnd, 6000*(1-alpha/2))
	d.OnAck(0, Sample{Bytes: 3000})
	cwnd := d.cwnd
	d.OnAck(0, Sample{Bytes: 1000})
	near(t, "cwnd in congestion avoidance", d.cwnd, cwnd+1000*1000/cwnd)
	d.OnLoss(0, 1, true)
	near(t, "cwnd after a timeout", d.cwnd, 1000)
	d.OnAck(0, Sample{Bytes: 1000})
	near(t, "cwnd in slow start again", d.cwnd, 2000)
}

// TestRenoEquations follows RFC 5681.
func TestRenoEquations(t *testing.T) {
	c := made[*Reno](t, "reno", Params{"initial_cwnd_packets": 8})
	c.OnAck(0, Sample{Bytes: 1000, InFlight: 7000})
	near(t, "slow start: the acknowledged bytes", c.cwnd, 9000)
	c.OnAck(0, Sample{Bytes: 1000, InFlight: 3000})
	near(t, "a window that is not half used does not grow", c.cwnd, 9000)
	c.OnSent(0, 1000, 9000)
	c.OnLoss(0, 1, false)
	near(t, "equation 4: half of the data in flight", c.cwnd, 4500)
	c.OnAck(0, Sample{Bytes: 4000, InFlight: 5000})
	c.OnLoss(0, 2, false)
	near(t, "one reduction for a window", c.cwnd, 4500)
	c.OnAck(0, Sample{Bytes: 5000, InFlight: 4000})
	near(t, "no growth until the end of recovery", c.cwnd, 4500)
	c.OnAck(0, Sample{Bytes: 1000, InFlight: 3500})
	near(t, "congestion avoidance", c.cwnd, 4500+1000*1000/4500.0)
	cwnd := c.cwnd
	c.OnAck(0, Sample{Bytes: 1000, InFlight: 1000})
	near(t, "a window that does not limit the sender does not grow", c.cwnd, cwnd)
	c.OnSent(0, 1000, 3000)
	c.OnLoss(0, 3, true)
	near(t, "a timeout: one packet", c.cwnd, 1000)
	near(t, "at least two packets after it", c.ssthresh, 2000)
	c.OnAck(0, Sample{Bytes: 3000, InFlight: 0})
	near(t, "slow start to ssthresh, then by the rest", c.cwnd, 2000+1000*2000/2000)
	if c.ECNCapable() {
		t.Error("its packets are ECN-capable")
	}
}

// TestMPRDMAEquations follows section 3.2 of the paper.
func TestMPRDMAEquations(t *testing.T) {
	m := made[*MPRDMA](t, "mp-rdma", Params{"iw_packets": 80})
	m.OnSent(0, 1000, 80000)
	m.OnAck(0, Sample{Bytes: 1000, ECN: true, RTT: 100 * time.Microsecond})
	near(t, "cwnd after a mark", m.cwnd, 79.5)
	m.OnAck(0, Sample{Bytes: 300})
	near(t, "cwnd after a short packet", m.cwnd, 79.5+1/79.5)
	m.OnAck(0, Sample{Bytes: 4000, ECN: true})
	near(t, "cwnd after four packets with marks", m.cwnd, 77.5+1/79.5)
	m.OnSent(us, 1000, 1000)
	m.OnSent(us+300*us, 1000, 1000)
	near(t, "cwnd after less than three idle RTTs", m.cwnd, 77.5+1/79.5)
	m.OnSent(us+601*us, 1000, 2000)
	near(t, "cwnd when something was in flight", m.cwnd, 77.5+1/79.5)
	m.OnSent(us+902*us, 1000, 1000)
	near(t, "cwnd after three idle RTTs", m.cwnd, 80)
}

// TestMPRDMAUnused: a window that was not full in this round trip or the previous one does not grow. A mark cuts it
// all the same.
func TestMPRDMAUnused(t *testing.T) {
	m := made[*MPRDMA](t, "mp-rdma", Params{"iw_packets": 10, "base_rtt_us": 16})
	const rtt = 17 * us
	for _, s := range []struct {
		what     string
		at       mono.Time
		inFlight uint32 // including the packet sent next
		ecn      bool
		want     float64
	}{
		{"nearly full", us, 8000, false, 10},
		{"full", us, 9000, false, 10.1},
		{"was full in this round trip", us, 1000, false, 10.1 + 1/10.1},
		{"was full in the one before", us + rtt, 5000, false, 10.1 + 1/10.1 + 1/(10.1+1/10.1)},
		{"was full two before", us + 2*rtt, 5000, false, 10.1 + 1/10.1 + 1/(10.1+1/10.1)},
		{"mark", us + 2*rtt, 5000, true, 9.6 + 1/10.1 + 1/(10.1+1/10.1)},
		{"begins anew", us + 6*rtt, 1000, false, 10},
	} {
		m.OnSent(s.at, 1000, s.inFlight)
		m.OnAck(s.at, Sample{Bytes: 1000, ECN: s.ecn})
		near(t, "cwnd, "+s.what, m.cwnd, s.want)
	}
}

// TestMPRDMAGrowUnfilled: in the paper each acknowledgement without a mark adds 1/cwnd (3.2).
func TestMPRDMAGrowUnfilled(t *testing.T) {
	m := made[*MPRDMA](t, "mp-rdma", Params{"iw_packets": 10, "grow_unfilled": 1})
	m.OnSent(us, 1000, 1000)
	m.OnAck(us, Sample{Bytes: 1000})
	near(t, "cwnd with one packet in flight", m.cwnd, 10.1)
}

// TestMPRDMAShrink: a pruned path, and an acknowledgement that finds no packet to send, each cost one packet of the
// window, down to the smallest window.
func TestMPRDMAShrink(t *testing.T) {
	c, err := New("mp-rdma", Params{"iw_packets": 10, "min_cwnd_packets": 2})
	if err != nil {
		t.Fatal(err)
	}
	c.Reset(1000)
	for _, s := range []struct {
		by   int
		want uint64
	}{{0, 10000}, {1, 9000}, {3, 6000}, {100, 2000}} {
		c.(Shrinker).Shrink(s.by)
		if w, _ := c.Limits(); w != s.want {
			t.Errorf("%d packets less: a window of %d, want %d", s.by, w, s.want)
		}
	}
}

// TestDCQCNFirstCuts: the initial alpha and the bound limit cuts, and the first notification at line rate may set a rate.
func TestDCQCNFirstCuts(t *testing.T) {
	d := made[*DCQCN](t, "dcqcn", Params{"alpha": 0.5, "g": 0.25})
	d.OnCNP(us)
	near(t, "R_C with alpha 1/2", d.current, 30e9)
	near(t, "alpha after it", d.alpha, 0.75*0.5+0.25)
	d = made[*DCQCN](t, "dcqcn", Params{"max_cut": 0.1})
	d.OnCNP(us)
	d.OnCNP(2 * us)
	near(t, "R_C after two bounded cuts", d.current, 40e9*0.9*0.9)
	d = made[*DCQCN](t, "dcqcn", Params{"first_rate_bps": 1e9, "r_ai_bps": 1e12})
	d.OnCNP(us)
	near(t, "R_C after the first CNP", d.current, 1e9)
	near(t, "R_T after it", d.target, 40e9)
	d.OnCNP(2 * us)
	near(t, "R_C after the second", d.current, 0.5e9)
	for d.due != mono.Never {
		d.OnTimeout(d.due)
	}
	d.OnCNP(mono.Time(time.Second))
	near(t, "R_C after the first CNP at line rate again", d.current, 1e9)
	d.min = 2e9
	d.Reset(0)
	d.OnCNP(us)
	near(t, "R_C below the least rate", d.current, 2e9)
}
