package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"roced.io/roced/internal/netlab"
)

// bench holds the settings of the measurements.
type bench struct {
	bin             string
	seconds, rounds int
	only            string // part
}

// subject is a test of roceperf flor with its options. The server gets the options in both, too.
type subject struct {
	name, test, both, client string
}

// sample is one measurement.
type sample struct {
	Gbps      float64   `json:"gbps"`
	PerSecond float64   `json:"calls_per_second"`
	CPUMicros float64   `json:"cpu_us_per_call"`
	Latency   quantiles `json:"latency"`
	RTT       quantiles `json:"rtt"`
	Counters  struct {
		WQEs, AcksReceived, Switches, Reconnects uint64
		Failover                                 int64
	} `json:"counters"`
}

// quantiles are round-trip times in us.
type quantiles struct {
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
}

// writes is the test of roceperf's WRITEs instead of calls.
const writes = "write-bw"

// measure runs a subject once.
func (b *bench) measure(l *netlab.Lab, s *subject, seconds int) (r sample, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds+30)*time.Second)
	defer cancel()
	if s.test == writes {
		p, err := l.Perf(ctx, filepath.Join(l.Dir, "oob"), append([]string{writes, "-D", fmt.Sprint(seconds, "s")}, strings.Fields(s.client)...)...)
		return sample{Gbps: p.Gbps, PerSecond: p.MessagesPerSecond}, err
	}
	perf := filepath.Join(b.bin, "roceperf")
	both := strings.Fields(s.both)
	server := append([]string{perf, "flor", "serve", "--run-dir", l.Host[1].RunDir}, both...)
	client := append([]string{perf, "flor", s.test, l.Host[1].Addr, "--run-dir", l.Host[0].RunDir, "--json", "-D", fmt.Sprint(seconds, "s")}, both...)
	client = append(client, strings.Fields(s.client)...)
	text, err := l.Pair(ctx, server, client, func(ctx context.Context) error { return listens(ctx, l) })
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(text), &r)
}

// listens waits until a program listens on host 1.
func listens(ctx context.Context, l *netlab.Lab) error {
	for {
		text, err := l.Ctl(ctx, 1, "res", "show", "cm_id", "--json")
		if err != nil || strings.Contains(text, "LISTEN") {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// medians measures the subjects in alternation, so that all meet the same noise.
func (b *bench) medians(l *netlab.Lab, subjects []subject) ([]sample, error) {
	all := make([][]sample, len(subjects))
	for range b.rounds {
		for i := range subjects {
			r, err := b.measure(l, &subjects[i], b.seconds)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[i].name, err)
			}
			all[i] = append(all[i], r)
		}
	}
	out := make([]sample, len(subjects))
	for i := range all {
		slices.SortFunc(all[i], func(a, b sample) int { return cmp.Compare(a.PerSecond, b.PerSecond) })
		out[i] = all[i][len(all[i])/2]
		out[i].RTT = middle(all[i])
		fmt.Fprintf(os.Stderr, "  %-44s %8.2f Gb/s %10.0f a second\n", subjects[i].name, out[i].Gbps, out[i].PerSecond)
	}
	return out, nil
}

// middle returns the median of each quantile of round trips. A single measurement has only a few round trips in its
// tail.
func middle(list []sample) quantiles {
	median := func(of func(*quantiles) float64) float64 {
		var v []float64
		for i := range list {
			v = append(v, of(&list[i].RTT))
		}
		slices.Sort(v)
		return v[len(v)/2]
	}
	return quantiles{median(func(q *quantiles) float64 { return q.P50 }), median(func(q *quantiles) float64 { return q.P99 }),
		median(func(q *quantiles) float64 { return q.P999 })}
}

// lab runs f on two NICs. extra is added to their configuration.
func (b *bench) lab(extra string, f func(*netlab.Lab) error) (err error) {
	dir, err := os.MkdirTemp("", "roced-flor")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l, err := netlab.NewLab(netlab.LabOptions{Bin: b.bin, Dir: dir, Extra: extra})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if _, err := b.measure(l, &subject{test: "lat", both: "-c plain"}, 1); err != nil { // address resolution completes before the measurement
		return err
	}
	return f(l)
}

// failover breaks the queue pair that an RC connection uses during calls. It returns the client's result.
func (b *bench) failover(l *netlab.Lab) (sample, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	broken := make(chan error, 1)
	go func() {
		qpn, err := primary(ctx, l)
		if err == nil {
			err = l.SetFaults(ctx, 0, fmt.Sprintf("tx drop qpn=%#x count=2000", qpn))
		}
		broken <- err
	}()
	r, err := b.measure(l, &subject{test: "rate", both: "-c rc", client: "-q 1 -t 4"}, 2)
	cancel()
	if err = errors.Join(err, <-broken); err != nil {
		return r, err
	}
	return r, l.SetFaults(context.Background(), 0)
}

// primary waits until a connection carries calls. It returns the number of the queue pair at host 1 that receives them.
func primary(ctx context.Context, l *netlab.Lab) (uint32, error) {
	before := map[uint32]uint32{} // PSNs by queue pair number
	for {
		text, err := l.Ctl(ctx, 0, "res", "show", "qp", "--json")
		if err != nil {
			return 0, err
		}
		var list []struct {
			QP struct {
				Num  uint32 `json:"qpn"`
				Type string `json:"type"`
				Dest uint32 `json:"dest_qpn"`
				PSN  uint32 `json:"sq_psn"`
			} `json:"qp"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return 0, fmt.Errorf("rocectl res: %w", err)
		}
		for _, r := range list {
			psn, known := before[r.QP.Num]
			if r.QP.Type == "RC" && known && psn != r.QP.PSN && r.QP.Dest != 0 {
				return r.QP.Dest, nil
			}
			before[r.QP.Num] = r.QP.PSN
		}
		time.Sleep(20 * time.Millisecond)
	}
}
