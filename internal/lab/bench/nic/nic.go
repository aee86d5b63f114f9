// Package nic measures the NIC against other ways to move the same bytes between two network namespaces.
package nic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/netlab"
)

// Part returns the part of the benchmark.
func Part() measure.Part {
	p := measure.Part{Name: "nic", Short: "Compare the NIC with other software", Title: "Benchmarks", Run: measure.Run{Seconds: 4, Rounds: 3},
		Programs: []string{"iperf3", "ucx_perftest", "ib_write_bw", "unshare"}, Measure: run,
		Flags: func(f *pflag.FlagSet) {
			f.StringVar(&before, "before", "", "programs of an older build, for the data path between shards")
		}}
	for _, g := range groups {
		p.Lines = append(p.Lines, g.name)
	}
	return p
}

// run measures the selected groups and writes the report, also of what was measured before an error.
func run(r *measure.Run, w io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("needs root: UCX has to see the namespace's devices in /sys")
	}
	ctx, cancel := context.WithTimeout(r.Ctx, limit)
	defer cancel()
	b := &bench{Run: r, ctx: ctx, machine: measure.NewMachine(), notes: map[string]*note{}, cost: &cost{}}
	err := b.Lab(netlab.LabOptions{}, b.measure)
	b.report(w)
	return err
}

// limit is the time limit of a run. All groups take about 45 minutes.
const limit = 2 * time.Hour

type bench struct {
	*measure.Run
	ctx       context.Context
	lab       *netlab.Lab
	table     []row
	portTable []portRow
	machine   *measure.Machine // nil: a busy machine is intended
	notes     map[string]*note // by the names of lines
	cost      *cost            // of the latest run of roceperf
}

// note tells how a line was measured.
type note struct {
	repeated int
	noisy    bool
	costs    []cost
}

// cost is the processor time of a message, in us, of the client and of the daemons of both sides.
type cost struct{ client, sender, receiver float64 }

// sample takes a sample of a line, on a steady machine unless the line is about a busy one.
func (b *bench) sample(name string, f func() (float64, error)) (float64, error) {
	if b.machine == nil {
		return f()
	}
	*b.cost = cost{}
	v, repeated, noisy, err := measure.Steady(b.machine, f)
	n := b.notes[name]
	if n == nil {
		n = &note{}
		b.notes[name] = n
	}
	n.repeated, n.noisy = n.repeated+repeated, n.noisy || noisy
	if *b.cost != (cost{}) {
		n.costs = append(n.costs, *b.cost)
	}
	return v, err
}

// noted returns the note of a line for the report.
func (b *bench) noted(name string) (costs string, repeated int, noisy bool) {
	n := b.notes[name]
	if n == nil {
		return "", 0, false
	}
	if len(n.costs) > 0 {
		c := measure.Middle(n.costs, func(c cost) float64 { return c.client + c.sender + c.receiver })
		costs = fmt.Sprintf("%.2f, %.2f, %.2f", c.client, c.sender, c.receiver)
	}
	return costs, n.repeated, n.noisy
}

// row is one line of the report.
type row struct {
	name, unit string
	samples    []float64
}

// add records the samples of a line.
func (b *bench) add(name, unit string, samples ...float64) {
	r := row{name, unit, samples}
	b.table = append(b.table, r)
	fmt.Fprintf(os.Stderr, "  %-52s %10.2f %s\n", name, measure.Median(samples), unit)
}

// samples returns the samples of a line, nil if it was not measured.
func (b *bench) samples(name string) []float64 {
	for _, r := range b.table {
		if r.name == name {
			return r.samples
		}
	}
	return nil
}

// spread returns the range of several samples.
func spread(samples []float64) string {
	if len(samples) < 2 {
		return ""
	}
	return fmt.Sprintf("%.2f to %.2f", slices.Min(samples), slices.Max(samples))
}

// median runs f several times and records the median.
func (b *bench) median(name, unit string, f func() (float64, error)) error {
	vs, err := measure.Repeat(b.Rounds, func() (float64, error) { return b.sample(name, f) })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.add(name, unit, vs...)
	return nil
}

// ratio is one line of the verdict.
type ratio struct {
	text     string
	of, to   string
	goal     float64
	lessGood bool // the ratio must not exceed the goal
}

var ratios = []ratio{
	{"64 KiB WRITE against raw TAP", writeBW, rawTAP, 0.62, false},
	{"64 KiB WRITE against raw TAP with its super-frames", writeBW, rawWrite, 0, false},
	{"64 KiB WRITE over UDP sockets against raw ones", portName("UDP sockets", "64 KiB"), rawSockets, 0.66, false},
	{"64 KiB SEND against raw TAP", sendBW, rawTAP, 0, false},
	{"64 KiB WRITE against UCX's put", writeBW, ucxPutBW, 2, false},
	{"64 KiB SEND against UCX's tag", sendBW, ucxTagBW, 1.4, false},
	{"64 KiB WRITE against iperf3", writeBW, iperfTCP, 0, false},
	{"64 byte WRITE rate against UCX's put", writeRate, ucxPutRate, 4, false},
	{"64 byte SEND rate against UCX's tag", sendRate, ucxTagRate, 2, false},
	{"8 byte WRITE latency against UCX's put", writeLat, ucxPutLat, 0.8, true},
	{"8 byte WRITE latency against the bare chain", writeLat, chainLat, 0, true},
	{"8 byte SEND latency against UCX's tag", sendLat, ucxTagLat, 1.3, true},
	{"ib_write_bw 64 KiB against roceperf", stockWriteBW, stockWriteBW + besideRoceperf, 0.8, false},
	{"ib_write_lat 8 B against roceperf", stockWriteLat, stockWriteLat + besideRoceperf, 1.3, true},
	{"ib_write_lat 8 B against the bare chain of programs that never yield", stockWriteLat, chainSpin, 0, true},
	{"ib_send_lat 8 B against roceperf", stockSendLat, stockSendLat + besideRoceperf, 1.3, true},
	{"ib_write_bw 64 KiB against UCX's put", stockWriteBW, ucxPutBW, 1, false},
	{"ib_send_bw 64 KiB against UCX's tag", stockSendBW, ucxTagBW, 1, false},
	{"ib_write_bw 64 B against UCX's put", stockWriteRate, ucxPutRate, 1, false},
	{"ib_write_lat 8 B against UCX's put", stockWriteLat, ucxPutLat, 1, true},
	{"ib_send_lat 8 B against UCX's tag", stockSendLat, ucxTagLat, 0, true},
	{"ib_write_bw 4 KiB, passed memory against shared", memoryName(4096, ways[1].name), memoryName(4096, ways[0].name), 0.75, false},
	{"ib_write_bw 64 KiB, passed memory against shared", memoryName(65536, ways[1].name), memoryName(65536, ways[0].name), 0.75, false},
	{"ib_write_bw 4 KiB, passed memory against opened", memoryName(4096, ways[1].name), memoryName(4096, ways[2].name), 0.9, false},
	{"ib_write_bw 64 KiB, passed memory against opened", memoryName(65536, ways[1].name), memoryName(65536, ways[2].name), 0.9, false},
	{"AF_XDP port against bare AF_XDP, 64 B", echoName(64, "port"), echoName(64, "bare sockets"), 0.9, false},
	{"AF_XDP port against bare AF_XDP, 1 KiB", echoName(1024, "port"), echoName(1024, "bare sockets"), 0.9, false},
	{"AF_XDP port against bare AF_XDP, 4 KiB", echoName(4096, "port"), echoName(4096, "bare sockets"), 0.9, false},
	{"AF_XDP port against bare AF_XDP that copies, 4 KiB", echoName(4096, "port"), echoName(4096, "bare sockets that copy"), 0, false},
	{"UDP sockets against AF_PACKET, 64 KiB WRITE", portName("UDP sockets", "64 KiB"), portName("AF_PACKET", "64 KiB"), 1.25, false},
	{"UDP sockets against AF_PACKET, 64 B WRITE", portName("UDP sockets", "64 B"), portName("AF_PACKET", "64 B"), 1, false},
	{"UDP sockets against AF_PACKET, 8 B WRITE latency", portName("UDP sockets", "latency"), portName("AF_PACKET", "latency"), 1.15, true},
	{"forwarding beside a fault rule against without", forwardIdle, forwardBare, 0.95, false},
	{"forwarding with a fault rule that counts against without", forwardFlows, forwardBare, 0, false},
	{"4 KiB WRITE, 1000 QPs against 8 QPs", manyQPs, fewQPs, 0.8, false},
}

func (b *bench) report(w io.Writer) {
	fmt.Fprint(w, "Two network namespaces, joined by TAP - bridge - veth - bridge - TAP (`make bench`).\n\n")
	measure.Table(w, "", ">median", "", "range", "us of processor of a message: client, daemons of sender, receiver", ">rounds repeated")
	for _, r := range b.table {
		costs, repeated, _ := b.noted(r.name)
		fmt.Fprintf(w, "| %s | %.2f | %s | %s | %s | %d |\n", r.name, measure.Median(r.samples), r.unit, spread(r.samples), costs, repeated)
	}
	b.writePorts(w)
	fmt.Fprintln(w)
	measure.Table(w, "ratio of medians", ">value", "range of rounds", "goal")
	for _, r := range slices.Concat(ratios, adverseRatios(), ucxRatios(), switchRatios(), sharedRatios(), pathRatios()) {
		of, to := b.samples(r.of), b.samples(r.to)
		if of == nil || to == nil || measure.Median(to) == 0 {
			continue
		}
		v := measure.Median(of) / measure.Median(to)
		verdict := measure.Goal(v, r.goal, r.lessGood)
		_, _, noisyOf := b.noted(r.of)
		if _, _, noisyTo := b.noted(r.to); noisyOf || noisyTo {
			verdict = "noisy"
		}
		fmt.Fprintf(w, "| %s | %.2f | %s | %s |\n", r.text, v, spread(quotients(of, to)), verdict)
	}
	fmt.Fprint(w, notes)
}

const notes = `
* A round is repeated, up to three times, if the machine was slow (a fixed piece of work took 1.5 times its best time before or after) or
  busy (other programs used 0.15 processors before). A ratio with a line whose last repetition was no better is noisy.
* Raw TAP is a program of ours that writes super-frames of 15 segments into one TAP and reads them from the other,
  with no protocol, no checksum and no second copy. The first packet of a WRITE has a RETH, and all segments of a super-frame
  but the last have equal lengths. So a WRITE of 64 KiB is two super-frames, of 2 and of 14 packets.
* UCX lines are ` + "`ucx_perftest`" + ` with UCX_TLS=tcp over the same veth. Its put is what WRITE does, its tag what SEND
  does; over TCP tag is the faster one. UCX is one process a side and has a core for each; ours are two.
* ib_* are the programs of perftest, stock, over the preload library; tx-depth and moderation are their defaults.
  They spin, and so do the daemons between messages: with two cores what else runs costs them milliseconds.
* A bare chain is four threads, two a side, that pass a counter and a frame without a protocol: the floor that the
  scheduler and the link set. Threads yield as roceperf and the daemon do; or the programs spin as ib_write_lat does, and the
  others sleep.
* UCX over the NIC is ucx_perftest's tag_bw over the preload library. By itself it has long messages READ by the receiver,
  which registers and deregisters memory for each; with UCX_RNDV_THRESH=1g they are sent as they are.
* The table of ports: frames from one namespace to the other with no protocol, and roceperf over ports of the kind.
  TAPs are joined by bridges; the others share a veth with the kernel. CPU is that of both ends and includes the
  kernel's work as far as it is done in their names: on a veth the sender does what a NIC's interrupts would.
* Raw UDP sockets are two sockets of a program of ours with UDP_SEGMENT and UDP_GRO over the veth, with no protocol. What a port
  suffers from: fault rules of the sender lose or hold back frames, which are single ones then. Where the time of a port on
  UDP sockets goes: [ports.md](../reference/ports.md).
* An AF_XDP echo keeps 64 frames on their way between two ends, which share a core; the time is that core's. The bare
  one turns descriptors around in the chunks that they came in, and another one copies each frame once. The port copies
  each frame in, and a frame of several chunks also out.
* Many queue pairs and rdma_cm: programs of ours with verbs in Go. Memory is that of the daemon of one side, some seconds
  after the programs have made their queue pairs, which are connected and idle; rings are memory that is shared. A connection
  is counted when it has been made, has ended, and both queue pairs are gone.
* A switch: two NICs of one daemon, beside the same on UDP sockets of loopback addresses. Programs have memory that is shared, passed
  or opened on both sides. Pairs at once: one pair of NICs, with a shard of its own, for each core; the figure is the sum.
* Shared files: both programs map a file with MAP_SHARED (perftest's --mmap), on a switch as above.
* roceperf is one client, one queue pair, path MTU 4096, unless the line says otherwise. Each side is two processes,
  the daemon and the program; with two cores all four share them.
`

// quotients returns the ratio of each round, nil if one of the lines has no rounds.
func quotients(of, to []float64) (all []float64) {
	if len(of) != len(to) {
		return nil
	}
	for i := range of {
		all = append(all, of[i]/to[i])
	}
	return all
}
