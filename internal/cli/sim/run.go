package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"roced/sim"
	"roced/sim/engine"
	"roced/sim/nic"
	"roced/sim/result"
	"roced/sim/workload"
)

// runOptions are those of `rocesim run`.
type runOptions struct {
	seeds   string
	out     string
	svg     string
	trace   []string
	capture []string
	check   bool
	quiet   bool
}

func (a *app) run() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run SCENARIO",
		Short: "Run a scenario",
		Args:  oneFile,
		RunE:  func(c *cobra.Command, args []string) error { return a.runAll(c.Context(), args[0], &o) },
	}
	f := c.Flags()
	f.StringVar(&o.seeds, "seeds", "", "a seed or a range of them, 1..10, instead of the scenario's; they run side by side")
	f.StringVar(&o.seeds, "seed", "", "the same as --seeds")
	f.StringVarP(&o.out, "out", "o", "", "write flows.csv, ports.csv, samples.csv and summary.json into this folder")
	f.StringVar(&o.svg, "svg", "", "draw pictures into this folder")
	f.StringArrayVar(&o.trace, "trace", nil, "h1-h0=FILE: write what the first connection from h1 to h0 does, for rocectl trace draw")
	f.StringArrayVar(&o.capture, "pcapng", nil, "LINK=FILE: write the frames that enter a link")
	f.BoolVar(&o.check, "check", false, "check that no byte is lost or made out of nothing while running")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	return c
}

// runAll runs a scenario once for each seed, on all processors.
func (a *app) runAll(ctx context.Context, name string, o *runOptions) error {
	seeds := []uint64{0}
	if o.seeds != "" {
		var err error
		if seeds, err = parseSeeds(o.seeds); err != nil {
			return err
		}
	}
	if len(seeds) > 1 && len(o.trace)+len(o.capture) > 0 {
		return usageError{errors.New("--trace and --pcapng are of one run: give one seed")}
	}
	results, errs := make([]*result.Result, len(seeds)), make([]error, len(seeds))
	var wait sync.WaitGroup
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, seed := range seeds {
		wait.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			r := &oneRun{app: a, name: name, seed: seed, o: o, several: len(seeds) > 1, progress: !o.quiet && len(seeds) == 1}
			results[i], errs[i] = r.do(ctx)
		})
	}
	wait.Wait()
	for _, r := range results {
		if err := a.show(r); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
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
	progress bool

	s      *sim.Simulation
	finish []func() error
}

func (r *oneRun) do(ctx context.Context) (*result.Result, error) {
	f, err := r.read(r.name, r.seed)
	if err != nil {
		return nil, err
	}
	c, err := f.Config(beside(r.name))
	if err != nil {
		return nil, usageError{err}
	}
	c.Check = r.o.check
	if c.Opened, err = r.tracers(c.Graph.Hosts); err != nil {
		return nil, err
	}
	if c.Sample == 0 && r.o.svg != "" {
		c.Sample = 10 * engine.Microsecond
	}
	if r.s, err = sim.New(c); err != nil {
		return nil, usageError{err}
	}
	if err := r.captures(); err != nil {
		return nil, err
	}
	r.s.Watch = r.watcher(ctx, c.Until)
	res, err := r.s.Run()
	for _, finish := range r.finish {
		err = errors.Join(err, finish())
	}
	if res != nil {
		err = errors.Join(err, r.write(res))
	}
	return res, err
}

// folder is where the files of this run go.
func (r *oneRun) folder(dir string) string {
	if r.several {
		return filepath.Join(dir, fmt.Sprintf("seed-%d", r.seed))
	}
	return dir
}

func (r *oneRun) write(res *result.Result) error {
	if r.o.out != "" {
		dir := r.folder(r.o.out)
		if err := res.WriteCSV(dir); err != nil {
			return err
		}
		b, err := json.MarshalIndent(res.Summary(), "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "summary.json"), append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if r.o.svg != "" {
		files, err := res.WriteSVG(r.folder(r.o.svg))
		if err != nil {
			return err
		}
		if !r.json {
			fmt.Fprintln(r.diag, strings.Join(files, "\n"))
		}
	}
	return nil
}

// create opens a file that is finished at the end of the run.
func (r *oneRun) create(name string, before func() error) (io.Writer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	b := bufio.NewWriter(f)
	r.finish = append(r.finish, func() error { return errors.Join(before(), b.Flush(), f.Close()) })
	return b, nil
}

// tracers returns what is shown connections as they are made, to trace those that are asked for.
func (r *oneRun) tracers(hosts int) (func(a, b *nic.QP, f *workload.Flow), error) {
	files := map[[2]int]string{}
	for _, t := range r.o.trace {
		var src, dst int
		between, file, ok := strings.Cut(t, "=")
		if n, _ := fmt.Sscanf(between, "h%d-h%d", &src, &dst); !ok || n != 2 || src < 0 || dst < 0 || src >= hosts || dst >= hosts {
			return nil, usageError{fmt.Errorf("--trace %q is not like h1-h0=FILE, with two of %d hosts", t, hosts)}
		}
		files[[2]int{src, dst}] = file
	}
	return func(first, _ *nic.QP, f *workload.Flow) {
		key := [2]int{f.Src, f.Dst}
		file, ok := files[key]
		if !ok {
			return
		}
		delete(files, key)
		var finish func() error
		w, err := r.create(file, func() error { return finish() })
		if err != nil {
			r.finish = append(r.finish, func() error { return err })
			return
		}
		finish = r.s.TraceTo(w, first)
	}, nil
}

// captures begins those that are asked for.
func (r *oneRun) captures() error {
	for _, c := range r.o.capture {
		name, file, ok := strings.Cut(c, "=")
		if !ok {
			return usageError{fmt.Errorf("--pcapng %q is not LINK=FILE", c)}
		}
		l, err := r.s.Cluster().Network().Link(name, 0)
		if err != nil {
			return usageError{fmt.Errorf("--pcapng: %w; `rocesim topology %s` lists them", err, r.name)}
		}
		var failed func() error
		w, err := r.create(file, func() error { return failed() })
		if err != nil {
			return err
		}
		if failed, err = r.s.CaptureTo(w, l); err != nil {
			return err
		}
	}
	return nil
}

// watcher returns what is called while the simulation runs: it ends it when the user wants that,
// and shows how far it is.
func (r *oneRun) watcher(ctx context.Context, until engine.Time) func() error {
	began, last := time.Now(), time.Now()
	return func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if now := time.Now(); r.progress && now.Sub(last) > time.Second {
			last = now
			at, ended, running := r.s.Progress()
			line := fmt.Sprintf("%.3f ms simulated, %d messages done, %d under way", at.Seconds()*1e3, ended, running)
			if until > 0 && at > 0 {
				left := time.Duration(float64(now.Sub(began)) * (float64(until)/float64(at) - 1))
				line += fmt.Sprintf(", about %v left", left.Round(time.Second))
			}
			fmt.Fprintln(r.diag, line)
		}
		return nil
	}
}
