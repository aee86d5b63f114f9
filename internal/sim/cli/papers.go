package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/papers"
	"roced.io/roced/internal/sim/sweep"
)

// papersOptions are the options of `rocesim papers`.
type papersOptions struct {
	rows, out, docs string
	fast, quiet     bool
	precise         bool
	seeds, parallel int
	first           int
	shard           string
}

func (a *app) papers() *cobra.Command {
	var o papersOptions
	c := &cobra.Command{
		Use:   "papers [ID...]",
		Short: "Reproduce results of papers and judge them",
		Long: `Runs the scenarios of a folder that have a paper block: each is a result of a paper. Prints
the measured values with their confidence intervals and the verdicts (docs/results/papers.md
defines them). With --docs it also writes the results into the folder stored of the rows, and the
pages, as make papers does.

Completed runs are kept: after an interrupt the same command continues. It repeats the runs of
rows that have changed. Results of several builds of rocesim have no verdict: use another
folder for each build.
Fast forms have no verdict: the exit code is 1 if a value of one is worse than its file expects, or
a run is missing.`,
		Example: `  rocesim papers --fast                       smaller settings that show the same directions, in minutes
  rocesim papers                              the full settings, in a night
  rocesim papers irn-1 --precise              with as many seeds as the precision needs
  rocesim papers --shard 2/4                  a quarter of the runs; copy the folders together afterwards
  rocesim papers eu-2 --fast --json
  rocesim papers --docs docs/results          also write the pages`,
		RunE: func(c *cobra.Command, args []string) error { return a.doPapers(c.Context(), args, &o) },
	}
	o.common(c)
	f := c.Flags()
	f.StringVar(&o.docs, "docs", "", "store the results, and write papers.md and the pages into this folder")
	f.BoolVar(&o.fast, "fast", false, "run the fast forms of the rows")
	f.IntVar(&o.first, "first-seed", 0, "seed of the first run (default: 101 in full forms, 1 in fast ones)")
	f.BoolVar(&o.precise, "precise", false, "add seeds, to at most 20, until intervals are narrow enough")
	f.StringVar(&o.shard, "shard", "", "run only a part, such as 2/4, and print no results")
	f.IntVar(&o.seeds, "seeds", 0, "seeds of each run (default: as in the row, or 3 in full and 1 in fast forms)")
	c.AddCommand(a.verifyPapers(), a.documentPapers(), a.exportPapers())
	return c
}

// common adds the flags that all commands with runs have.
func (o *papersOptions) common(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.rows, "rows", "configs/sim/papers", "folder of the scenarios")
	f.StringVarP(&o.out, "out", "o", "out/papers", "folder of the runs")
	f.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "number of concurrent runs")
	about.Varies(f.Lookup("parallel"), "as many as processors")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
}

func (a *app) doPapers(ctx context.Context, ids []string, o *papersOptions) error {
	all, rows, err := load(o.rows, ids)
	if err != nil {
		return err
	}
	if o.first < 0 {
		return about.Usage(fmt.Errorf("--first-seed %d: must be at least 1", o.first))
	}
	shard, err := sweep.ParseShard(o.shard)
	switch {
	case err != nil:
		return about.Usage(err)
	case o.shard != "" && (o.precise || o.docs != ""):
		return about.Usage(errors.New("--shard excludes --precise and --docs: run them afterwards, with the runs of all shards"))
	}
	w := &papers.Work{Dir: o.out, Fast: o.fast, Seeds: o.seeds, First: o.first, Parallel: o.parallel, Shard: shard}
	if !o.quiet {
		w.Tell = a.tell()
	}
	run := pick(o.precise, w.RunPrecisely, w.Run)
	if err := run(ctx, rows); err != nil {
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(a.diag, "rocesim: %s keeps the completed runs; the same command continues\n", o.out)
		}
		return err
	}
	if o.shard != "" {
		return nil
	}
	var summaries []papers.Summary
	var worse []error
	for _, r := range rows {
		if o.fast && r.Paper.Fast.Skip {
			continue
		}
		f, err := w.Collect(r)
		if err != nil {
			return err
		}
		if o.docs != "" {
			if err := record(r, f, o); err != nil {
				return err
			}
		}
		form := "full"
		if o.fast {
			form = "fast"
			worse = append(worse, r.Unexpected(f))
		}
		summaries = append(summaries, r.Summarize(f, form))
	}
	if o.docs != "" {
		if err := document(o.rows, o.docs, all); err != nil {
			return err
		}
	}
	return errors.Join(append(worse, a.showPapers(summaries))...)
}

// load returns all rows of a folder, and those with these names.
func load(dir string, ids []string) (all, rows []*papers.Row, err error) {
	if all, err = papers.Load(dir); err == nil {
		rows, err = chosen(all, ids)
	}
	if err != nil {
		return nil, nil, about.Usage(err)
	}
	return all, rows, nil
}

// chosen returns the rows with these names, or all.
func chosen(all []*papers.Row, ids []string) (rows []*papers.Row, err error) {
	if len(ids) == 0 {
		return all, nil
	}
	for _, id := range ids {
		i := slices.IndexFunc(all, func(r *papers.Row) bool { return r.ID == id })
		if i < 0 {
			return nil, fmt.Errorf("no row %q", id)
		}
		rows = append(rows, all[i])
	}
	return rows, nil
}

// record stores the results of a row.
func record(r *papers.Row, f *papers.Found, o *papersOptions) error {
	dir := papers.Stored(o.rows)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	rec, err := papers.ReadRecord(dir, r.ID)
	if err != nil {
		return err
	}
	if rec.Full = pick(!o.fast, f, rec.Full); o.fast {
		rec.Fast = f
	}
	if rec.Estimate, err = r.Estimate(false, r.Seeds(false, 0)); err != nil {
		return err
	}
	return rec.Write(dir, r.ID)
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// showPapers prints a line for each row.
func (a *app) showPapers(rows []papers.Summary) error {
	if a.json {
		return output.JSON(a.out, rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "id\tclaim\tpaper\tmeasured\tverdict")
	for _, s := range rows {
		fmt.Fprintf(w, "%s\t%s\t\t\t(%s)\n", s.ID, s.Title, s.Form)
		for _, c := range s.Claims {
			verdict := pick(c.Why == "", c.Verdict.String(), c.Verdict.String()+": "+c.Why)
			fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", c.Says, c.Paper, c.Text(), pick(s.Form == "fast", "fast form, no verdict", verdict))
		}
	}
	return w.Flush()
}
