package sim

import (
	"math"
	"testing"

	"roced.io/roced/ccalgo"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

// hpcc is a simulation of two flows into one host with congestion control.
func hpcc(name, control string, params map[string]float64) Config {
	return Config{Framing: ns3, Classes: nic.Classes{Ack: 7, CNP: 7}, Profile: name, Switch: losslessSwitch,
		Spec: profile.Spec{Congestion: profile.Part{Name: control, Params: params}}, QP: nic.QPConfig{MaxUnacked: 1 << 14},
		Apps: planned(workload.Planned{Src: 0, Dst: 2, Bytes: 4_000_000}, workload.Planned{Src: 1, Dst: 2, Bytes: 4_000_000})}
}

// TestHPCC: two flows share a link at eta of its rate, and after the first round trips its queue is nearly empty. Telemetry
// takes 42 bytes of each packet (sections 3 and 4.1).
func TestHPCC(t *testing.T) {
	for _, name := range []string{"rc", "irn"} {
		c := hpcc(name, "hpcc", map[string]float64{"base_rtt_us": 8.5})
		c.Graph = clos(t)
		c.Sample, c.Queues = 10*engine.Microsecond, []string{"leaf0-h2"}
		s, fct := run(t, c)
		took := max(fct["0-2"], fct["1-2"]).Seconds()
		packets := 8_000_000.0 / 1000
		ideal := packets * (1000 + 48 + ccalgo.TelemetryBytes) * 8 / 100e9
		if load := ideal / took; math.Abs(load-0.95) > 0.03 {
			t.Errorf("%s: the link has load %.3f, want eta", name, load)
		}
		if early, late := fct["0-2"].Seconds(), fct["1-2"].Seconds(); math.Abs(early-late) > 0.1*took {
			t.Errorf("%s: the flows end after %v and %v s", name, early, late)
		}
		for _, link := range []string{"leaf0-h0", "leaf0-h1"} {
			l, err := s.Cluster().Network().Named(link)
			if err != nil {
				t.Fatal(err)
			}
			if n := l[0].Stats.Packets; n < 4000 {
				t.Errorf("%s: %s has %d acknowledgements, not one for each packet", name, link, n)
			}
			if n, want := l[0].Reverse.Stats.Bytes, uint64(4000*(1000+48+ccalgo.TelemetryBytes)); n != want {
				t.Errorf("%s: %s sends %d bytes, want %d", name, link, n, want)
			}
		}
		sum, n := 0.0, 0
		for _, q := range s.result.Queues {
			if at := q.At.Seconds(); at > 100e-6 && at < took {
				sum += float64(q.Bytes)
				n++
			}
		}
		if mean := sum / float64(n); mean > 5000 {
			t.Errorf("%s: %.0f bytes are queued on average", name, mean)
		}
	}
}
