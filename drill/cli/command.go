// Package cli implements the program rocedrill, which runs the scripts of package drill/engine against a device.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/interrupt"
	"roced.io/roced/internal/base/output"
)

// Exit codes besides 0.
const (
	exitFailed  = 1 // a script failed
	exitUsage   = 2 // the command line or a script is wrong
	exitLost    = 3 // the device or the agent cannot be reached, or does not answer
	exitNothing = 4 // a capture has no RoCEv2
	exitLate    = 5 // a script is inconclusive: the tester or the agent was late
)

// errFailed says that scripts failed. The report has told why.
var errFailed = errors.New("the device fails")

// errInconclusive says that the tester or the agent was late. The report has told when.
var errInconclusive = errors.New("scripts are inconclusive")

// errNothing says that a capture has nothing to analyze.
var errNothing = errors.New("the capture has no frame of RoCEv2")

// app is the state that all commands share.
type app struct {
	out, diag io.Writer
	json      bool
}

// Main runs rocedrill and returns its exit code.
func Main(args []string, out, diag io.Writer) int {
	out, diag = output.NewSafe(out), output.NewSafe(diag)
	err := interrupt.Run(func(ctx context.Context) error {
		c := newCommand(out, diag)
		c.SetArgs(args)
		return c.ExecuteContext(ctx)
	})
	var bad *script.Error
	switch err = output.Result(out, err); {
	case err == nil:
		return 0
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.Is(err, errInconclusive):
		return exitLate
	}
	fmt.Fprintln(diag, "rocedrill:", err)
	switch {
	case errors.Is(err, errNothing):
		return exitNothing
	case about.IsUsage(err), errors.As(err, &bad):
		return exitUsage
	case errors.Is(err, context.Canceled):
		return interrupt.Code
	case errors.Is(err, dut.ErrLost):
		return exitLost
	}
	return exitFailed
}

func newCommand(out, diag io.Writer) *cobra.Command {
	a := &app{out: out, diag: diag}
	root := &cobra.Command{
		Use:   "rocedrill",
		Short: "Test a RoCEv2 device packet by packet",
		Long: `rocedrill plays the peer of a RoCEv2 device on the wire, packet by packet, and drives
verbs on the device at the same time. Scripts say what the tester sends and what the
device has to answer. docs/reference/drill.md describes them.`,
		Example: `  rocedrill run drill/suite --dut virtual
  rocedrill run drill/suite/requester/nak_seq.drill --dut roced --log`,
		SilenceErrors: true, SilenceUsage: true,
		Args:              about.NoArgs,
		RunE:              func(c *cobra.Command, _ []string) error { return c.Help() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(out)
	root.SetErr(diag)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(a.run(), a.model(), a.lint(), a.list(), a.record(), a.analyze())
	about.Program{Section: 1}.Add(root)
	return root
}
