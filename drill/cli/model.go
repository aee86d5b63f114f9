package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/model"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/interrupt"
	"roced.io/roced/internal/base/output"
)

// modelFlags are the flags of model.
type modelFlags struct {
	deviceFlags
	o       model.Options
	minutes float64
	keep    string
	known   string
}

// progressPause is the time between two lines of progress.
const progressPause = 10 * time.Second

// defaultSteps is the length of a run that no flag limits.
const defaultSteps = 20_000

func (a *app) model() *cobra.Command {
	f := modelFlags{}
	c := &cobra.Command{
		Use: "model", Short: "Test a device by random sequences",
		Long: `Sends random valid and invalid packets to a device (--dut, as for run), drives its verbs, and
compares what it does with a model of the rules. Where a rule leaves a choice, the model
permits all of it. --seed determines the sequences. A sequence that fails is made as short
as possible and written as a script, which rocedrill run repeats.

Some rules are policies: a device that does otherwise differs and does not fail. Rules that
--known lists may fail, too; the rest of their sequences is not checked.

Exit codes: 0 no failure, 1 a rule failed, 2 the command line is wrong, 3 the device or its
agent does not answer, 130 interrupted: the report has the sequences that have ended.`,
		Example: `  rocedrill model --dut virtual --steps 100000
  rocedrill model --dut roced --minutes 5 --seed 7
  rocedrill model --dut 'agent:ssh host rocedrill-agent' --link eth1 --minutes 60 --failures 10 --keep found`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 || f.o.Failures < 1 || !(f.minutes >= 0 && f.minutes <= math.MaxFloat64) || f.o.Steps < 0 {
				return about.Usage(errors.New("usage: rocedrill model [--steps N] [--minutes M] [--failures N], with positive numbers"))
			}
			if f.minutes == 0 && f.o.Steps == 0 {
				f.o.Steps = defaultSteps
			}
			return a.runModel(c.Context(), &f)
		},
	}
	f.add(c.Flags())
	c.Flags().Uint64Var(&f.o.Seed, "seed", 0, "seed of the first sequence; later ones count up")
	c.Flags().IntVar(&f.o.Steps, "steps", 0, fmt.Sprintf("end after this many steps (default %d without --minutes)", defaultSteps))
	c.Flags().Float64Var(&f.minutes, "minutes", 0, "end after this many minutes")
	c.Flags().IntVar(&f.o.Failures, "failures", 1, "end after this many different rules have failed")
	c.Flags().StringVar(&f.known, "known", "", "`FILE` of rules that may fail, each line RULE...: REASON")
	c.Flags().StringVar(&f.keep, "keep", ".", "`FOLDER` for the scripts of failures")
	return c
}

// runModel runs the model and prints the report, also if the device is lost.
func (a *app) runModel(ctx context.Context, f *modelFlags) error {
	if s, err := os.Stat(f.keep); err != nil || !s.IsDir() {
		return about.Usage(fmt.Errorf("--keep %s: must be a folder", f.keep))
	}
	var err error
	if f.o.Known, err = readRules(f.known); err != nil {
		return err
	}
	device, end, err := f.open(ctx, a)
	if err != nil {
		return err
	}
	began := time.Now()
	shown := began
	f.o.Over = func() bool { return f.minutes > 0 && time.Since(began).Minutes() >= f.minutes }
	f.o.Progress = func(r *model.Report) {
		if time.Since(shown) >= progressPause {
			shown = time.Now()
			fmt.Fprintf(a.diag, "%d steps in %d sequences, %d rules failed\n", r.Steps, r.Sequences, r.Failed())
		}
	}
	r, err := model.Run(ctx, device, f.o)
	switch {
	case errors.Is(err, context.Canceled):
		err = interrupt.Errorf("%d sequences have ended; their results are reported", r.Sequences)
	case err != nil && !errors.Is(err, dut.ErrLost):
		err = fmt.Errorf("%w: %w", dut.ErrLost, err)
	}
	a.keepFailures(r, f.keep)
	if err = cmp.Or(err, a.printModel(r, time.Since(began)), end()); err == nil && r.Failed() > 0 {
		return errFailed
	}
	return err
}

// keepFailures writes the scripts of failures. Those that cannot be written have no File.
func (a *app) keepFailures(r *model.Report, folder string) {
	for i := range r.Failures {
		f := &r.Failures[i]
		if f.Known != "" {
			continue
		}
		f.File = filepath.Join(folder, fmt.Sprintf("model-%d.drill", f.Seed))
		if err := output.Write(f.File, []byte(f.Script)); err != nil {
			fmt.Fprintf(a.diag, "rocedrill: the script of %s is not kept: %v\n", f.Rule, err)
			f.File = ""
		}
	}
}

// printModel prints the failures and the sums, or everything in JSON.
func (a *app) printModel(r *model.Report, took time.Duration) error {
	if a.json {
		return output.JSON(a.out, r)
	}
	for _, f := range r.Failures {
		outcome, more := engine.Failed.String(), cmp.Or(f.File, "its script is not kept")
		switch {
		case f.Known != "":
			outcome, more = known, known+": "+f.Known
		case !f.Reproduced:
			more += "; it passes when it is repeated"
		}
		if f.Policy && f.Known == "" {
			outcome = differs
		}
		fmt.Fprintf(a.out, "%-14s %s (%s): %s\n%15s%s\n", outcome, f.Rule, f.Spec, f.Reason, "", more)
	}
	_, err := fmt.Fprintf(a.out, "%d steps in %d sequences in %v, %d not applicable, %d inconclusive, %d rules failed\n", r.Steps, r.Sequences, took.Round(time.Second),
		r.NotApplicable, r.Inconclusive, r.Failed())
	return err
}
