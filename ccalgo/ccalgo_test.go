package ccalgo

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
)

func TestFactories(t *testing.T) {
	for _, c := range []struct {
		name         string
		params       Params
		window, rate uint64
	}{
		{"", nil, Unlimited, Unlimited},
		{"none", nil, Unlimited, Unlimited},
		{"static", nil, Unlimited, Unlimited},
		{"static", Params{"rate_bps": 0}, Unlimited, Unlimited},
		{"static", Params{"rate_bps": 1e10}, Unlimited, 1e10},
		{"static", Params{"window_bytes": 65536}, 65536, Unlimited},
		{"dcqcn", nil, Unlimited, 40e9},
		{"dcqcn", Params{"line_rate_bps": 10e9, "window_us": 100}, 125000, 10e9},
		{"timely", Params{"line_rate_bps": 1e9}, Unlimited, 1e9},
		{"swift", Params{"initial_cwnd_packets": 4}, 4096, Unlimited},
		{"dctcp", Params{"initial_cwnd_packets": 2}, 2048, Unlimited},
		{"reno", Params{"initial_cwnd_packets": 4}, 4096, Unlimited},
		{"mp-rdma", nil, 54 * 1024, Unlimited},
		{"mp-rdma", Params{"line_rate_bps": 10e9}, 20000, Unlimited}, // times 16 us
		{"mp-rdma", Params{"iw_packets": 3}, 3072, Unlimited},
		{"nscc", nil, 225000, Unlimited},
		{"nscc", Params{"line_rate_bps": 400e9, "base_rtt_us": 10}, 750000, Unlimited},
		{"nscc", Params{"max_cwnd_bytes": 50000}, 50000, Unlimited},
		{"nscc", Params{"line_rate_bps": 1e6}, 1024, Unlimited}, // one packet
		{"hpcc", nil, 162500, 100e9},
		{"hpcc", Params{"line_rate_bps": 25e9, "base_rtt_us": 8}, 25000, 25e9},
	} {
		ctl, err := New(c.name, c.params)
		if err != nil {
			t.Fatal(err)
		}
		ctl.Reset(1024)
		if w, r := ctl.Limits(); w != c.window || r != c.rate {
			t.Errorf("%s %v: limits %d, %d, want %d, %d", c.name, c.params, w, r, c.window, c.rate)
		}
		if ctl.Deadline() != mono.Never {
			t.Errorf("%s wants to be called before anything happens", c.name)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		params Params
		want   string
	}{
		{"cubic", nil, `no congestion control "cubic", there are [dcqcn dctcp hpcc mp-rdma none nscc`},
		{"none", Params{"rate_bps": 1}, `none has no parameter "rate_bps"`},
		{"static", Params{"window": 1}, `static has no parameter "window"`},
		{"static", Params{"rate_bps": -1}, "static: rate_bps is -1, it must be between 0 and 1e+18"},
		{"static", Params{"rate_bps": math.NaN()}, "static: rate_bps is NaN"},
		{"static", Params{"window_bytes": 1e30}, "static: window_bytes is 1e+30"},
		{"dcqcn", Params{"g": 2}, "dcqcn: g is 2, it must be between 0 and 1"},
		{"dcqcn", Params{"t_us": 0}, "dcqcn: t_us is 0"},
		{"nscc", Params{"qa_gate": 2.5}, "nscc: qa_gate is 2.5, it must be a whole number"},
		{"nscc", Params{"base_rtt_us": 0}, "nscc: base_rtt_us is 0, it must be between 1 and 1e+07"},
		{"nscc", Params{"line_rate_bps": math.Inf(1)}, "nscc: line_rate_bps is +Inf"},
		{"nscc", Params{"target_delay_us": math.NaN()}, "nscc: target_delay_us is NaN"},
		{"nscc", Params{"max_cwnd_bytes": -1}, "nscc: max_cwnd_bytes is -1"},
		{"nscc", Params{"alpha": 1}, `nscc has no parameter "alpha"`},
		{"swift", Params{"max_mdf": math.Inf(1)}, "swift: max_mdf is +Inf"},
		{"hpcc", Params{"eta": 0}, "hpcc: eta is 0, it must be between 0.01 and 1"},
		{"hpcc", Params{"max_stage": 1.5}, "hpcc: max_stage is 1.5, it must be a whole number"},
	} {
		if _, err := New(c.name, c.params); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %v: %v, want %s", c.name, c.params, err, c.want)
		}
	}
}

// TestParameters: every parameter accepts both ends of its range, and its default lies in the range.
func TestParameters(t *testing.T) {
	for _, name := range Names() {
		seen := map[string]bool{}
		for _, p := range Parameters(name) {
			if seen[p.Name] || p.Default < p.Min || p.Default > p.Max {
				t.Errorf("%s: %+v", name, p)
			}
			seen[p.Name] = true
			for _, v := range []float64{p.Min, p.Max} {
				c, err := New(name, Params{p.Name: v})
				if err != nil {
					t.Fatal(err)
				}
				c.Reset(4096)
				c.OnCNP(1)
				c.OnAck(2, Sample{Bytes: 4096, RTT: 1000, ECN: true})
				c.OnAck(2, Sample{Bytes: 1 << 31, RTT: 9 * time.Millisecond, Receiver: Receiver{Reported: true, Penalty: 127, Received: 1<<24 - 1}})
				c.OnAck(3, Sample{RTT: 1, Receiver: Receiver{Reason: 1}})
				c.OnLoss(3, 1<<31, true)
				if w, r := c.Limits(); w == 0 && name != "dcqcn" || r == 0 {
					t.Errorf("%s with %s=%v: limits %d, %d", name, p.Name, v, w, r)
				}
			}
		}
	}
	if Parameters("cubic") != nil {
		t.Error("parameters of an algorithm that does not exist")
	}
}

func TestNoAllocations(t *testing.T) {
	hops := Telemetry{N: MaxHops}
	for _, name := range Names() {
		ctl, err := New(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			ctl.Reset(1024)
			ctl.OnSent(1, 1024, 1024)
			if r, ok := ctl.(Telemetered); ok {
				r.OnTelemetry(2, &hops)
			}
			ctl.OnAck(2, Sample{Bytes: 1024, RTT: 1000, ECN: true})
			ctl.OnCNP(3)
			ctl.OnLoss(4, 1, true)
			ctl.OnTimeout(5)
			ctl.Limits()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestRegister: an algorithm that a program registers behaves like a built-in one. It has parameters with defaults
// and limits, and a unique name.
func TestRegister(t *testing.T) {
	Register("own", func(r *param.Reader) Controller {
		return NewStatic(uint64(r.Value("window_bytes", 5, 1, 10)), Unlimited)
	})
	c, err := New("own", Params{"window_bytes": 7})
	if err != nil || !slices.Contains(Names(), "own") {
		t.Fatal(err, Names())
	}
	if w, _ := c.Limits(); w != 7 {
		t.Errorf("window %d", w)
	}
	if p := Parameters("own"); len(p) != 1 || p[0] != (param.Parameter{Name: "window_bytes", Default: 5, Min: 1, Max: 10}) {
		t.Errorf("%+v", p)
	}
	for _, p := range []Params{{"window_bytes": 11}, {"size": 1}} {
		if _, err := New("own", p); err == nil || !strings.Contains(err.Error(), "ccalgo: own") {
			t.Errorf("%v: %v", p, err)
		}
	}
	for _, name := range []string{"own", "dcqcn", ""} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is registered twice", name)
				}
			}()
			Register(name, nil)
		}()
	}
}
