package e2e

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bpf/attach"
	"roced.io/roced/bpf/bottleneck"
	"roced.io/roced/internal/lab"
	"roced.io/roced/internal/lab/netlab"
)

// TestBottleneck runs congestion control over a queue of 20 Mbit/s in a network with many times that capacity. The
// sender slows down and loses nothing.
func TestBottleneck(t *testing.T) {
	lab.Long(t)
	const rate = 0.02 // Gbit/s
	single := netlab.LabOptions{Shared: [2]string{"udp, offload: false", "udp, offload: false"}}
	for _, c := range []struct {
		name, yaml string
		o          netlab.LabOptions
	}{
		{"dcqcn", "algorithm: dcqcn, line_rate_bps: 400e6, min_rate_bps: 4e6, t_us: 2000, r_ai_bps: 2e6, r_hai_bps: 5e6", onFrames},
		{"dctcp", "algorithm: dctcp, max_cwnd_packets: 256, min_cwnd_packets: 2", onFrames},
		{"dctcp on sockets", "algorithm: dctcp, max_cwnd_packets: 256, min_cwnd_packets: 2", single},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.o
			o.Extra = "    congestion: {" + c.yaml + "}\n"
			l := newLab(t, o)
			stop := l.bottleneck("rate=20mbit", "burst=16k", "kmin=16k", "kmax=200k", "pmax=0.1", "limit=4m", "seed=5")
			before := l.counters(0)
			// 1 MiB is in flight: half a second, and more if a loaded machine serves the queue late. A timeout of 4 s
			// does not mistake this delay for loss.
			r := l.perf("write-bw", "-s", "64k", "-n", "100", "-t", "16", "-u", "20")
			after, s := l.counters(0), stop()
			t.Logf("%.3f Gbit/s, %+v", r.Gbps, s)
			if r.Gbps > 1.05*rate { // the utilization depends on the machine
				t.Errorf("%.3f Gbit/s through a bottleneck of %v", r.Gbps, rate)
			}
			if n := after["retransmitted_packets"] - before["retransmitted_packets"]; n != 0 || s.Overflowed != 0 {
				t.Errorf("%d packets were retransmitted, %d overflowed; counters of the sender %v, of the receiver %v", n, s.Overflowed, after, l.counters(1))
			}
			if s.Marked == 0 || s.Marked >= s.Frames {
				t.Errorf("%d of %d frames are marked", s.Marked, s.Frames)
			}
		})
	}
}

// bottleneck puts a bottleneck behind host 0. stop removes it.
func (l *rig) bottleneck(words ...string) (stop func() bottleneck.Stats) {
	l.T.Helper()
	p := l.Ctl(0, append([]string{"bottleneck", vethName, "--json"}, words...)...)
	lab.Eventually(l.T, soon, "the bottleneck is in force", func() bool {
		return strings.Contains(p.Diag.String(), "in force") || !p.Running()
	})
	return func() (s bottleneck.Stats) {
		l.T.Helper()
		p.Signal(os.Interrupt)
		if code := p.Exit(lab.Limit); code != 0 {
			l.T.Fatalf("rocectl bottleneck: exit code %d\n%s", code, &p.Diag)
		}
		if err := json.Unmarshal([]byte(p.Out.String()), &s); err != nil {
			l.T.Fatalf("%v in\n%s", err, &p.Out)
		}
		return s
	}
}

// TestBottleneckWithoutControl is the counterpart: without congestion control the queue overflows at its limit. The
// test attaches the program in each way.
func TestBottleneckWithoutControl(t *testing.T) {
	lab.Long(t)
	for _, mode := range []attach.Mode{attach.Auto, attach.Clsact} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t, onFrames)
			stop := l.bottleneck("rate=200mbit", "kmin=20k", "kmax=40k", "limit=100k", "--attach="+string(mode))
			start := time.Now()
			l.verify("write-bw -s 64k -n 40")
			if s := stop(); s.Dropped+s.Overflowed == 0 || s.Bytes < 40*64<<10 || s.Bytes > uint64(time.Since(start).Seconds()*25e6)+200<<10 {
				t.Errorf("%+v", s)
			}
			l.nothingLeft()
		})
	}
}
