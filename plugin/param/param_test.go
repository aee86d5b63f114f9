package param_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"roced.io/roced/plugin/param"
)

func TestReader(t *testing.T) {
	for _, c := range []struct {
		name  string
		given map[string]float64
		fault string // part of the error, empty: none
	}{
		{"defaults", nil, ""},
		{"all", map[string]float64{"gain": 0.5, "slots": 8, "on": 0, "rtt_us": 2.5}, ""},
		{"too small", map[string]float64{"gain": -1}, "x: gain is -1, it must be between 0 and 1"},
		{"too big", map[string]float64{"slots": 65}, "slots is 65"},
		{"not a number", map[string]float64{"gain": math.NaN()}, "gain is NaN"},
		{"not whole", map[string]float64{"slots": 2.5}, "slots is 2.5, it must be a whole number"},
		{"not a switch", map[string]float64{"on": 2}, "on is 2"},
		{"no time", map[string]float64{"rtt_us": 0}, "rtt_us is 0"},
		{"unknown", map[string]float64{"zeta": 1, "alpha": 1}, `x has no parameter "alpha"`},
		{"first fault", map[string]float64{"gain": 2, "slots": 99}, "gain is 2"},
	} {
		r := param.NewReader("x", c.given)
		gain, slots := r.Value("gain", 1, 0, 1), r.Int("slots", 64, 2, 64)
		on, rtt := r.Bool("on", true), r.Micros("rtt_us", 16)
		err := r.Err()
		if c.fault != "" {
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("%s: %v, want %q", c.name, err, c.fault)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.given == nil && (gain != 1 || slots != 64 || !on || rtt != 16*time.Microsecond) {
			t.Errorf("defaults: %v %v %v %v", gain, slots, on, rtt)
		}
		if c.given != nil && (gain != 0.5 || slots != 8 || on || rtt != 2500*time.Nanosecond) {
			t.Errorf("given: %v %v %v %v", gain, slots, on, rtt)
		}
		if p := r.Parameters(); len(p) != 4 || p[1] != (param.Parameter{Name: "slots", Default: 64, Min: 2, Max: 64, Type: param.Integer}) {
			t.Errorf("%s: parameters %v", c.name, p)
		}
	}
}
