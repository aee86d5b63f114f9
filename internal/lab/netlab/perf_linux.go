package netlab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// PerfResult is a part of the JSON output of roceperf.
type PerfResult struct {
	Gbps              float64 `json:"gbps"` // payload
	MessagesPerSecond float64 `json:"messages_per_second"`
	Messages          float64 `json:"messages"`
	Seconds           float64 `json:"seconds"`
	CPUPercent        float64 `json:"cpu_percent"` // of the client
	Latency           struct {
		Mean float64 `json:"mean_us"`
		P50  float64 `json:"p50_us"`
		P99  float64 `json:"p99_us"`
	} `json:"latency"`
}

// Perf runs roceperf from host 0 to host 1. The two programs connect through the socket oob. Concurrent pairs need
// different sockets.
func (l *Lab) Perf(ctx context.Context, oob string, args ...string) (PerfResult, error) {
	nic := func(h *Host) []string { return []string{"--run-dir", h.RunDir, "-d", h.Device} }
	return l.perf(ctx, oob, nic(l.Host[0]), nic(l.Host[1]), args)
}

// LocalPerf is Perf with NICs in the processes of roceperf. files are their configurations.
func (l *Lab) LocalPerf(ctx context.Context, oob string, files [2]string, args ...string) (PerfResult, error) {
	return l.perf(ctx, oob, []string{"--local", files[0]}, []string{"--local", files[1]}, args)
}

// perf runs roceperf with the flags of each side's NIC, the client's first.
func (l *Lab) perf(ctx context.Context, oob string, from, to, args []string) (r PerfResult, err error) {
	os.Remove(oob)
	common := append([]string{filepath.Join(l.Bin, "roceperf")}, args...)
	common = append(common, "--oob", "unix:"+oob)
	server := slices.Concat(common, to)
	client := slices.Concat(common, from, []string{"--json", "peer"})
	text, err := l.Pair(ctx, server, client, func(ctx context.Context) error { return WaitFile(ctx, oob) })
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r, fmt.Errorf("roceperf: %w", err)
	}
	return r, nil
}

// Ctl runs rocectl for host i and returns its output.
func (l *Lab) Ctl(ctx context.Context, i int, args ...string) (string, error) {
	return l.Output(ctx, i, l.CtlArgs(i, args...))
}

// CtlArgs returns the command line of rocectl for host i.
func (l *Lab) CtlArgs(i int, args ...string) []string {
	return append([]string{filepath.Join(l.Bin, "rocectl"), "--run-dir", l.Host[i].RunDir}, args...)
}

// SetFaults replaces the fault rules of the NIC of host i.
func (l *Lab) SetFaults(ctx context.Context, i int, rules ...string) error {
	if _, err := l.Ctl(ctx, i, "fault", "clear", l.Host[i].Device); err != nil {
		return err
	}
	for _, r := range rules {
		if _, err := l.Ctl(ctx, i, "fault", "add", l.Host[i].Device, r); err != nil {
			return err
		}
	}
	return nil
}
