package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/interrupt"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/observe/trace"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/nic"
	"roced.io/roced/internal/sim/ns3"
	"roced.io/roced/internal/sim/progress"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/workload"
)

// runOptions are the options of `rocesim run`.
type runOptions struct {
	seeds   string
	out     string
	format  string
	svg     string
	trace   []string
	capture []string
	queues  []string
	check   bool
	quiet   bool
	profile bool
	inside  bool

	processors int
}

func (a *app) run() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario",
		Long: `Runs a scenario and prints completion times of messages by size, and counters of the network.
It shows progress on standard error, with the remaining time if the end is known.`,
		Example: `  rocesim run configs/sim/incast.yaml --svg out
  rocesim run configs/sim/incast.yaml --set transport.profile=irn --seeds 1..4 --json
  rocesim run configs/sim/incast.yaml --out tables
  rocesim run configs/sim/incast.yaml --svg out --trace h1-h0=qp.json --queue leaf0-h0
  rocesim run configs/sim/incast.yaml --pcapng leaf0-h0=port.pcapng
  rocesim run configs/sim/permutation.yaml --profile`,
		Args: about.Words(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return a.runAll(c.Context(), args[0], &o) },
	}
	a.changes(c)
	f := c.Flags()
	f.StringVar(&o.seeds, "seeds", "", "seed or range of parallel runs, such as 1..10 (default: the scenario's)")
	f.StringVar(&o.seeds, "seed", "", "the same as --seeds")
	f.StringVarP(&o.out, "out", "o", "", "write summary.json and the tables flows, ports, samples and queues into this folder")
	f.StringVar(&o.format, "format", "csv", "format of the tables: csv, or hpcc or conweave for fct.txt of that simulator")
	f.StringVar(&o.svg, "svg", "", "draw pictures into this folder")
	f.StringArrayVar(&o.trace, "trace", nil, "h1-h0=FILE: trace the first connection from h1 to h0, for rocectl trace draw; with --svg, draw it")
	f.StringArrayVar(&o.capture, "pcapng", nil, "LINK=FILE: write the frames that enter a link")
	f.StringArrayVar(&o.queues, "queue", nil, "LINK: also record the switch queue before this link")
	f.BoolVar(&o.check, "check", false, "verify while running that all bytes are accounted for")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	f.BoolVar(&o.inside, "inside", false, "measure transports: out-of-order degrees, bytes of state, round trips and their error")
	f.IntVar(&o.processors, "processors", 0, "number of processors that simulate the topology's pods; it does not change results")
	f.BoolVar(&o.profile, "profile", false, "show the CPU time of each part of the simulator")
	return c
}

// runAll runs a scenario once for each seed, in parallel.
func (a *app) runAll(ctx context.Context, name string, o *runOptions) error {
	if err := checkFormat(o.format); err != nil {
		return err
	}
	seeds := []uint64{0}
	if o.seeds != "" {
		var err error
		if seeds, err = parseSeeds(o.seeds); err != nil {
			return err
		}
	}
	if o.processors < 0 {
		return about.Usage(fmt.Errorf("--processors %d: must not be negative", o.processors))
	}
	if len(seeds) > 1 && (len(o.trace)+len(o.capture) > 0 || o.profile) {
		return about.Usage(errors.New("--trace, --pcapng and --profile require a single seed"))
	}
	results, errs := make([]*result.Result, len(seeds)), make([]error, len(seeds))
	var mu sync.Mutex // for results and errs: an interrupt leaves runs behind that are still being built
	var wait sync.WaitGroup
	turns := make(chan struct{}, max(runtime.GOMAXPROCS(0)/max(o.processors, 1), 1))
	for i, seed := range seeds {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if ctx.Err() != nil {
				return
			}
			r := &oneRun{app: a, name: name, seed: seed, o: o, several: len(seeds) > 1, quiet: o.quiet, progress: !o.quiet && len(seeds) == 1}
			res, err := r.do(ctx)
			mu.Lock()
			defer mu.Unlock()
			results[i], errs[i] = res, err
		})
	}
	err := interrupt.Await(ctx, func() error { wait.Wait(); return nil })
	mu.Lock()
	defer mu.Unlock()
	for _, r := range results {
		if err := a.show(r); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return interrupted(results)
	}
	return errors.Join(append(errs, err)...)
}

// interrupted returns the error of interrupted runs. It says what their results are.
func interrupted(results []*result.Result) error {
	shown := slices.DeleteFunc(slices.Clone(results), func(r *result.Result) bool { return r == nil })
	if len(shown) == 0 {
		return interrupt.Errorf("no message has been sent yet")
	}
	return interrupt.Errorf("the results of %d of %d runs are those until then, after %.3f ms of simulated time", len(shown), len(results), shown[len(shown)-1].Ended.Seconds()*1e3)
}

// show prints a result, if there is one.
func (a *app) show(r *result.Result) error {
	if r == nil {
		return nil
	}
	if a.json {
		return r.WriteJSON(a.out)
	}
	r.WriteText(a.out)
	return nil
}

// oneRun is a scenario with a seed.
type oneRun struct {
	*app
	name     string
	seed     uint64
	o        *runOptions
	several  bool
	quiet    bool
	progress bool

	s      *sim.Simulation
	finish []func() error
	traced []*tracedPair
}

// tracedPair is a connection to trace. finish is nil until it opens.
type tracedPair struct {
	name, file string
	src, dst   int
	out        io.Writer
	finish     func() error
}

// end ends the trace. A connection that has not opened is an error.
func (t *tracedPair) end() error {
	if t.finish == nil {
		return fmt.Errorf("--trace %s: no connection from h%d to h%d has opened", t.name, t.src, t.dst)
	}
	return t.finish()
}

func (r *oneRun) do(ctx context.Context) (*result.Result, error) {
	if err := output.Folders(r.folder(r.o.out), r.folder(r.o.svg)); err != nil {
		return nil, about.Usage(err)
	}
	f, err := r.read(r.name, r.seed)
	if err != nil {
		return nil, err
	}
	c, err := f.Config(beside(r.name))
	if err != nil {
		return nil, about.Usage(err)
	}
	c.Check, c.Queues, c.Inside, c.Processors = r.o.check, r.o.queues, r.o.inside, r.o.processors
	if c.Opened, err = r.tracers(c.Hosts()); err != nil {
		return nil, err
	}
	if c.Sample == 0 && (r.o.svg != "" || len(r.o.queues) > 0) {
		c.Sample = 10 * engine.Microsecond
	}
	if r.s, err = sim.New(c); err != nil {
		return nil, about.Usage(err)
	}
	if err := r.captures(); err != nil {
		return nil, err
	}
	r.s.Watch, r.s.Interrupted = r.watcher(ctx), func() bool { return ctx.Err() != nil }
	run := r.s.Run
	if r.o.profile {
		run = func() (*result.Result, error) { return profiled(r.s.Run) }
	}
	res, err := run()
	for _, finish := range r.finish {
		err = errors.Join(err, finish())
	}
	if res != nil {
		err = errors.Join(err, r.write(res))
	}
	return res, err
}

// folder returns the folder for the files of this run.
func (r *oneRun) folder(dir string) string {
	if r.several && dir != "" {
		return filepath.Join(dir, fmt.Sprintf("seed-%d", r.seed))
	}
	return dir
}

func (r *oneRun) write(res *result.Result) error {
	if r.o.out != "" {
		if err := writeTables(r.folder(r.o.out), r.o.format, res); err != nil {
			return err
		}
	}
	if r.o.svg == "" {
		return nil
	}
	dir := r.folder(r.o.svg)
	files, err := res.WriteSVG(dir)
	for _, t := range r.traced {
		if t.finish == nil {
			continue
		}
		more, wrong := drawTrace(t.file, filepath.Join(dir, t.name))
		files, err = append(files, more...), errors.Join(err, wrong)
	}
	if !r.json && !r.quiet {
		fmt.Fprintln(r.diag, strings.Join(files, "\n"))
	}
	return err
}

// drawTrace draws a trace file into a folder.
func drawTrace(file, dir string) ([]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := trace.Read(f)
	if err != nil {
		return nil, err
	}
	return t.Draw(dir, false)
}

// formats are the formats of tables.
var formats = []string{"csv", "hpcc", "conweave"}

// checkFormat validates the format of tables.
func checkFormat(format string) error {
	if !slices.Contains(formats, format) {
		return about.Usage(fmt.Errorf("--format %w", suggest.OneOf(format, formats)))
	}
	return nil
}

// writeTables writes summary.json and the tables of a result into a folder, which it creates.
func writeTables(dir, format string, res *result.Result) error {
	var err error
	if format == "csv" {
		err = res.WriteCSV(dir)
	} else {
		err = writeFCT(dir, res, format == "conweave")
	}
	if err != nil {
		return err
	}
	return writeSummary(dir, res)
}

// fctFile is the file of flow completion times in a folder of results.
const fctFile = "fct.txt"

func writeFCT(dir string, res *result.Result, conweave bool) error {
	f, err := output.Create(filepath.Join(dir, fctFile))
	if err != nil {
		return err
	}
	return errors.Join(ns3.WriteFCT(f, res, conweave), f.Close())
}

func writeSummary(dir string, res *result.Result) error {
	b, err := json.MarshalIndent(res.Summary(), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "summary.json"), append(b, '\n'), 0o644)
}

// create creates a file and closes it at the end of the run, after calling before.
func (r *oneRun) create(name string, before func() error) (io.Writer, error) {
	f, err := output.Create(name)
	if err != nil {
		return nil, err
	}
	b := output.NewRecords(f, nil)
	r.finish = append(r.finish, func() error { return errors.Join(before(), b.Flush(), f.Close()) })
	return b, nil
}

// tracers returns a function that traces the requested connections when they open.
func (r *oneRun) tracers(hosts int) (func(a, b *nic.QP, f *workload.Flow), error) {
	for _, text := range r.o.trace {
		t := &tracedPair{}
		var ok bool
		t.name, t.file, ok = strings.Cut(text, "=")
		if n, _ := fmt.Sscanf(t.name, "h%d-h%d", &t.src, &t.dst); !ok || n != 2 || t.name != fmt.Sprintf("h%d-h%d", t.src, t.dst) {
			return nil, about.Usage(fmt.Errorf("--trace %q: expected two hosts and a file, such as h1-h0=FILE", text))
		}
		if max(t.src, t.dst) >= hosts {
			return nil, about.Usage(fmt.Errorf("--trace %s: no host h%d; hosts are h0 to h%d", t.name, max(t.src, t.dst), hosts-1))
		}
		if t.src == t.dst {
			return nil, about.Usage(fmt.Errorf("--trace %s: a host has no connection to itself; name two hosts", t.name))
		}
		var err error
		if t.out, err = r.create(t.file, t.end); err != nil {
			return nil, about.Usage(err)
		}
		r.traced = append(r.traced, t)
	}
	return func(first, _ *nic.QP, f *workload.Flow) {
		for _, t := range r.traced {
			if t.finish == nil && t.src == f.Src && t.dst == f.Dst {
				t.finish = r.s.TraceTo(t.out, first)
			}
		}
	}, nil
}

// captures starts the requested captures.
func (r *oneRun) captures() error {
	for _, c := range r.o.capture {
		name, file, ok := strings.Cut(c, "=")
		if !ok {
			return about.Usage(fmt.Errorf("--pcapng %q: expected LINK=FILE", c))
		}
		links, err := r.s.Cluster().Network().Named(name)
		if err != nil {
			return about.Usage(fmt.Errorf("--pcapng: %w; `rocesim topology show %s` lists them", err, r.name))
		}
		var failed func() error
		w, err := r.create(file, func() error { return failed() })
		if err != nil {
			return about.Usage(err)
		}
		if failed, err = r.s.CaptureTo(w, links...); err != nil {
			return err
		}
	}
	return nil
}

// watcher returns a function for Simulation.Watch that stops the simulation when ctx ends, and shows its progress.
func (r *oneRun) watcher(ctx context.Context) func() error {
	last := time.Now()
	var e progress.Estimate
	return func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		now := time.Now()
		if !r.progress || now.Sub(last) < time.Second {
			return nil
		}
		last = now
		p := r.s.Progress()
		line := fmt.Sprintf("%.3f ms simulated, %d messages done, %d under way", p.Now.Seconds()*1e3, p.Done, p.Under)
		if left, ok := e.Left(now, p.Part); ok && p.Part < 1 {
			line += fmt.Sprintf(", about %v left", left)
		}
		fmt.Fprintln(r.diag, line)
		return nil
	}
}
