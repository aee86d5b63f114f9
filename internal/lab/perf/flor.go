package perf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
)

// florOptions are the options of roceperf flor.
type florOptions struct {
	RunDir, Device string
	Connection     string // uc or rc
	Port           int
	AckWQEs        int
	Window         uint64
	SharedAcks     bool
	Echo           bool // answers are as long as requests
	Verify         bool // answers are as long as requests, and all bytes are compared
	Size           int
	Conns          int
	Depth          int
	Duration       time.Duration
	JSON           bool
}

// FlorResult is the result of roceperf flor.
type FlorResult struct {
	Test        string   `json:"test"`
	Connection  string   `json:"connection"` // uc, rc
	Size        int      `json:"size"`
	Connections int      `json:"connections"`
	Depth       int      `json:"depth"` // concurrent calls of each connection
	Calls       uint64   `json:"calls"`
	Seconds     float64  `json:"seconds"`
	Gbps        float64  `json:"gbps"` // rate of the requests
	PerSecond   float64  `json:"calls_per_second"`
	CPUMicros   float64  `json:"cpu_us_per_call"` // of this process, without the daemon
	Latency     *Latency `json:"latency"`         // of a call
	RTT         *Latency `json:"rtt,omitempty"`   // measured by congestion control
	Least       uint64   `json:"least_calls"`     // calls of the slowest connection
	Most        uint64   `json:"most_calls"`
	Counters    any      `json:"counters,omitempty"`
}

// florClient runs a test and prints its result.
func florClient(ctx context.Context, test string, to netip.AddrPort, o *florOptions, out io.Writer) (err error) {
	n, err := openFlor(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	var conns []*florCaller
	defer func() {
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
	}()
	for range o.Conns {
		c, err := n.dial(ctx, to)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	r, err := measureCalls(ctx, conns, o)
	if err != nil {
		return err
	}
	r.Test, r.Counters, r.RTT = test, n.dev.Counters(), n.roundTrips()
	return r.print(out, o.JSON)
}

// callWorker issues one call after the other, and at least one.
type callWorker struct {
	calls uint64
	h     *hdrhistogram.Histogram
	err   error
}

func (w *callWorker) run(ctx context.Context, c *florCaller, size int, until time.Time) {
	for now := time.Now(); w.calls == 0 || now.Before(until); {
		if w.err = c.call(ctx, size); w.err != nil {
			return
		}
		then := time.Now()
		_ = w.h.RecordValue(min(then.Sub(now).Nanoseconds(), int64(time.Minute))) // the value is in range
		now = then
		w.calls++
	}
}

// measureCalls keeps depth calls in flight on each connection.
func measureCalls(ctx context.Context, conns []*florCaller, o *florOptions) (*FlorResult, error) {
	workers := make([]callWorker, len(conns)*o.Depth)
	var group sync.WaitGroup
	cpu, begun := cpuTime(), time.Now()
	for i := range workers {
		w := &workers[i]
		w.h = newHistogram()
		group.Go(func() { w.run(ctx, conns[i/o.Depth], o.Size, begun.Add(o.Duration)) })
	}
	group.Wait()
	r := &FlorResult{Connection: o.Connection, Size: o.Size, Connections: o.Conns, Depth: o.Depth, Seconds: time.Since(begun).Seconds()}
	cpu = cpuTime() - cpu
	all := newHistogram()
	of := make([]uint64, len(conns))
	for i := range workers {
		if err := workers[i].err; err != nil {
			return nil, err
		}
		all.Merge(workers[i].h)
		of[i/o.Depth] += workers[i].calls
		r.Calls += workers[i].calls
	}
	r.Least, r.Most = slices.Min(of), slices.Max(of)
	r.PerSecond = float64(r.Calls) / r.Seconds
	r.Gbps = r.PerSecond * float64(o.Size) * 8 / 1e9
	r.CPUMicros = float64(cpu.Microseconds()) / float64(max(r.Calls, 1))
	r.Latency = summary(all)
	return r, nil
}

func (r *FlorResult) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	l := r.Latency
	_, err := fmt.Fprintf(w, "%10s %6s %6s %10s %10s %8s %9s %9s %9s %9s\n%10d %6d %6d %10d %10.0f %8.2f %9.1f %9.1f %9.1f %9.2f\n",
		"bytes", "conns", "depth", "calls", "calls/s", "Gb/s", "50 % us", "99 % us", "99.9 % us", "CPU us",
		r.Size, r.Connections, r.Depth, r.Calls, r.PerSecond, r.Gbps, l.P50, l.P99, l.P999, r.CPUMicros)
	return err
}

// florTests are the tests, with their default sizes.
var florTests = []struct {
	name, does         string
	size, conns, depth int
}{
	{"rate", "Measure the rate of concurrent small calls", 128, 8, 8},
	{"bw", "Measure the bandwidth of large requests", 1 << 20, 1, 8},
	{"lat", "Measure the latency of single calls", 128, 1, 1},
	{"incast", "Measure many connections to one server", 64 << 10, 64, 1},
}

// newFlor returns the command flor.
func newFlor() *cobra.Command {
	root := &cobra.Command{
		Use: "flor", Short: "Measure calls by Flor",
		Long: `Measures calls of package flor between two NICs. The client connects by rdma_cm, and the server
answers each request with 8 bytes. --connection, --verify, --echo, --shared-acks, --ack-wqes and
--window must be the same on both sides.`,
		Example: `  roceperf flor serve -d rxe_b                        server
  roceperf flor bw 198.18.1.2 -d rxe_a                client
  roceperf flor rate 198.18.1.2 --json --ack-wqes 1   an acknowledgement for each WQE`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return about.Usage(fmt.Errorf("flor has no test %q: the tests are serve, rate, bw, lat and incast", args[0]))
			}
			return nil
		},
	}
	root.AddCommand(newFlorServe())
	for _, t := range florTests {
		o := florOptions{}
		size := ""
		c := &cobra.Command{Use: t.name + " HOST", Short: t.does,
			Example: fmt.Sprintf("  roceperf flor %s 198.18.1.2\n  roceperf flor %[1]s 198.18.1.2 -s 64k -q 4 -t 4 --json", t.name),
			Args:    florWords(1),
			RunE: func(c *cobra.Command, args []string) error {
				to, err := netip.ParseAddr(args[0])
				if err == nil {
					o.Size, err = parseSize(size)
				}
				if err = errors.Join(err, o.validate()); err != nil {
					return about.Usage(err)
				}
				return florClient(c.Context(), t.name, netip.AddrPortFrom(to, uint16(o.Port)), &o, stdout)
			}}
		o.flags(c)
		f := c.Flags()
		f.StringVarP(&size, "size", "s", fmt.Sprint(t.size), "request size in bytes, with k or m")
		f.IntVarP(&o.Conns, "connections", "q", t.conns, "number of connections")
		f.IntVarP(&o.Depth, "depth", "t", t.depth, "concurrent calls of each connection")
		f.DurationVarP(&o.Duration, "duration", "D", 2*time.Second, "duration of the measurement")
		f.BoolVar(&o.JSON, "json", false, "print a JSON object")
		root.AddCommand(c)
	}
	return root
}

func florWords(n int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return about.Usage(fmt.Errorf("%d arguments (%s) instead of %d", len(args), strings.Join(args, " "), n))
		}
		return nil
	}
}

func newFlorServe() *cobra.Command {
	o := florOptions{Size: verifyLeast, Conns: 1, Depth: 1, Duration: 1}
	c := &cobra.Command{Use: "serve", Short: "Answer calls until interrupted",
		Example: "  roceperf flor serve -d rxe_b\n  roceperf flor serve --connection rc",
		Args:    florWords(0),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := o.validate(); err != nil {
				return about.Usage(err)
			}
			n, err := openFlor(&o)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, n.close()) }()
			return n.serve(c.Context(), netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(o.Port)), func() { fmt.Println("ready") })
		}}
	o.flags(c)
	return c
}

// flags adds the flags that both sides have.
func (o *florOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&o.Device, "device", "d", "", "name of the NIC (default: the first)")
	f.StringVar(&o.RunDir, "run-dir", "", "run directory of the daemon")
	f.IntVarP(&o.Port, "port", "p", 7471, "port of rdma_cm")
	f.StringVarP(&o.Connection, "connection", "c", "uc", "queue pairs of Flor: uc or rc")
	f.IntVar(&o.AckWQEs, "ack-wqes", 32, "number of WQEs for one acknowledgement")
	f.BoolVar(&o.SharedAcks, "shared-acks", false, "send acknowledgements on the queue pairs of data, behind the data")
	f.BoolVar(&o.Echo, "echo", false, "answer with the bytes of the request")
	f.BoolVar(&o.Verify, "verify", false, "answer with as many bytes; compare all bytes on both sides")
	f.Uint64Var(&o.Window, "window", 0, "fixed congestion window in bytes (default: Swift)")
}

// validate returns all errors of the options.
func (o *florOptions) validate() error {
	var errs []error
	within := func(name string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("--%s %d is not between %d and %d", name, v, low, high))
		}
	}
	if o.Connection != "uc" && o.Connection != "rc" {
		errs = append(errs, fmt.Errorf("--connection %q: must be uc or rc", o.Connection))
	}
	if o.Verify && o.Size < verifyLeast {
		errs = append(errs, fmt.Errorf("--verify requires a --size of at least %d", verifyLeast))
	}
	within("port", o.Port, 1, 1<<16-1)
	within("ack-wqes", o.AckWQEs, 1, 32)
	within("size", o.Size, 1, 1<<20)
	within("connections", o.Conns, 1, 4096)
	within("depth", o.Depth, 1, 1024)
	if o.Duration <= 0 {
		errs = append(errs, fmt.Errorf("--duration %v is not positive", o.Duration))
	}
	return errors.Join(errs...)
}
