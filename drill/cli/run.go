package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"roced.io/roced/drill/dut"
	"roced.io/roced/drill/engine"
	"roced.io/roced/drill/script"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/interrupt"
	"roced.io/roced/internal/base/output"
)

// runFlags are the flags of run.
type runFlags struct {
	deviceFlags
	seed   uint64
	repeat uint64
	log    bool
	must   bool
	only   []string
	known  string
	junit  string
	html   string
}

func (a *app) run() *cobra.Command {
	f := runFlags{}
	c := &cobra.Command{
		Use: "run SCRIPT|FOLDER...", Short: "Run scripts against a device",
		Long: `Runs scripts against a device under test (--dut):
  virtual   a NIC of ours on a virtual clock, in this process: exact times, no privilege
  roced     a daemon of ours on AF_UNIX datagrams, which this command starts
  rxe-6.1   Linux 6.1's rdma_rxe in a virtual machine (QEMU; no KVM, no privilege)
  rxe-6.12  Linux 6.12's
  agent:COMMAND  any device with libibverbs. The command starts rocedrill-agent on its host,
            such as 'agent:ssh host rocedrill-agent'; agent:tcp:HOST:PORT reaches
            rocedrill-agent --listen HOST:PORT by the token in $ROCEDRILL_TOKEN. rocedrill-agent-cm
            also drives rdma_cm. --link leads to the device: an interface of this host, which
            needs CAP_NET_RAW; tap:NAME; or unix:PATH, a socket of AF_UNIX datagrams.

A policy that differs is the device's choice and no failure. A script during which the tester
or the agent was late runs up to three times; then it is inconclusive.

Exit codes: 0 no script failed, 1 a script failed, 2 a script or the command line is wrong,
3 the device or its agent does not answer, 5 a script is inconclusive, 130 interrupted. The
report has all scripts.`,
		Example: `  rocedrill run drill/suite --dut virtual
  rocedrill run drill/suite/responder --dut roced --repeat 2 --json
  rocedrill run drill/suite --dut 'agent:ssh host rocedrill-agent' --link eth1 --slack 5ms
  rocedrill run drill/suite/requester/nak_seq.drill --dut virtual --seed 7 --log`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return about.Usage(errors.New("usage: rocedrill run SCRIPT|FOLDER... --dut DUT"))
			}
			scripts, err := load(args)
			if err != nil {
				return err
			}
			reasons, err := readKnownScripts(f.known, scripts, a.diag)
			if err != nil {
				return err
			}
			if scripts, err = f.choose(scripts); err != nil {
				return err
			}
			return a.runAll(c.Context(), scripts, f, reasons)
		},
	}
	f.add(c.Flags())
	c.Flags().Uint64Var(&f.seed, "seed", 0, "first seed of PSNs and payload; odd seeds make the PSNs wrap")
	c.Flags().Uint64Var(&f.repeat, "repeat", 2, "run each script with this many seeds")
	c.Flags().BoolVar(&f.must, "must", false, "run only scripts that test demands of the specification")
	c.Flags().StringArrayVar(&f.only, "only", nil, "run only scripts of this `SECTION`, such as 'IBTA 9.7'; may be repeated")
	c.Flags().StringVar(&f.known, "known", "", "`FILE` of expected failures, each line SCRIPT...: REASON")
	c.Flags().StringVar(&f.junit, "junit", "", "write the outcomes to `FILE` as JUnit XML")
	c.Flags().StringVar(&f.html, "html", "", "write a page with ladder diagrams of failed scripts to `FILE`, and their captures beside it")
	c.Flags().BoolVar(&f.log, "log", false, "print all packets and commands of failed scripts")
	return c
}

// load parses the scripts of files and folders, in the order of their paths.
func load(args []string) (scripts []*script.Script, err error) {
	for _, arg := range args {
		err := filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".drill" && path != arg {
				return err
			}
			text, err := bounded.ReadFile(path, bounded.Text)
			if err != nil {
				return err
			}
			s, err := script.Parse(path, string(text))
			scripts = append(scripts, s)
			return err
		})
		var bad *script.Error
		if err != nil && !errors.As(err, &bad) {
			err = about.Usage(err)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(scripts) == 0 {
		return nil, about.Usage(fmt.Errorf("no scripts (*.drill) in %v", args))
	}
	return scripts, nil
}

// runAll runs the scripts and prints the reports. The reports have all scripts even if the device is lost.
func (a *app) runAll(ctx context.Context, scripts []*script.Script, f runFlags, reasons knownFailures) error {
	if err := a.refuse(lintAll(scripts)); err != nil {
		return err
	}
	junit, html, err := f.outputs()
	if err != nil {
		return about.Usage(err)
	}
	sum := summary{DUT: f.dut, Scripts: []report{}}
	device, end, err := f.open(ctx, a)
	if about.IsUsage(err) {
		return err
	}
	if err == nil {
		err = a.runOn(ctx, device, scripts, f, reasons, &sum)
	}
	if err != nil {
		sum.Lost = err.Error()
	}
	for _, s := range scripts[len(sum.Scripts):] {
		sum.add(report{Script: s.Path, About: s.About, Spec: s.Spec, Must: s.Must, Outcome: notRun, Reason: sum.Lost, script: s})
	}
	err = cmp.Or(err, sum.write(junit, (*summary).junit), a.writePage(&sum, html), a.print(&sum), end())
	switch {
	case err == nil && sum.bad != nil:
		return sum.bad
	case err == nil && sum.Failed > 0:
		return errFailed
	case err == nil && sum.Inconclusive > 0:
		return errInconclusive
	}
	return err
}

// runOn runs the scripts on the device.
func (a *app) runOn(ctx context.Context, device runner, scripts []*script.Script, f runFlags, reasons knownFailures, sum *summary) error {
	if s, ok := device.(*dut.Session); ok {
		sum.Slack = s.Slack().Seconds()
	}
	for _, s := range scripts {
		r, err := a.runScript(ctx, device, s, f)
		if r.Outcome == engine.Passed.String() && reasons.reason(s.Path) != "" {
			sum.Unexpected = append(sum.Unexpected, s.Path)
		}
		r.settle(reasons)
		if r.Outcome != "" {
			sum.add(r)
			if !a.json {
				a.line(r)
			}
		}
		if err != nil && ctx.Err() != nil {
			err = interrupt.Errorf("%d of %d scripts have ended; their results are reported", len(sum.Scripts)-sum.NotRun, len(scripts))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lintAll returns all errors of scripts.
func lintAll(scripts []*script.Script) (errs []*script.Error) {
	for _, s := range scripts {
		errs = append(errs, engine.Lint(s)...)
	}
	return errs
}

// refuse prints all errors of scripts but the last, which it returns.
func (a *app) refuse(errs []*script.Error) error {
	if len(errs) == 0 {
		return nil
	}
	last := len(errs) - 1
	for _, err := range errs[:last] {
		fmt.Fprintln(a.diag, "rocedrill:", err)
	}
	return errs[last]
}

// outputs opens the files of the report. A file that is not asked for is nil.
func (f *runFlags) outputs() (junit, html *os.File, err error) {
	if f.junit != "" {
		if junit, err = output.Create(f.junit); err != nil {
			return nil, nil, err
		}
	}
	if f.html != "" {
		html, err = output.Create(f.html)
	}
	if err == nil && sameFile(f.junit, f.html) {
		err = fmt.Errorf("--html %s: is the file of --junit; name another file", f.html)
	}
	return junit, html, err
}

// sameFile reports whether both names are those of one file.
func sameFile(a, b string) bool {
	x, _ := os.Stat(a) // nil, if there is no file, is the same as no other
	y, _ := os.Stat(b)
	return os.SameFile(x, y)
}

// runScript runs a script with all seeds, up to the first that fails.
func (a *app) runScript(ctx context.Context, device runner, s *script.Script, f runFlags) (report, error) {
	began := time.Now()
	r := report{Script: s.Path, About: s.About, Spec: s.Spec, Must: s.Must, script: s}
	for i := range max(f.repeat, 1) {
		result, err := device.Run(ctx, s, f.seed+i)
		var bad *script.Error
		if errors.As(err, &bad) {
			result, err = &engine.Result{Outcome: engine.BadScript, Pos: bad.Pos, Text: bad.Text}, nil
		}
		if result != nil {
			r.set(result, f.seed+i)
		}
		r.Seconds = time.Since(began).Seconds()
		if f.log && result != nil && result.Outcome != engine.Passed {
			a.printLog(result)
		}
		if err == nil && result.Outcome == engine.Broken {
			err = fmt.Errorf("%w: %s:%d:%d: %s", dut.ErrLost, s.Path, result.Pos.Line, result.Pos.Col, result.Text)
		}
		if err != nil || result.Outcome != engine.Passed {
			return r, err
		}
	}
	return r, nil
}
