package nic

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"roced.io/roced/internal/lab/netlab"
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
		b.chain(chainSpin, true),
		b.perftest(stockWriteLat, "us", "ib_write_lat", "-s", "8"),
		b.latency(stockWriteLat+besideRoceperf, "write-lat", "-s", "8"),
		b.perftest(stockSendLat, "us", "ib_send_lat", "-s", "8"),
		b.latency(stockSendLat+besideRoceperf, "send-lat", "-s", "8"),
		b.perftest(stockReadLat, "us", "ib_read_lat", "-s", "8"),
		// A program that sleeps in completion channels takes a number of messages, not a duration.
		b.perftestColumn(stockSendLat+", sleeping in completion channels", "us", 5, "ib_send_lat", "-s", "8", "-e", "-n", strconv.Itoa(8000*b.Seconds)),
	)
}

// perftest measures one program of perftest for some seconds.
func (b *bench) perftest(name, unit string, args ...string) error {
	column := map[string]int{"Gb/s": 3, "M/s": 4, "us": 2}[unit]
	return b.perftestColumn(name, unit, column, append(args, "-D", strconv.Itoa(b.Seconds))...)
}

// perftestColumn measures a column of one program of perftest between the two hosts. The two sides connect by a TCP
// port.
func (b *bench) perftestColumn(name, unit string, column int, args ...string) error {
	return b.median(name, unit, func() (float64, error) { return b.oncePerftest(column, args...) })
}

func (b *bench) oncePerftest(column int, args ...string) (float64, error) {
	return b.betweenPerftests(column, args, args)
}

// betweenPerftests runs a client on host 0 and a server on host 1.
func (b *bench) betweenPerftests(column int, client, server []string) (float64, error) {
	peer := b.peer()
	out, err := b.lab.Pair(b.ctx, b.preloaded(1, server), append(b.preloaded(0, client), peer), listening(b.lab, peer, perftestPort))
	if err != nil {
		return 0, err
	}
	return parsePerftest(out, column)
}

// peer returns an address by which programs of host 0 reach those of host 1 over TCP.
func (b *bench) peer() string {
	if b.lab.Bed == nil { // both are in this namespace
		return "127.0.0.1"
	}
	return netlab.HostAddr(1)
}

// preloaded returns the command line of a perftest program on host i, on the first IPv4 address there.
func (b *bench) preloaded(i int, args []string) []string {
	return append(b.exec(i, args...), "-d", b.lab.Host[i].Device, "-x", "0", "-F", "-p", perftestPort, "--report_gbits")
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
