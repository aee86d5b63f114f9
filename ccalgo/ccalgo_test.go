package ccalgo

import (
	"math"
	"testing"

	"roced/mono"
)

func TestFactories(t *testing.T) {
	for _, c := range []struct {
		name         string
		params       Params
		window, rate uint64
		bad          bool
	}{
		{name: "none", window: Unlimited, rate: Unlimited},
		{name: "none", params: Params{"rate_bps": 1}, bad: true},
		{name: "static", window: Unlimited, rate: Unlimited},
		{name: "static", params: Params{"rate_bps": 0}, window: Unlimited, rate: Unlimited},
		{name: "static", params: Params{"rate_bps": 1e10}, window: Unlimited, rate: 1e10},
		{name: "static", params: Params{"window_bytes": 65536}, window: 65536, rate: Unlimited},
		{name: "static", params: Params{"window_bytes": 1e30}, window: Unlimited, rate: Unlimited},
		{name: "static", params: Params{"window": 1}, bad: true},
		{name: "static", params: Params{"rate_bps": -1}, bad: true},
		{name: "static", params: Params{"rate_bps": math.NaN()}, bad: true},
	} {
		ctl, err := Factories[c.name](c.params)
		if (err != nil) != c.bad {
			t.Fatalf("%s %v: error %v", c.name, c.params, err)
		}
		if c.bad {
			continue
		}
		if w, r := ctl.Limits(); w != c.window || r != c.rate {
			t.Errorf("%s %v: limits %d, %d", c.name, c.params, w, r)
		}
		if ctl.Deadline() != mono.Never {
			t.Errorf("%s wants to be called", c.name)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	for name := range Factories {
		ctl, err := Factories[name](nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			ctl.OnSent(1, 1024, 1024)
			ctl.OnAck(2, Sample{Bytes: 1024})
			ctl.OnCNP(3)
			ctl.OnLoss(4, 1, true)
			ctl.OnTimeout(5)
			ctl.Limits()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
