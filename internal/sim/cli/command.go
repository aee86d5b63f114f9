// Package cli implements the program rocesim, which runs scenarios of package internal/sim/scenario.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/interrupt"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/scenario"
)

// Exit codes besides 0.
const (
	exitFailed = 1 // the simulation could not run, or messages never ended
	exitUsage  = 2 // the command line or the scenario is invalid
)

// app is the state that all commands share.
type app struct {
	out, diag io.Writer
	json      bool
	set       []string
	force     bool
}

// Main runs rocesim and returns its exit code.
func Main(args []string, out, diag io.Writer) int {
	out, diag = output.NewSafe(out), output.NewSafe(diag)
	err := interrupt.Run(func(ctx context.Context) error {
		c := newCommand(out, diag)
		c.SetArgs(args)
		return c.ExecuteContext(ctx)
	})
	if err = output.Result(out, err); err == nil {
		return 0
	}
	fmt.Fprintln(diag, "rocesim:", err)
	switch {
	case about.IsUsage(err):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return interrupt.Code
	}
	return exitFailed
}

func newCommand(out, diag io.Writer) *cobra.Command {
	a := &app{out: out, diag: diag}
	root := &cobra.Command{
		Use:   "rocesim",
		Short: "Simulate RDMA over a fabric, with the transports of roced",
		Long: `rocesim runs scenarios, which describe hosts, switches, links and traffic. The
transports are the code that roced runs on real links, not models of it.
docs/reference/simulator.md describes scenario files.`,
		Example: `  rocesim run configs/sim/incast.yaml                      a table of completion times
  rocesim run configs/sim/incast.yaml --svg out            pictures: slowdown, queues, pauses
  rocesim run configs/sim/incast.yaml --set workload.0.senders=10 --set transport.profile=irn
  rocesim run configs/sim/websearch.yaml --seeds 1..4 --json
  rocesim run configs/sim/incast.yaml --trace h1-h0=qp.json   then: rocectl trace draw qp.json --svg out
  rocesim run configs/sim/incast.yaml --pcapng leaf0-h0=port.pcapng
  rocesim sweep configs/sim/incast.yaml --vary transport.profile=rc,irn --seeds 1..3 --out s
  rocesim compare configs/sim/websearch.yaml --against hpcc,swift
  rocesim diff a b                                         what differs between two results
  rocesim topology show configs/sim/incast.yaml            hosts, switches and links by name`,
		SilenceErrors: true, SilenceUsage: true,
		Args: about.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },

		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(out)
	root.SetErr(diag)
	f := root.PersistentFlags()
	f.BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(a.run(), a.list(), a.sweep(), a.workCommand(), a.collect(), a.compare(), a.diff(), a.topology(), a.papers())
	about.Program{Section: 1}.Add(root)
	return root
}

// changes adds --set and --force to a command that reads a scenario.
func (a *app) changes(c *cobra.Command) {
	c.Flags().BoolVar(&a.force, "force", false, "accept a scenario however much memory and time it needs")
	c.Flags().StringArrayVar(&a.set, "set", nil, "change a key of the scenario: a.b.c=value; elements of lists by number")
}

// read reads a scenario and sets its seed unless seed is zero.
func (a *app) read(name string, seed uint64) (*scenario.File, error) {
	text, err := bounded.ReadFile(name, bounded.Text)
	if err != nil {
		return nil, about.Usage(err)
	}
	set := a.set
	if seed != 0 {
		set = append(append([]string{}, set...), "seed="+strconv.FormatUint(seed, 10))
	}
	f, err := scenario.Read(name, text, set)
	if err != nil {
		return nil, about.Usage(err)
	}
	f.Force = a.force
	return f, nil
}

// beside returns a function that reads files relative to the scenario's folder.
func beside(name string) func(string) ([]byte, error) {
	return func(file string) ([]byte, error) {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(name), file)
		}
		return bounded.ReadFile(file, bounded.Data)
	}
}

// parseSeeds parses "7" or "1..10".
func parseSeeds(s string) (seeds []uint64, err error) {
	from, to, isRange := strings.Cut(s, "..")
	first, err1 := strconv.ParseUint(from, 10, 64)
	last := first
	var err2 error
	if isRange {
		last, err2 = strconv.ParseUint(to, 10, 64)
	}
	if err := errors.Join(err1, err2); err != nil || first == 0 || last < first || last-first > 1e6 {
		return nil, about.Usage(fmt.Errorf("%q: expected seeds such as 7 or 1..10", s))
	}
	for n := first; n <= last; n++ {
		seeds = append(seeds, n)
	}
	return seeds, nil
}
