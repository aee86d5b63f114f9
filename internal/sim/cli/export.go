package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/papers"
)

// exportPapers is `rocesim papers export`.
func (a *app) exportPapers() *cobra.Command {
	var o papersOptions
	c := &cobra.Command{
		Use:   "export ROW...",
		Short: "Write the raw data of rows' claims",
		Long: `Runs each row again and writes a folder for it: for each number of a claim, run and seed a file
with all values that the number is computed from (of each flow, connection, call or sample).
index.csv leads from claims to files; SHA256SUMS has the checksums.`,
		Example: `  rocesim papers export irn-8 --fast --out out/raw
  rocesim papers export mp-8 --first-seed 101 --seeds 5`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.doExport(c.Context(), args, &o) },
	}
	f := c.Flags()
	f.StringVar(&o.rows, "rows", "configs/sim/papers", "folder of the scenarios")
	f.StringVarP(&o.out, "out", "o", "out/raw", "folder of the data")
	f.BoolVar(&o.fast, "fast", false, "run the fast forms of the rows")
	f.IntVar(&o.first, "first-seed", 0, "seed of the first run (default: 101 in full forms, 1 in fast ones)")
	f.IntVar(&o.seeds, "seeds", 0, "seeds of each run (default: as in the row, or 3 in full and 1 in fast forms)")
	return c
}

func (a *app) doExport(ctx context.Context, ids []string, o *papersOptions) error {
	_, rows, err := load(o.rows, ids)
	if err != nil {
		return err
	}
	if o.first < 0 {
		return about.Usage(fmt.Errorf("--first-seed %d: must be at least 1", o.first))
	}
	var list []*papers.Exported
	for _, r := range rows {
		w := &papers.Work{Fast: o.fast, Seeds: o.seeds, First: o.first}
		x, err := w.Export(ctx, r, o.out)
		if err != nil {
			return err
		}
		list = append(list, x)
	}
	if a.json {
		return output.JSON(a.out, list)
	}
	for _, x := range list {
		fmt.Fprintf(a.out, "%s: %d files in %s\n", x.ID, x.Files, x.Dir)
	}
	return nil
}
