package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/internal/sim/sweep"
)

// sweepOptions are the options of `rocesim sweep`.
type sweepOptions struct {
	vary     []string
	seeds    string
	out      string
	format   string
	parallel int
	quiet    bool
	batch    batch
}

// noTables is the value of --format that writes no tables.
const noTables = "none"

func (a *app) sweep() *cobra.Command {
	var o sweepOptions
	c := &cobra.Command{
		Use:   "sweep SCENARIO --vary KEY=A,B,C ... --out FOLDER",
		Short: "Run a scenario with all combinations of values",
		Long: `Runs a scenario with all combinations of the values of some keys, on all processors, and
collects the results (see rocesim collect). It lists invalid combinations and leaves them out.

A run's result appears in the folder only when it is complete. After an interrupt or a crash the
same command continues with the missing runs. With --slurm or --kubernetes it runs nothing: it
writes the script of a job array or the manifest of an Indexed Job, for machines that share the
folder.`,
		Example: `  rocesim sweep configs/sim/incast.yaml --vary transport.profile=rc,irn --vary workload.0.senders=5,10,30 --seeds 1..3 --out s
  rocesim sweep configs/sim/websearch.yaml --vary 'switch.balance=[{name: ecmp}, {name: drill, samples: 2}]' --out s --format csv
  rocesim sweep configs/sim/incast.yaml --vary workload.0.size=64KB,1MB --out /shared/s --slurm     then: sbatch /shared/s/slurm.sh
  rocesim sweep configs/sim/incast.yaml --vary workload.0.size=64KB,1MB --out s --kubernetes --image rocesim:1 --claim sweeps`,
		Args: about.Words(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return a.doSweep(c.Context(), args[0], &o) },
	}
	a.changes(c)
	f := c.Flags()
	f.StringArrayVar(&o.vary, "vary", nil, "KEY=A,B,C: a key of the scenario and its values, as YAML")
	f.StringVar(&o.seeds, "seeds", "", "seed or range of seeds, such as 1..10")
	f.StringVarP(&o.out, "out", "o", "", "folder of the sweep (required)")
	f.StringVar(&o.format, "format", noTables, "format of the tables of each run: none, csv, hpcc or conweave")
	f.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "number of concurrent runs")
	about.Varies(f.Lookup("parallel"), "as many as processors")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	o.batch.flags(f)
	return c
}

func (a *app) doSweep(ctx context.Context, name string, o *sweepOptions) error {
	if o.out == "" {
		return about.Usage(errors.New("a sweep requires --out FOLDER"))
	}
	if o.format != noTables {
		if err := checkFormat(o.format); err != nil {
			return err
		}
	}
	if err := o.batch.check(); err != nil {
		return err
	}
	plan, err := a.plan(o)
	if err != nil {
		return about.Usage(err)
	}
	files, title, err := try(name, plan, a.force)
	if err != nil {
		return about.Usage(err)
	}
	a.showRefused(plan)
	f, err := sweep.Create(o.out, plan, files)
	if errors.Is(err, sweep.ErrOther) {
		return about.Usage(err)
	}
	if err != nil {
		return err
	}
	if o.batch.wanted() {
		return a.writeBatch(f, &o.batch, title)
	}
	if err := a.work(ctx, f, sweep.Work{Parallel: o.parallel}, o.quiet); err != nil {
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(a.diag, "rocesim: %s keeps the completed runs; the same command continues\n", o.out)
		}
		return err
	}
	return a.collectFrom(f)
}

// plan returns the combinations of --set, --vary and the seeds.
func (a *app) plan(o *sweepOptions) (*sweep.Plan, error) {
	var axes []sweep.Axis
	for _, s := range a.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--set %q is not key=value", s)
		}
		axes = append(axes, sweep.Axis{Key: key, Values: []string{value}})
	}
	for _, v := range o.vary {
		x, err := sweep.ParseAxis(v)
		if err != nil {
			return nil, fmt.Errorf("--vary %w", err)
		}
		axes = append(axes, x)
	}
	if o.seeds != "" {
		seeds, err := parseSeeds(o.seeds)
		if err != nil {
			return nil, err
		}
		x := sweep.Axis{Key: "seed"}
		for _, s := range seeds {
			x.Values = append(x.Values, strconv.FormatUint(s, 10))
		}
		axes = append(axes, x)
	}
	format := o.format
	if format == noTables {
		format = ""
	}
	return sweep.NewPlan(format, axes)
}

// try validates the scenario of each run, once per combination without seeds, so that errors appear at once. It moves
// invalid combinations from p.Runs to p.Refused; if all are invalid, it returns the first error. force accepts large ones. It returns the files
// that the sweep needs, including the scenario, and the scenario's name.
func try(name string, p *sweep.Plan, force bool) (files map[string][]byte, title string, err error) {
	text, err := bounded.ReadFile(name, bounded.Text)
	if err != nil {
		return nil, "", err
	}
	files = map[string][]byte{sweep.Scenario: text}
	load := func(file string) ([]byte, error) {
		b, err := beside(name)(file)
		switch {
		case err != nil || filepath.IsAbs(file):
		case !filepath.IsLocal(file) || file == sweep.Scenario:
			err = fmt.Errorf("a sweep copies the files that its scenario names: %s must be beside it, or absolute", file)
		default:
			files[file] = b
		}
		return b, err
	}
	valid := map[string]bool{}
	var runs [][]string
	var first error
	for i, run := range p.Runs {
		set := p.Set(i)
		others := strings.Join(slices.DeleteFunc(slices.Clone(set), func(s string) bool { return strings.HasPrefix(s, "seed=") }), ", ")
		if _, tried := valid[others]; !tried {
			f, err := scenario.Read(name, text, set)
			if err == nil {
				title, f.Force = f.Name, force
				_, err = f.Config(load)
			}
			if valid[others] = err == nil; err != nil {
				err = fmt.Errorf("%s: %w", others, err)
				first = cmp.Or(first, err)
				p.Refused = append(p.Refused, err.Error())
			}
		}
		if valid[others] {
			runs = append(runs, run)
		}
	}
	if p.Runs = runs; len(runs) == 0 {
		return nil, "", first
	}
	return files, title, nil
}

// showRefused lists the combinations that a sweep leaves out.
func (a *app) showRefused(p *sweep.Plan) {
	for _, r := range p.Refused {
		fmt.Fprintf(a.diag, "rocesim: refused, and left out: %s\n", r)
	}
}

// workCommand is the command that jobs of a cluster run.
func (a *app) workCommand() *cobra.Command {
	var shard string
	var quiet bool
	w := sweep.Work{}
	c := &cobra.Command{
		Use:   "work FOLDER",
		Short: "Continue a sweep, or run a part of it",
		Long: `Does the missing runs of a sweep that rocesim sweep has begun: all of them, or the K-th of N
parts, so that several machines can share a sweep. The results stay in the folder.`,
		Example: `  rocesim work s
  rocesim work /shared/s --shard 3/40 --parallel 1`,
		Args: about.Words(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			f, err := sweep.Open(args[0])
			if err != nil {
				return about.Usage(err)
			}
			if w.Shard, err = sweep.ParseShard(shard); err != nil {
				return about.Usage(err)
			}
			return a.work(c.Context(), f, w, quiet)
		},
	}
	c.Flags().StringVar(&shard, "shard", "", "K/N: do only the K-th of N parts, such as 2/4; 0/4 is the same as 4/4")
	c.Flags().IntVar(&w.Parallel, "parallel", runtime.GOMAXPROCS(0), "number of concurrent runs")
	about.Varies(c.Flags().Lookup("parallel"), "as many as processors")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "do not show progress")
	return c
}

// work does w in a sweep.
func (a *app) work(ctx context.Context, f *sweep.Folder, w sweep.Work, quiet bool) error {
	w.Do = func(ctx context.Context, run int, dir string, report func(float64)) error {
		res, err := simulate(ctx, filepath.Join(f.Dir, sweep.Scenario), f.Plan.Set(run), report)
		if res != nil {
			if err := writeRun(dir, f.Plan.Format, res); err != nil {
				return err
			}
		}
		return err
	}
	if !quiet {
		w.Tell = a.tell()
	}
	return f.Work(ctx, w)
}

// tell returns a function that prints progress, at most once per second.
func (a *app) tell() func(p sweep.Progress) {
	var last time.Time
	return func(p sweep.Progress) {
		if p.Done < p.All && time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		line := fmt.Sprintf("%d of %d runs done", p.Done, p.All)
		if p.Failed > 0 {
			line += fmt.Sprintf(", %d failed", p.Failed)
		}
		if p.Left > 0 {
			line += fmt.Sprintf(", about %v left", p.Left)
		}
		fmt.Fprintln(a.diag, line)
	}
}

// simulate runs a scenario once. An error of the simulation is sweep.Failed.
func simulate(ctx context.Context, name string, set []string, report func(part float64)) (*result.Result, error) {
	text, err := bounded.ReadFile(name, bounded.Text)
	if err != nil {
		return nil, err
	}
	f, err := scenario.Read(name, text, set)
	if err != nil {
		return nil, err
	}
	f.Force = true // the sweep has been accepted
	c, err := f.Config(beside(name))
	if err != nil {
		return nil, err
	}
	s, err := sim.New(c)
	if err != nil {
		return nil, sweep.Failed{Err: err}
	}
	s.Interrupted = func() bool { return ctx.Err() != nil }
	s.Watch = func() error {
		report(s.Progress().Part)
		return ctx.Err()
	}
	res, err := s.Run()
	if err != nil && ctx.Err() == nil {
		err = sweep.Failed{Err: err}
	}
	return res, err
}

// writeRun writes the results of a run: its summary, and tables if format is set.
func writeRun(dir, format string, res *result.Result) error {
	if format != "" {
		return writeTables(dir, format, res)
	}
	return writeSummary(dir, res)
}
