// Command bench measures roced beside other software, other builds and its own transports. Each part prints a report in
// Markdown and writes it with --out. All measurements of a report are from one run on one machine: compare only them.
//
//	go run ./internal/lab/bench nic --bin bin --seconds 4 --out docs/results/benchmarks.md
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/lab/bench/compare"
	"roced.io/roced/internal/lab/bench/flor"
	"roced.io/roced/internal/lab/bench/loss"
	"roced.io/roced/internal/lab/bench/measure"
	"roced.io/roced/internal/lab/bench/nic"
	"roced.io/roced/internal/lab/bench/sim"
)

// parts returns the parts of the benchmark.
func parts() []measure.Part {
	return []measure.Part{nic.Part(), loss.Part(), flor.Part(), sim.Part(), compare.Builds(), compare.Page()}
}

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit code: 0 on success, 1 if a measurement failed, 2 for a usage error.
func run(args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root := command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case about.IsUsage(err):
		fmt.Fprintf(os.Stderr, "bench: %v\nSee bench --help.\n", err)
		return 2
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	return 1
}

// command returns the root command.
func command() *cobra.Command {
	root := &cobra.Command{
		Use: "bench PART", Short: "Measure roced and write a report",
		Long: `Measures one part and prints its report in Markdown. Run it in the folder of the source, after
make build. Compare only results of one report: machines differ and are noisy.`,
		Example: `  go run ./internal/lab/bench nic --out docs/results/benchmarks.md
  go run ./internal/lab/bench loss --only irn --only melo --seconds 1 --rounds 1
  go run ./internal/lab/bench compare --before ../other/bin`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return about.Usage(errors.New("the part is missing"))
			}
			return about.Usage(fmt.Errorf("no part %q", args[0]))
		},
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return about.Usage(err) })
	for _, p := range parts() {
		root.AddCommand(partCommand(p))
	}
	root.AddCommand(&cobra.Command{
		Use: "worker", Short: "Run a program of the part nic", Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error { return nic.Work(args) },
	})
	return root
}

// partCommand returns the command of a part.
func partCommand(p measure.Part) *cobra.Command {
	r, out := p.Run, ""
	c := &cobra.Command{
		Use: p.Name, Short: p.Short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return about.Usage(fmt.Errorf("%s takes no arguments: %s", p.Name, strings.Join(args, " ")))
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := p.Validate(&r); err != nil {
				return about.Usage(err)
			}
			r.Ctx = c.Context()
			var page bytes.Buffer
			err := r.Write(p, io.MultiWriter(&page, os.Stdout))
			if err == nil && out != "" {
				err = os.WriteFile(out, page.Bytes(), 0o644)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&r.Bin, "bin", "bin", "folder of the programs")
	f.StringVar(&out, "out", "", "file for the report (default: print it only)")
	if p.Rounds > 0 {
		f.IntVar(&r.Seconds, "seconds", r.Seconds, "duration of each measurement in seconds")
		f.IntVar(&r.Rounds, "rounds", r.Rounds, "number of measurements for each median")
	}
	if p.Lines != nil {
		f.StringArrayVar(&r.Only, "only", nil, "measure only lines that contain this text; may be repeated")
		c.Long = "--only selects among:\n  " + strings.Join(p.Lines, "\n  ")
	}
	if p.Flags != nil {
		p.Flags(f)
	}
	return c
}
