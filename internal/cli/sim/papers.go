package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/cli/about"
	"roced.io/roced/internal/sim/papers"
)

// papersOptions are the options of `rocesim papers`.
type papersOptions struct {
	rows, out, docs string
	fast, quiet     bool
	seeds, parallel int
}

func (a *app) papers() *cobra.Command {
	var o papersOptions
	c := &cobra.Command{
		Use:   "papers [ID...]",
		Short: "Reproduce results of papers and judge them",
		Long: `Runs the scenarios of a folder that have a paper block: each is a result of a paper. Prints
the paper's statement, the measured values and the verdict: reproduced, direction only, or not
reproduced (docs/results/papers.md defines them). With --docs it also writes the results, and
papers.md with pictures, as make papers does into docs/results.

Completed runs are kept: after an interrupt the same command continues. It repeats the runs of
rows that have changed. It does not detect another build of rocesim: use another folder then.
The exit code is 1 if a row's fast form is worse than its file expects, or a run is missing.`,
		Example: `  rocesim papers --fast                   smaller settings that show the same directions, in minutes
  rocesim papers                          the full settings, in a night
  rocesim papers melo-1 irn-1 --seeds 5   some rows, with five seeds each
  rocesim papers eu-2 --fast --json
  rocesim papers --docs docs/results      also write the document`,
		RunE: func(c *cobra.Command, args []string) error { return a.doPapers(c.Context(), args, &o) },
	}
	f := c.Flags()
	f.StringVar(&o.rows, "rows", "configs/sim/papers", "folder of the scenarios")
	f.StringVarP(&o.out, "out", "o", "out/papers", "folder of the runs")
	f.StringVar(&o.docs, "docs", "", "write papers.md and results into this folder")
	f.BoolVar(&o.fast, "fast", false, "run the fast forms")
	f.IntVar(&o.seeds, "seeds", 0, "seeds of each run (default: as in the row, or 3 in full and 1 in fast forms)")
	f.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "number of concurrent runs")
	about.Varies(f.Lookup("parallel"), "as many as processors")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	return c
}

func (a *app) doPapers(ctx context.Context, ids []string, o *papersOptions) error {
	all, err := papers.Load(o.rows)
	if err != nil {
		return usageError{err}
	}
	rows, err := chosen(all, ids)
	if err != nil {
		return usageError{err}
	}
	w := &papers.Work{Dir: o.out, Fast: o.fast, Seeds: o.seeds, Parallel: o.parallel}
	if !o.quiet {
		w.Tell = a.tell()
	}
	if err := w.Run(ctx, rows); err != nil {
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(a.diag, "rocesim: %s keeps the completed runs; the same command continues\n", o.out)
		}
		return err
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
		if err := papers.Document(o.docs, all); err != nil {
			return err
		}
	}
	return errors.Join(append(worse, a.showPapers(summaries))...)
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
	dir := filepath.Join(o.docs, "papers")
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
		return a.encode(rows)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "id\tpaper says\tmeasured\tverdict")
	for _, s := range rows {
		fmt.Fprintf(w, "%s\t%s\t\t%s (%s)\n", s.ID, s.Title, s.Verdict, s.Form)
		for _, c := range s.Claims {
			fmt.Fprintf(w, "\t%s: %v\t%s\t%s\n", c.Says, c.Paper, c.Text(), pick(c.Why == "", c.Verdict.String(), c.Verdict.String()+": "+c.Why))
		}
	}
	return w.Flush()
}
