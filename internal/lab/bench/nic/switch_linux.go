package nic

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// The ways between two NICs of one daemon.
const (
	bySwitch = ", switch"
	byPorts  = ", UDP sockets"
)

// besides is a measurement over a switch and, of most, over ports.
type besides struct {
	name, unit string
	goal       float64 // of the ratio to ports; 0: none
	lessGood   bool
	value      func(netlab.PerfResult, error) (float64, error)
	args       []string
}

var switchRuns = []besides{
	{"roceperf write-bw 64 KiB", "Gb/s", 2, false, gbps, []string{"write-bw", "-s", "64k"}},
	{"roceperf send-bw 64 KiB", "Gb/s", 2, false, gbps, []string{"send-bw", "-s", "64k"}},
	{"roceperf write-bw 64 B", "M/s", 2, false, millions, []string{"write-bw", "-s", "64"}},
	{"roceperf write-lat 8 B", "us", 0.4, true, mean, []string{"write-lat", "-s", "8"}},
	{"roceperf send-lat 8 B", "us", 0.4, true, mean, []string{"send-lat", "-s", "8"}},
	{"roceperf write-bw 4 KiB, 8 QPs", "Gb/s", 0, false, gbps, []string{"write-bw", "-s", "4k", "-q", "8", "-t", "16", "-Q", "4", "-r", "1"}},
	{"roceperf write-bw 4 KiB, 1000 QPs", "Gb/s", 0, false, gbps, []string{"write-bw", "-s", "4k", "-q", "1000", "-t", "16", "-Q", "4", "-r", "1"}},
}

// switchPrograms are programs of perftest. Their goal is the ratio to ports.
var switchPrograms = []string{"ib_write_bw", "ib_send_bw"}

// copied names the lines of memcpy, by the bytes on each side.
func copied(bytes int) string {
	return fmt.Sprintf("memcpy in pieces of 64 KiB, over %d KiB", bytes>>10)
}

// Bytes of memcpy: within the second-level cache of most processors, and beyond all caches.
const (
	cached   = 256 << 10
	uncached = 256 << 20
)

// memcpy measures one thread that copies.
func memcpy(bytes int, d time.Duration) float64 {
	const piece = 64 << 10
	src, dst := make([]byte, bytes), make([]byte, bytes)
	for i := 0; i < bytes; i += 4096 {
		src[i], dst[i] = 1, 1
	}
	n, begun := 0, time.Now()
	for at := 0; time.Since(begun) < d; n++ {
		copy(dst[at:at+piece], src[at:at+piece])
		at = (at + piece) % bytes
	}
	return float64(n) * piece * 8 / time.Since(begun).Seconds() / 1e9
}

// switches compares two NICs of one daemon on a switch with the same on UDP sockets.
func (b *bench) switches() error {
	for _, bytes := range []int{cached, uncached} {
		if err := b.median(copied(bytes), "Gb/s", func() (float64, error) { return memcpy(bytes, b.duration()), nil }); err != nil {
			return err
		}
	}
	options := []netlab.LabOptions{{Unix: true, Switch: true}, {Loopback: true, Together: true}}
	return errors.Join(b.labs(options, b.beside), b.pairsAtOnce())
}

// labs runs f on two labs.
func (b *bench) labs(options []netlab.LabOptions, f func([]*netlab.Lab) error) error {
	return b.Lab(options[0], func(on *netlab.Lab) error {
		return b.Lab(options[1], func(off *netlab.Lab) error { return f([]*netlab.Lab{on, off}) })
	})
}

// alternately measures both labs in turn.
type alternately func(name, unit string, sample func(*bench) (float64, error)) error

// both returns a function that takes the samples of both labs in turn.
func (b *bench) both(labs []*netlab.Lab) alternately {
	return func(name, unit string, sample func(*bench) (float64, error)) error {
		vs, err := measure.Alternate(b.Rounds, len(labs), func(i int) (float64, error) {
			c := *b
			c.lab = labs[i]
			return sample(&c)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.add(name+bySwitch, unit, vs[0]...)
		b.add(name+byPorts, unit, vs[1]...)
		return nil
	}
}

// beside compares two NICs.
func (b *bench) beside(labs []*netlab.Lab) error {
	both := b.both(labs)
	for _, r := range switchRuns {
		if err := both(r.name, r.unit, func(c *bench) (float64, error) { return r.value(c.perf(r.args...)) }); err != nil {
			return err
		}
	}
	for _, program := range switchPrograms {
		for _, way := range ways {
			sample := func(c *bench) (float64, error) {
				return c.oncePerftest(3, "env", "ROCED_MR="+way.mode, program, "-s", "65536", "-D", strconv.Itoa(b.Seconds))
			}
			if err := both(program+" 64 KiB, "+way.name, "Gb/s", sample); err != nil {
				return err
			}
		}
	}
	if err := b.besideSpinners(both); err != nil {
		return err
	}
	c := *b
	c.lab = labs[0]
	err := errors.Join(c.memoryOnSwitch(), c.tagsOnSwitch(), c.tcpOnLoopback(labs[0]))
	b.table = c.table
	return err
}

// tcpOnLoopback measures the latency of UCX over TCP of the loopback interface.
func (b *bench) tcpOnLoopback(l *netlab.Lab) error {
	common := []string{"env", "UCX_TLS=tcp", "UCX_NET_DEVICES=lo", "UCX_LOG_LEVEL=error",
		"ucx_perftest", "-t", "tag_lat", "-s", "8", "-n", strconv.Itoa(30000 * b.Seconds), "-w", "1000", "-f"}
	return b.median(loopbackLat, "us", func() (float64, error) {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		const host = "127.0.0.1"
		out, err := l.Pair(ctx, common, append(common[:len(common):len(common)], host), listening(l, host, "13337"))
		if err != nil {
			return 0, err
		}
		u, err := parseUCX(out)
		return u.mean(), err
	})
}

const loopbackLat = "ucx_perftest over TCP of loopback, 8 B tag"

// switchRatios are the goals of a switch.
func switchRatios() (out []ratio) {
	for _, r := range switchRuns {
		out = append(out, ratio{r.name + ", switch against UDP sockets", r.name + bySwitch, r.name + byPorts, r.goal, r.lessGood})
	}
	for _, p := range switchPrograms {
		for _, way := range ways {
			name := p + " 64 KiB, " + way.name
			out = append(out, ratio{name + ", switch against UDP sockets", name + bySwitch, name + byPorts, 1.5, false})
		}
	}
	for _, m := range mixes {
		out = append(out, ratio{m.name + " over a switch against memcpy", m.name, copied(uncached), m.goal, false})
	}
	for _, size := range tagSizes {
		out = append(out,
			ratio{fmt.Sprintf("UCX's tag over a switch against TCP of loopback, %d KiB", size>>10), tagName(size, tagWays[0]), tagName(size, tagWays[1]), 1.5, false},
			ratio{fmt.Sprintf("UCX's tag over a switch against shared memory, %d KiB", size>>10), tagName(size, tagWays[0]), tagName(size, tagWays[2]), 0, false})
	}
	for _, r := range shardRuns() {
		out = append(out, ratio{r.name + ", switch against UDP sockets", r.name + bySwitch, r.name + byPorts, r.goal, false})
	}
	few, many := switchRuns[len(switchRuns)-2].name, switchRuns[len(switchRuns)-1].name
	return append(out,
		ratio{"64 KiB WRITE over a switch against memcpy", switchRuns[0].name + bySwitch, copied(uncached), 0.7, false},
		ratio{"64 KiB WRITE over a switch against memcpy in the cache", switchRuns[0].name + bySwitch, copied(cached), 0, false},
		ratio{"8 B WRITE latency over a switch against UCX's tag", switchRuns[3].name + bySwitch, loopbackLat, 1, true},
		ratio{"8 B SEND latency over a switch against UCX's tag", switchRuns[4].name + bySwitch, loopbackLat, 1, true},
		ratio{"1000 QPs over a switch against 8", many + bySwitch, few + bySwitch, 0.9, false})
}
