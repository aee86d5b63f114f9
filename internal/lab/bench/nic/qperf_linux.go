package nic

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"roced.io/roced/internal/lab/bench/measure"
)

// spinners is the number of processes that compete for the processors during the measurement.
const spinners = 2

// pollLatency measures a program that spins on memory and never calls the NIC or yields, while other processes spin.
func (b *bench) pollLatency() error {
	if !measure.Installed("qperf") {
		return nil
	}
	stop, err := b.spin(spinners)
	defer stop()
	if err != nil {
		return err
	}
	return b.median("qperf rc_rdma_write_poll_lat beside two spinning processes", "us", func() (float64, error) {
		peer := b.peer()
		client := b.exec(0, "qperf", "-t", strconv.Itoa(b.Seconds), peer, "rc_rdma_write_poll_lat")
		out, err := b.lab.Pair(b.ctx, b.exec(1, "qperf"), client, listening(b.lab, peer, "19765"))
		if err != nil {
			return 0, err
		}
		return parseQperf(out)
	})
}

// spin starts n processes that spin until stop.
func (b *bench) spin(n int) (stop func(), err error) {
	ctx, cancel := context.WithCancel(b.ctx)
	var started []*exec.Cmd
	for range n {
		c := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err = c.Start(); err != nil {
			break
		}
		started = append(started, c)
	}
	return func() {
		cancel()
		for _, c := range started {
			_ = c.Wait()
		}
	}, err
}

// parseQperf reads the latency. unit converts seconds into the result.
func parseQperf(out string) (float64, error) {
	units := map[string]float64{"ns": 1e-3, "us": 1, "ms": 1e3, "sec": 1e6}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "latency" || units[f[3]] == 0 {
			continue
		}
		v, err := strconv.ParseFloat(f[2], 64)
		return v * units[f[3]], err
	}
	return 0, fmt.Errorf("qperf printed no latency:\n%s", out)
}
