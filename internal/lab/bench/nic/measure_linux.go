package nic

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// Names of the lines that ratios refer to.
const (
	rawTAP     = "raw TAP, super-frames of 15 x 4096 B"
	rawWrite   = "raw TAP, super-frames of a 64 KiB WRITE: 2 and 14 x 4096 B"
	rawSockets = "raw UDP sockets, super-frames of 15 x 4096 B"
	iperfTCP   = "iperf3, TCP over the veth"
	ucxPutBW   = "ucx_perftest over TCP, 64 KiB put"
	ucxTagBW   = "ucx_perftest over TCP, 64 KiB tag"
	ucxPutRate = "ucx_perftest over TCP, 64 B put"
	ucxTagRate = "ucx_perftest over TCP, 64 B tag"
	ucxPutLat  = "ucx_perftest over TCP, 8 B put"
	ucxTagLat  = "ucx_perftest over TCP, 8 B tag"
	fewQPs     = "roceperf write-bw 4 KiB, 8 QPs"
	manyQPs    = "roceperf write-bw 4 KiB, 1000 QPs"
	sendBW     = "roceperf send-bw 64 KiB"
	sendRate   = "roceperf send-bw 64 B"
	sendLat    = "roceperf send-lat 8 B"
	writeBW    = "roceperf write-bw 64 KiB"
	writeRate  = "roceperf write-bw 64 B"
	writeLat   = "roceperf write-lat 8 B"
	chainLat   = "bare chain of four threads over TAP, 8 B"
	chainSpin  = "bare chain, programs that never yield, 8 B"
)

// measure runs the selected groups. It measures the two sides of a ratio shortly after one another.
func (b *bench) measure(l *netlab.Lab) error {
	b.lab = l
	for _, g := range groups {
		if b.Selects(g.name) {
			if err := g.run(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// group is a set of measurements that can run alone.
type group struct {
	name string
	run  func(*bench) error
}

var groups = []group{
	{"links", (*bench).links}, {"bandwidth", (*bench).bandwidth}, {"rates", (*bench).rates}, {"latencies", (*bench).latencies},
	{"stock", (*bench).stock}, {"memory", (*bench).memory}, {"ucx", (*bench).ucxBySize}, {"contention", (*bench).contention},
	{"ports", (*bench).ports}, {"adverse", (*bench).adverse}, {"scale", (*bench).scale}, {"connections", (*bench).connections},
	{"forwarding", (*bench).forwarding}, {"switch", (*bench).switches}, {"shared", (*bench).sharedFiles}, {"path", (*bench).dataPath},
}

func (b *bench) links() error {
	d := time.Duration(b.Seconds) * time.Second
	return errors.Join(
		b.median(rawTAP, "Gb/s", func() (float64, error) { return raw(b.lab.Bed, d, rawSegments) }),
		b.median(rawWrite, "Gb/s", func() (float64, error) { return raw(b.lab.Bed, d, writeSegments...) }),
		b.median(rawSockets, "Gb/s", func() (float64, error) { return rawUDP(d, rawSegments) }),
		b.median(iperfTCP, "Gb/s", func() (float64, error) { return iperf3(b.ctx, b.lab, b.Seconds) }),
	)
}

func (b *bench) bandwidth() error {
	return errors.Join(
		b.ucx(ucxPutBW, "Gb/s", "ucp_put_bw", 65536, 8000*b.Seconds, ucx.gbps),
		b.ucx(ucxTagBW, "Gb/s", "tag_bw", 65536, 8000*b.Seconds, ucx.gbps),
		b.gbps(writeBW, "write-bw", "-s", "64k"),
		b.gbps(sendBW, "send-bw", "-s", "64k"),
		b.gbps("roceperf read-bw 64 KiB", "read-bw", "-s", "64k"),
		b.gbps("roceperf write-bw 1 MiB", "write-bw", "-s", "1m"),
		b.gbps("roceperf write-bw 64 KiB, 16 QPs", "write-bw", "-s", "64k", "-q", "16"),
		b.gbps("roceperf write-bw 64 KiB, bidirectional", "write-bw", "-s", "64k", "--bidirectional"),
		b.gbps(fewQPs, "write-bw", "-s", "4k", "-q", "8", "-t", "16", "-Q", "4", "-r", "1"),
		b.gbps(manyQPs, "write-bw", "-s", "4k", "-q", "1000", "-t", "16", "-Q", "4", "-r", "1"),
	)
}

func (b *bench) rates() error {
	return errors.Join(
		b.ucx(ucxPutRate, "M/s", "ucp_put_bw", 64, 100000*b.Seconds, ucx.millions),
		b.ucx(ucxTagRate, "M/s", "tag_bw", 64, 100000*b.Seconds, ucx.millions),
		b.rate(writeRate, "write-bw", "-s", "64"),
		b.rate(sendRate, "send-bw", "-s", "64"),
	)
}

func (b *bench) latencies() error {
	return errors.Join(
		b.ucx(ucxPutLat, "us", "ucp_put_lat", 8, 30000*b.Seconds, ucx.mean),
		b.ucx(ucxTagLat, "us", "tag_lat", 8, 30000*b.Seconds, ucx.mean),
		b.chain(chainLat, false),
		b.latency(writeLat, "write-lat", "-s", "8"),
		b.latency(sendLat, "send-lat", "-s", "8"),
		b.latency("roceperf read-lat 8 B", "read-lat", "-s", "8"),
		b.latency("roceperf atomic-lat", "atomic-lat"),
		b.latency("roceperf send-lat 8 B, sleeping in completion channels", "send-lat", "-s", "8", "--events"),
	)
}

// contention measures latency while other processes spin, so that client CPU is scarce.
func (b *bench) contention() error {
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- b.spinningPair(ctx)
	}()
	time.Sleep(time.Second)
	busy := *b
	busy.machine = nil
	err := busy.latency("roceperf write-lat 8 B beside another write-lat pair", "write-lat", "-s", "8")
	b.table = busy.table
	cancel()
	<-done
	if err != nil {
		return err
	}
	return b.pollLatency()
}

// spinningPair runs a second pair of spinning processes.
func (b *bench) spinningPair(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := b.lab.Perf(ctx, filepath.Join(b.lab.Dir, "oob2"), "write-lat", "-s", "8", "-D", "60s"); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ucx measures one test of ucx_perftest.
func (b *bench) ucx(name, unit, test string, size, count int, value func(ucx) float64) error {
	return b.median(name, unit, func() (float64, error) {
		r, err := ucxPerftest(b.ctx, b.lab, test, size, count)
		return value(r), err
	})
}

func (b *bench) gbps(name string, args ...string) error {
	return b.median(name, "Gb/s", func() (float64, error) { return gbps(b.perf(args...)) })
}

func (b *bench) rate(name string, args ...string) error {
	return b.median(name, "M/s", func() (float64, error) { return millions(b.perf(args...)) })
}

// latency takes the mean, like the average of ucx_perftest.
func (b *bench) latency(name string, args ...string) error {
	return b.median(name, "us", func() (float64, error) { return mean(b.perf(args...)) })
}

func (b *bench) perf(args ...string) (netlab.PerfResult, error) {
	var before, after [2]time.Duration
	err := b.daemonTimes(&before)
	if err != nil {
		return netlab.PerfResult{}, err
	}
	r, err := b.Roceperf(b.lab, b.Seconds, args...)
	if err == nil {
		err = b.daemonTimes(&after)
	}
	if err == nil && r.Messages > 0 {
		of := func(i int) float64 { return float64((after[i] - before[i]).Microseconds()) / r.Messages }
		*b.cost = cost{clientCost(r), of(0), of(1)}
	}
	return r, err
}

// clientCost returns the processor time of a message of the client, in us.
func clientCost(r netlab.PerfResult) float64 {
	return r.CPUPercent / 100 * r.Seconds * 1e6 / max(r.Messages, 1)
}

// daemonTimes sets the processor times of the daemons of both sides.
func (b *bench) daemonTimes(t *[2]time.Duration) (err error) {
	for i := range t {
		if t[i], err = cpuOf(b.lab.Host[i].PID()); err != nil {
			return err
		}
	}
	return nil
}

func gbps(r netlab.PerfResult, err error) (float64, error)     { return measure.Gbps(r), err }
func millions(r netlab.PerfResult, err error) (float64, error) { return measure.Millions(r), err }
func mean(r netlab.PerfResult, err error) (float64, error)     { return measure.Mean(r), err }
