// Package cli implements the command line of the daemon.
package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/daemon"
	"roced.io/roced/internal/daemon/background"
	"roced.io/roced/internal/daemon/config"
	"roced.io/roced/verbs"
)

// Exit codes.
const (
	exitFailed = 1 // the daemon could not start or ended with an error
	exitUsage  = 2 // the command line or the configuration is wrong
)

// usageError is an error of the command line or the configuration.
type usageError struct{ error }

// Main runs the daemon, or checks its configuration, and returns the exit code.
func Main(args []string, out, diag io.Writer) int {
	c := command()
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(diag)
	err := c.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(diag, "roced:", err)
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

func command() *cobra.Command {
	var file string
	run := func(*cobra.Command, []string) error {
		cfg, err := config.Load(file)
		if err != nil {
			return usageError{err}
		}
		return daemon.Run(cfg)
	}
	root := &cobra.Command{
		Use:   "roced",
		Short: "software RoCEv2 NIC",
		Long: `roced is a software RoCEv2 NIC: it gives programs the verbs interface and
speaks RoCEv2 on UDP sockets, TAP devices, Ethernet interfaces (AF_PACKET, AF_XDP)
or Unix sockets.`,
		Example: `  roced up --pair                        two NICs in the background, without any privilege
  roced run --config /etc/roced.yaml     run until SIGTERM
  roced check --config /etc/roced.yaml   say what is wrong with a configuration`,
		Args:              noArgs,
		RunE:              run,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	usage := func(err error) error { return usageError{err} }
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(&cobra.Command{
		Use: "run", Short: "run the daemon", Args: noArgs, RunE: run,
		Example: "  roced run --config /etc/roced.yaml",
	}, &cobra.Command{
		Use: "check", Short: "check a configuration and exit", Args: noArgs,
		Long: `Reports all faults of a configuration, each with its line, column and key. All keys are in
roced.yaml(5).`,
		Example: "  roced check --config /etc/roced.yaml",
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(file)
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: good, %d NICs\n", file, len(cfg.NICs))
			return nil
		},
	})
	for _, c := range append(root.Commands(), root) {
		c.Flags().StringVarP(&file, "config", "c", "/etc/roced.yaml", "configuration file")
	}
	root.AddCommand(inBackground(usage)...)
	about.Program{Section: 8, Usage: usage, Pages: []about.Page{manual()}}.Add(root)
	return root
}

// inBackground returns the commands up and down.
func inBackground(usage func(error) error) []*cobra.Command {
	p := background.Program{Name: "roced", RunDir: new(string), JSON: new(bool), Usage: usage}
	cs := p.Commands()
	for _, c := range cs {
		c.Flags().StringVar(p.RunDir, "run-dir", verbs.DefaultRunDir(), "run directory of the daemon")
		about.Varies(c.Flags().Lookup("run-dir"), "ROCED_RUN_DIR, or that of this user's daemon")
		c.Flags().BoolVar(p.JSON, "json", false, "print JSON")
	}
	return cs
}

// noArgs rejects arguments, including misspelled commands.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unknown command %q; see roced --help", args[0])}
	}
	return nil
}
