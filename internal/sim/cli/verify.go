package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/papers"
)

// verifyPapers is `rocesim papers verify`.
func (a *app) verifyPapers() *cobra.Command {
	var o papersOptions
	full := false
	c := &cobra.Command{
		Use:   "verify ROW...",
		Short: "Repeat stored runs of rows and compare their bytes",
		Long: `Runs the fast form of each row again, with the seeds of the results in the folder stored of the
rows, and compares all numbers with them. The exit code is 1 if a number differs.`,
		Example: `  rocesim papers verify irn-1 melo-3
  rocesim papers verify mp-5 --full`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.doVerify(c.Context(), args, &o, full) },
	}
	o.common(c)
	c.Flags().BoolVar(&full, "full", false, "repeat the full form")
	return c
}

func (a *app) doVerify(ctx context.Context, ids []string, o *papersOptions, full bool) error {
	_, rows, err := load(o.rows, ids)
	if err != nil {
		return err
	}
	dir := papers.Stored(o.rows)
	var list []*papers.Verified
	differs := 0
	for _, r := range rows {
		if err := papers.CheckSum(dir, r.ID); err != nil {
			return err
		}
		rec, err := papers.ReadRecord(dir, r.ID)
		if err != nil {
			return err
		}
		w := &papers.Work{Dir: o.out, Fast: !full, Parallel: o.parallel}
		if !o.quiet {
			w.Tell = a.tell()
		}
		v, err := w.Verify(ctx, r, rec)
		if err != nil {
			return err
		}
		list, differs = append(list, v), differs+len(v.Differs)
	}
	if err := a.showVerified(list); err != nil {
		return err
	}
	if differs > 0 {
		return fmt.Errorf("%d runs differ from the stored ones", differs)
	}
	return nil
}

func (a *app) showVerified(list []*papers.Verified) error {
	if a.json {
		return output.JSON(a.out, list)
	}
	for _, v := range list {
		fmt.Fprintf(a.out, "%s (%s form): %d of %d runs have the stored numbers\n", v.ID, v.Form, v.Runs-len(v.Differs), v.Runs)
		for _, d := range v.Differs {
			fmt.Fprintf(a.out, "  %s\n", d)
		}
	}
	return nil
}

// documentPapers is `rocesim papers document`.
func (a *app) documentPapers() *cobra.Command {
	var o papersOptions
	c := &cobra.Command{
		Use:   "document",
		Short: "Write the pages of results from the stored runs",
		Long: `Writes papers.md, a page of each paper, the pictures and the checksums of the stored runs. Runs
of other settings than today's, of several builds, or with seeds that were seen before have
no verdict.`,
		Example: `  rocesim papers document --docs docs/results`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, _, err := load(o.rows, nil)
			if err != nil {
				return err
			}
			return document(o.rows, o.docs, all)
		},
	}
	c.Flags().StringVar(&o.rows, "rows", "configs/sim/papers", "folder of the scenarios")
	c.Flags().StringVar(&o.docs, "docs", "docs/results", "folder of the pages")
	return c
}

// document writes the pages.
func document(dir, docs string, rows []*papers.Row) error {
	sets, err := papers.LoadParameters(dir)
	if err != nil {
		return about.Usage(err)
	}
	return papers.Document(docs, papers.Stored(dir), rows, sets)
}
