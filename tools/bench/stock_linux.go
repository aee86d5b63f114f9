package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Names of the lines of unmodified programs.
const (
	stockWriteBW   = "ib_write_bw 64 KiB"
	stockSendBW    = "ib_send_bw 64 KiB"
	stockWriteRate = "ib_write_bw 64 B"
	stockWriteLat  = "ib_write_lat 8 B"
	stockSendLat   = "ib_send_lat 8 B"
	stockReadLat   = "ib_read_lat 8 B"
)

// besideRoceperf marks the result of roceperf from the same minute.
const besideRoceperf = ": roceperf instead"

// perftestPort is the TCP port of the perftest programs.
const perftestPort = "18515"

// stock measures unmodified perftest programs over the preload library, each next to the same test of roceperf.
func (b *bench) stock() error {
	return errors.Join(
		b.perftest(stockWriteBW, "Gb/s", "ib_write_bw", "-s", "65536"),
		b.gbps(stockWriteBW+besideRoceperf, "write-bw", "-s", "64k"),
		b.perftest(stockSendBW, "Gb/s", "ib_send_bw", "-s", "65536"),
		b.perftest(stockWriteRate, "M/s", "ib_write_bw", "-s", "64"),
		b.rate(stockWriteRate+besideRoceperf, "write-bw", "-s", "64"),
		b.perftest(stockWriteLat, "us", "ib_write_lat", "-s", "8"),
		b.latency(stockWriteLat+besideRoceperf, "write-lat", "-s", "8"),
		b.perftest(stockSendLat, "us", "ib_send_lat", "-s", "8"),
		b.latency(stockSendLat+besideRoceperf, "send-lat", "-s", "8"),
		b.perftest(stockReadLat, "us", "ib_read_lat", "-s", "8"),
		b.perftestEvents(stockSendLat+", sleeping in completion channels", "ib_send_lat", "-s", "8"),
	)
}

// perftest measures one program of perftest.
func (b *bench) perftest(name, unit string, args ...string) error {
	args = append(args, "-D", strconv.Itoa(b.seconds))
	return b.median(name, unit, func() (float64, error) {
		out, err := b.perftestPair(b.ctx, perftestPort, args)
		if err != nil {
			return 0, err
		}
		return parsePerftest(out, map[string]int{"Gb/s": 3, "M/s": 4, "us": 2}[unit])
	})
}

// perftestEvents measures the latency of a program that sleeps in completion channels. The program takes a number of
// messages, not a duration.
func (b *bench) perftestEvents(name string, args ...string) error {
	args = append(args, "-e", "-n", strconv.Itoa(8000*b.seconds))
	return b.median(name, "us", func() (float64, error) {
		out, err := b.perftestPair(b.ctx, perftestPort, args)
		if err != nil {
			return 0, err
		}
		return parsePerftest(out, 5)
	})
}

// perftestPair runs a perftest program between the two hosts. The two sides connect by a TCP port.
func (b *bench) perftestPair(ctx context.Context, port string, args []string) (string, error) {
	peer := b.lab.Bed.NS[1].Addr.String()
	return b.lab.Pair(ctx, b.preloaded(1, port, args), append(b.preloaded(0, port, args), peer), listening(b.lab, peer, port))
}

// preloaded returns the command line of a perftest program on host i, on the first IPv4 address there.
func (b *bench) preloaded(i int, port string, args []string) []string {
	h := b.lab.Host[i]
	cmd := []string{filepath.Join(b.bin, "rocectl"), "--run-dir", h.RunDir, "exec", "--"}
	cmd = append(cmd, args...)
	return append(cmd, "-d", h.Device, "-x", "0", "-F", "-p", port, "--report_gbits")
}

// parsePerftest reads a column of the result line. All lines begin with bytes and iterations. A bandwidth test then has
// the peak, the average in Gb/s and the rate in M/s. A latency test has the average in us; with a number of messages it
// has the minimum, the maximum, the typical and the average latency.
func parsePerftest(out string, column int) (float64, error) {
	head := false
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if head && len(f) > column {
			return strconv.ParseFloat(f[column], 64)
		}
		head = len(f) > 0 && f[0] == "#bytes"
	}
	return 0, fmt.Errorf("perftest printed no result:\n%s", out)
}
