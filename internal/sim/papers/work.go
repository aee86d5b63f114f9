package papers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/progress"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/internal/sim/sweep"
)

// Measured is the result of a run.
type Measured struct {
	Numbers       map[string]float64 `json:"numbers"`
	Transmissions uint64             `json:"link_transmissions"`
	Seconds       float64            `json:"seconds"` // duration of the run
	// Megabytes is the most memory that the process had until the end of the run, with the runs beside it.
	Megabytes float64 `json:"megabytes,omitempty"`
	// Unfinished is the percentage of flows that did not finish or failed. Runs of earlier builds do not have it.
	Unfinished *float64 `json:"unfinished_percent,omitempty"`
	// Halves are, by number, the second half of the measurement over the first one.
	Halves map[string]float64 `json:"halves,omitempty"`
	Error  string             `json:"error,omitempty"`
	// Origin is nil in runs of earlier builds.
	Origin *Origin `json:"origin,omitempty"`
}

// Found has the results of a row in one form, by run and seed.
type Found struct {
	// First is the seed of the first run; 0 means 1.
	First int `json:"first_seed,omitempty"`
	// Setting identifies the scenarios with which the runs were done. Runs of earlier builds have none.
	Setting string `json:"setting,omitempty"`
	// Bytes is the size of the folders of the runs.
	Bytes int64                 `json:"bytes,omitempty"`
	Runs  map[string][]Measured `json:"runs"`
}

// seeds returns the number of seeds of a run.
func (f *Found) seeds(series, point string) int {
	x := Run{Series: series, Point: point}
	return len(f.Runs[x.Key()])
}

// most returns the greatest number of seeds of a run.
func (f *Found) most() (n int) {
	for _, ms := range f.Runs {
		n = max(n, len(ms))
	}
	return n
}

// planned reports whether a run is part of f.
func (f *Found) planned(series, point, other string) bool {
	x := Run{Series: series, Point: point, Other: other}
	_, ok := f.Runs[x.Key()]
	return ok
}

// has reports whether the runs of a claim at a point are part of f.
func (f *Found) has(c *scenario.Claim, point, other string) bool {
	return f.planned(c.Of, point, other) && (c.Over == "" || f.planned(c.Over, point, other))
}

// values returns the values of a claim at a point, by seed; nil if one is missing.
func (f *Found) values(c *scenario.Claim, point, other string) []float64 {
	of := f.number(c.Of, point, other, c.Number)
	if c.Over != "" {
		of = quotients(of, f.number(c.Over, point, other, cmp.Or(c.Base, c.Number)))
	}
	if c.From != "" {
		from := *c
		from.From = ""
		of = quotients(of, f.values(&from, c.From, other))
	}
	return of
}

// quotients divides values by seed; nil if one is missing.
func quotients(of, over []float64) []float64 {
	if of == nil || len(over) != len(of) {
		return nil
	}
	values := make([]float64, len(of))
	for i := range of {
		values[i] = of[i] / over[i]
	}
	return values
}

func (f *Found) number(series, point, other, name string) (values []float64) {
	x := Run{Series: series, Point: point, Other: other}
	for _, m := range f.Runs[x.Key()] {
		v, ok := m.Numbers[name]
		if !ok {
			return nil
		}
		values = append(values, v)
	}
	return values
}

const measuredFile = "measured.json"

// Work describes how to run rows.
type Work struct {
	Dir      string // folder of the runs
	Fast     bool
	Seeds    int         // 0: as the row says
	First    int         // seed of the first run; 0 means 1 in fast forms and firstUnseen in full ones
	Parallel int         // concurrent runs
	Shard    sweep.Shard // of the folders of runs
	// Tell is called after each run and report of its part, without the number of failed ones; may be nil.
	Tell func(p sweep.Progress)

	more map[string]int // seeds of rows, if more than usual
}

// Run does the runs of rows that have not completed.
func (w *Work) Run(ctx context.Context, rows []*Row) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := &turns{free: make(chan struct{}, max(w.Parallel, 1)), tell: w.Tell, of: map[string]sweep.Progress{}}
	var wait sync.WaitGroup
	n := 0
	for _, r := range rows {
		if w.Fast && r.Paper.Fast.Skip {
			continue
		}
		for _, seed := range w.seeds(r) {
			if n++; !w.Shard.Has(n) {
				continue
			}
			f, err := w.folder(r, seed)
			if err != nil {
				cancel(err)
				break
			}
			wait.Go(func() {
				if err := f.Work(ctx, w.work(t, r, f, seed)); err != nil {
					cancel(err)
				}
			})
		}
	}
	wait.Wait()
	return context.Cause(ctx)
}

// first returns the first seed.
func (w *Work) first() int {
	if w.First == 0 && !w.Fast {
		return firstUnseen
	}
	return max(w.First, 1)
}

// seeds returns the seeds of a row.
func (w *Work) seeds(r *Row) (seeds []int) {
	for i := range max(r.Seeds(w.Fast, w.Seeds), w.more[r.ID]) {
		seeds = append(seeds, w.first()+i)
	}
	return seeds
}

// runs returns the runs of a row with a seed. Alternative settings are measured with the first seed only.
func (w *Work) runs(r *Row, seed int) []Run {
	return slices.DeleteFunc(r.Runs(w.Fast), func(x Run) bool { return seed > w.first() && x.Other != "" })
}

// RunPrecisely does the runs of rows, and adds seeds to those whose intervals are too wide. Only the width decides, never
// a verdict.
func (w *Work) RunPrecisely(ctx context.Context, rows []*Row) error {
	for w.more = map[string]int{}; ; {
		if err := w.Run(ctx, rows); err != nil {
			return err
		}
		again := false
		for _, r := range rows {
			f, err := w.Collect(r)
			if err != nil {
				return err
			}
			n := len(w.seeds(r))
			if f != nil && n < mostSeeds && !r.own() && !r.precise(f) {
				w.more[r.ID], again = min(n+max(n/2, 2), mostSeeds), true
			}
		}
		if !again {
			return nil
		}
	}
}

// folder creates or opens the folder of a row's runs with a seed.
func (w *Work) folder(r *Row, seed int) (*sweep.Folder, error) {
	text, err := r.Scenario(w.Fast)
	if err != nil {
		return nil, err
	}
	dir, err := r.Folder(w.Dir, w.Fast, seed)
	if err != nil {
		return nil, err
	}
	p := &sweep.Plan{Vary: []string{"run", "seed"}}
	for _, x := range w.runs(r, seed) {
		p.Runs = append(p.Runs, []string{x.Key(), strconv.Itoa(seed)})
	}
	return sweep.Create(dir, p, map[string][]byte{sweep.Scenario: text})
}

// work does the runs of a folder, sharing the processors with all other folders.
func (w *Work) work(t *turns, r *Row, f *sweep.Folder, seed int) sweep.Work {
	runs := w.runs(r, seed)
	return sweep.Work{Parallel: w.Parallel,
		Do: func(ctx context.Context, run int, dir string, report func(float64)) error {
			select {
			case t.free <- struct{}{}:
				defer func() { <-t.free }()
			case <-ctx.Done():
				return ctx.Err()
			}
			m, err := w.measured(ctx, r, &runs[run], seed, report)
			if m != nil {
				text, err := json.Marshal(m)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, measuredFile), text, 0o644)
				}
				if err != nil {
					return err
				}
			}
			return err
		},
		Tell: func(p sweep.Progress) { t.progress(f.Dir, p) }}
}

// measured simulates a run, or returns the result of the same run of another row: rows with the same baseline share
// it.
func (w *Work) measured(ctx context.Context, r *Row, x *Run, seed int, report func(float64)) (*Measured, error) {
	text, err := r.alone(x, seed)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(w.Dir, "shared", fmt.Sprintf("%x.json", sha256.Sum256(text)))
	m := &Measured{}
	if old, err := os.ReadFile(name); err == nil {
		return m, json.Unmarshal(old, m)
	}
	if m, err = r.simulate(ctx, x, seed, report); err != nil {
		return m, err
	}
	if text, err = json.Marshal(m); err == nil {
		err = os.MkdirAll(filepath.Dir(name), 0o755)
	}
	if err == nil {
		err = sweep.WriteFile(name, text)
	}
	return m, err
}

// turns shares the processors among all folders and reports their progress.
type turns struct {
	free chan struct{}
	tell func(p sweep.Progress)

	mu sync.Mutex
	of map[string]sweep.Progress
	// before is the number of runs that had completed before.
	before   int
	estimate progress.Estimate
}

func (t *turns) progress(dir string, p sweep.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.of[dir]; !known {
		t.before += p.Done
	}
	t.of[dir] = p
	var sum sweep.Progress
	for _, p := range t.of {
		sum.Done, sum.All, sum.Parts = sum.Done+p.Done, sum.All+p.All, sum.Parts+p.Parts
	}
	if left := sum.All - t.before; left > 0 {
		sum.Left, _ = t.estimate.Left(time.Now(), (float64(sum.Done-t.before)+sum.Parts)/float64(left))
	}
	if t.tell != nil {
		t.tell(sum)
	}
}

// config returns the simulation of a run.
func (r *Row) config(x *Run, seed int) (c sim.Config, err error) {
	f, err := scenario.Read(r.Path, r.Text, append(append([]string{}, x.Set...), "seed="+strconv.Itoa(seed)))
	if err != nil {
		return c, err
	}
	return f.Config(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(r.Path), name)) })
}

// Check verifies that the simulation of each run is valid.
func (r *Row) Check() error {
	var errs []error
	for _, fast := range []bool{false, true} {
		for _, x := range r.Runs(fast) {
			if _, err := r.config(&x, 1); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", x.Key(), err))
			}
		}
	}
	return errors.Join(errs...)
}

func (r *Row) simulate(ctx context.Context, x *Run, seed int, report func(part float64)) (*Measured, error) {
	m, _, _, err := r.observe(ctx, x, seed, report)
	return m, err
}

// observe simulates a run, and reports the part that is done. The probe and the result have the values behind the numbers.
func (r *Row) observe(ctx context.Context, x *Run, seed int, report func(part float64)) (*Measured, *probe, *result.Result, error) {
	began := time.Now()
	c, err := r.config(x, seed)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("%s, %s: %w", r.ID, x.Key(), err)
	}
	p := attach(&c, r.Paper.Numbers)
	s, err := sim.New(c)
	if err != nil {
		return nil, nil, nil, sweep.Failed{Err: err}
	}
	p.sim = s
	s.Interrupted = func() bool { return ctx.Err() != nil }
	s.Watch = func() error {
		report(s.Progress().Part)
		return ctx.Err()
	}
	res, err := s.Run()
	if ctx.Err() != nil {
		return nil, nil, nil, ctx.Err()
	}
	m := &Measured{Seconds: time.Since(began).Seconds(), Megabytes: megabytes(), Origin: originOf(began)}
	if res != nil {
		m.Numbers, m.Transmissions = p.measure(res), res.Transmissions
		m.Unfinished, m.Halves = new(unfinished(res)), p.halves(res)
	}
	if err != nil && !errors.Is(err, sim.ErrUnfinished) {
		m.Error, m.Numbers, m.Unfinished, m.Halves = err.Error(), nil, nil, nil
		return m, nil, nil, sweep.Failed{Err: err}
	}
	return m, p, res, nil
}

// Collect returns the results of a row, nil if some are missing.
func (w *Work) Collect(r *Row) (*Found, error) {
	found := &Found{First: w.first(), Setting: r.setting(w.Fast), Runs: map[string][]Measured{}}
	for _, seed := range w.seeds(r) {
		runs := w.runs(r, seed)
		dir, err := r.Folder(w.Dir, w.Fast, seed)
		if err != nil {
			return nil, err
		}
		f, err := sweep.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		size, sizeErr := sizeOf(dir)
		if err := errors.Join(err, sizeErr); err != nil {
			return nil, err
		}
		found.Bytes += size
		for i := range runs {
			text, err := os.ReadFile(filepath.Join(f.Run(i), measuredFile))
			if errors.Is(err, os.ErrNotExist) {
				note, err := f.Note(i)
				if note == nil || err != nil {
					return nil, err
				}
				found.Runs[runs[i].Key()] = append(found.Runs[runs[i].Key()], Measured{Error: note.Error})
				continue
			}
			var m Measured
			if err == nil {
				err = json.Unmarshal(text, &m)
			}
			if err != nil {
				return nil, err
			}
			found.Runs[runs[i].Key()] = append(found.Runs[runs[i].Key()], m)
		}
	}
	return found, nil
}

// failures describes the failed runs.
func (f *Found) failures() string {
	var all []string
	for key, ms := range f.Runs {
		for _, m := range ms {
			if m.Error != "" {
				all = append(all, key+": "+m.Error)
			}
		}
	}
	return strings.Join(all, "; ")
}
