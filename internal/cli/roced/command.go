// Package roced is the command line of the daemon.
package roced

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"roced/internal/cli/about"
	"roced/internal/daemon"
	"roced/internal/daemon/config"
)

// Exit codes.
const (
	exitFailed = 1 // the daemon could not start or ended with an error
	exitUsage  = 2 // the command line or the configuration is wrong
)

// usageError is an error of the command line or the configuration.
type usageError struct{ error }

// Main runs the daemon, or checks its configuration, and returns its exit code.
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

// command builds the command line.
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
		Example: `  roced run --config /etc/roced.yaml     run until SIGTERM
  roced check --config /etc/roced.yaml   say what is wrong with a configuration`,
		Args:              noArgs,
		RunE:              run,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().StringVarP(&file, "config", "c", "/etc/roced.yaml", "configuration file")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(&cobra.Command{
		Use: "run", Short: "run the daemon", Args: noArgs, RunE: run,
		Example: "  roced run --config /etc/roced.yaml",
	}, &cobra.Command{
		Use: "check", Short: "check a configuration and exit", Args: noArgs,
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
	about.Program{Section: 8, Usage: func(err error) error { return usageError{err} }}.Add(root)
	return root
}

// noArgs refuses arguments, among them misspelt commands.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unknown command %q; see roced --help", args[0])}
	}
	return nil
}
