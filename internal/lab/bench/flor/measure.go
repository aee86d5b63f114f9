package flor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// bench measures in a lab.
type bench struct {
	*measure.Run
	*netlab.Lab
}

// subject is a test of roceperf flor with its options. The server gets the options in both, too. A plain subject is a test
// of roceperf by RC, without Flor.
type subject struct {
	name, test, both, client string
	plain                    bool
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

// measure runs a subject once.
func (b *bench) measure(s *subject, seconds int) (r sample, err error) {
	if s.plain {
		p, err := b.Roceperf(b.Lab, seconds, append([]string{s.test}, strings.Fields(s.client)...)...)
		return sample{Gbps: p.Gbps, PerSecond: p.MessagesPerSecond, Latency: quantiles{P50: 2 * p.Latency.P50, P99: 2 * p.Latency.P99}}, err
	}
	ctx, cancel := context.WithTimeout(b.Ctx, time.Duration(seconds+30)*time.Second)
	defer cancel()
	perf := filepath.Join(b.Lab.Bin, "roceperf")
	both := strings.Fields(s.both)
	server := append([]string{perf, "flor", "serve", "--run-dir", b.Host[1].RunDir}, both...)
	client := append([]string{perf, "flor", s.test, b.Host[1].Addr, "--run-dir", b.Host[0].RunDir, "--json", "-D", fmt.Sprint(seconds, "s")}, both...)
	client = append(client, strings.Fields(s.client)...)
	text, err := b.Pair(ctx, server, client, b.listens)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(text), &r)
}

// listens waits until a program listens on host 1.
func (b *bench) listens(ctx context.Context) error {
	for {
		text, err := b.Ctl(ctx, 1, "res", "show", "cm_id", "--json")
		if err != nil || strings.Contains(text, "LISTEN") {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// medians measures the subjects.
func (b *bench) medians(subjects []subject) ([]sample, error) {
	all, err := measure.Alternate(b.Rounds, len(subjects), func(i int) (sample, error) {
		r, err := b.measure(&subjects[i], b.Seconds)
		if err != nil {
			err = fmt.Errorf("%s: %w", subjects[i].name, err)
		}
		return r, err
	})
	if err != nil {
		return nil, err
	}
	out := make([]sample, len(subjects))
	for i := range all {
		out[i] = measure.Middle(all[i], func(s sample) float64 { return s.PerSecond })
		out[i].RTT = middle(all[i])
		fmt.Fprintf(os.Stderr, "  %-44s %8.2f Gb/s %10.0f a second\n", subjects[i].name, out[i].Gbps, out[i].PerSecond)
	}
	return out, nil
}

// middle returns the median of each quantile of round trips. A single measurement has only a few round trips in its
// tail.
func middle(list []sample) quantiles {
	median := func(of func(*quantiles) float64) float64 {
		m := measure.Middle(list, func(s sample) float64 { return of(&s.RTT) })
		return of(&m.RTT)
	}
	return quantiles{median(func(q *quantiles) float64 { return q.P50 }), median(func(q *quantiles) float64 { return q.P99 }),
		median(func(q *quantiles) float64 { return q.P999 })}
}

// failover breaks the queue pair that an RC connection uses during calls. It returns the client's result.
func (b *bench) failover() (sample, error) {
	ctx, cancel := context.WithCancel(b.Ctx)
	defer cancel()
	broken := make(chan error, 1)
	go func() {
		qpn, err := b.primary(ctx)
		if err == nil {
			err = b.SetFaults(ctx, 0, fmt.Sprintf("tx drop qpn=%#x count=2000", qpn))
		}
		broken <- err
	}()
	r, err := b.measure(&subject{test: "rate", both: "-c rc", client: "-q 1 -t 4"}, 2)
	cancel()
	if err = errors.Join(err, <-broken); err != nil {
		return r, err
	}
	return r, b.SetFaults(b.Ctx, 0)
}

// primary waits until a connection carries calls. It returns the number of the queue pair at host 1 that receives them.
func (b *bench) primary(ctx context.Context) (uint32, error) {
	before := map[uint32]uint32{} // PSNs by queue pair number
	for {
		text, err := b.Ctl(ctx, 0, "res", "show", "qp", "--json")
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
