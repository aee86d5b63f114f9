// Package ctl implements rocectl. It shows and controls a running daemon in the style of rdma(8) and ethtool(8), and
// reads captures.
package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/background"
	lab "roced.io/roced/internal/lab/cli"
)

// app is the state that all commands share.
type app struct {
	runDir, socket string
	json           bool
	out, diag      io.Writer
}

// errNoRoCE says that a file of frames has none of RoCEv2.
var errNoRoCE = exitError{errors.New("the file has no frame of RoCEv2"), 4}

// Main runs rocectl and returns its exit code: 0 on success, 1 on failure, 2 for a usage error, 4 if decode or watch finds no
// RoCEv2 in a file. If exec finds no program, Main returns the codes of env(1).
func Main(args []string, out, diag io.Writer) int {
	ctx, cancel := signal.NotifyContext(context.Background(), endings()...)
	defer cancel()
	out, diag = output.NewSafe(out), output.NewSafe(diag)
	c := newCommand(out, diag)
	c.SetArgs(args)
	err := output.Result(out, c.ExecuteContext(ctx))
	switch {
	case err == nil:
		return 0
	case about.IsUsage(err):
		fmt.Fprintf(diag, "rocectl: %v\nSee rocectl --help.\n", err)
		return 2
	}
	if !errors.Is(err, errSilent) {
		fmt.Fprintln(diag, "rocectl:", err)
	}
	var exit exitError
	if errors.As(err, &exit) {
		return exit.code
	}
	return 1
}

// endings returns the signals after which a command cleans up and ends. SIGHUP is included, because a command may
// have to remove filters, unless nohup(1) ignores it.
func endings() []os.Signal {
	s := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		s = append(s, syscall.SIGHUP)
	}
	return s
}

func newCommand(out, diag io.Writer) *cobra.Command {
	a := &app{out: out, diag: diag}
	root := &cobra.Command{
		Use:   "rocectl",
		Short: "Show and control roced, a software RoCEv2 NIC",
		Example: `  rocectl doctor                                 what will work on this machine
  rocectl up                                     start a daemon with a NIC, without any privilege
  rocectl exec -- ibv_devinfo                    run a verbs program on the NICs
  rocectl link                                   NICs and their state
  rocectl res show qp                            queue pairs
  rocectl stat rxe_a --watch 1s                  counters
  rocectl capture rxe_a -w out.pcapng            capture until Ctrl-C
  rocectl trace rxe_a --next --svg pictures      how a connection behaves, drawn
  rocectl decode out.pcapng                      one line a frame
  rocectl watch eth0                             who asks whom for what, also of other NICs
  rocectl fault add rxe_a 'tx drop psn=+3 n=1'   drop a packet's first transmission`,
		SilenceErrors: true, SilenceUsage: true,
		Args:              about.NoArgs,
		RunE:              help,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetOut(out)
	root.SetErr(diag)
	f := root.PersistentFlags()
	background.RunDirFlag(f, &a.runDir)
	f.StringVar(&a.socket, "socket", "", "administration socket of the daemon (default: roced.sock in the run directory)")
	f.BoolVar(&a.json, "json", false, "print JSON")
	root.AddCommand(a.link(), a.list(), a.res(), a.stat(), a.events(), a.fault(), a.capture(), a.trace(), a.decode(), a.watchTraffic(), a.bottleneck(), a.poll(), a.page(), a.view(),
		a.exec(), a.env(), a.doctor())
	root.AddCommand(background.Program{Name: root.Name(), RunDir: &a.runDir, JSON: &a.json}.Commands()...)
	root.AddCommand(lab.Program{JSON: &a.json}.Command())
	about.Program{Section: 1, Pages: []about.Page{faultManual()}}.Add(root)
	return root
}

func help(c *cobra.Command, _ []string) error { return c.Help() }

func (a *app) client() *api.Client {
	if a.socket != "" {
		return api.NewClient(a.socket)
	}
	return api.NewClient(filepath.Join(a.runDir, api.Socket))
}

// show prints v as JSON, or calls f to print text.
func (a *app) show(v any, f func(w io.Writer)) error {
	if a.json {
		return output.JSON(a.out, v)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	f(w)
	return w.Flush()
}

// input opens a file for reading; "-" means standard input.
func input(c *cobra.Command, file string) (io.ReadCloser, error) {
	if file == "-" {
		return io.NopCloser(c.InOrStdin()), nil
	}
	return os.Open(file)
}
