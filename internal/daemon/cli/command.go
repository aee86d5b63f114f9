// Package cli implements the command line of the daemon.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/daemon"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/background"
	"roced.io/roced/internal/daemon/config"
)

// Exit codes.
const (
	exitFailed = 1 // the daemon could not start or ended with an error
	exitUsage  = 2 // the command line or the configuration is wrong
)

// Main runs the daemon, or checks its configuration, and returns the exit code.
func Main(args []string, out, diag io.Writer) int {
	out, diag = output.NewSafe(out), output.NewSafe(diag)
	c := command()
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(diag)
	err := output.Result(out, c.ExecuteContext(context.Background()))
	if err == nil {
		return 0
	}
	fmt.Fprintln(diag, "roced:", err)
	if about.IsUsage(err) {
		return exitUsage
	}
	return exitFailed
}

func command() *cobra.Command {
	var from config.Sources
	run := func(*cobra.Command, []string) error {
		cfg, err := from.Load()
		if err != nil {
			return about.Usage(err)
		}
		return daemon.Run(cfg)
	}
	root := &cobra.Command{
		Use:   "roced",
		Short: "Software RoCEv2 NIC",
		Long: `roced is a software RoCEv2 NIC: it gives programs the verbs interface and
speaks RoCEv2 on UDP sockets, TAP devices, Ethernet interfaces (AF_PACKET, AF_XDP)
or Unix sockets.`,
		Example: `  roced up --pair                        two NICs in the background, without any privilege
  roced run --config /etc/roced.yaml     run until SIGTERM
  roced check --config /etc/roced.yaml   say what is wrong with a configuration`,
		Args:              about.NoArgs,
		RunE:              run,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(&cobra.Command{
		Use: "run", Short: "Run the daemon", Args: about.NoArgs, RunE: run,
		Example: "  roced run --config /etc/roced.yaml",
	}, check(&from))
	for _, c := range append(root.Commands(), root) {
		c.Flags().StringVarP(&from.File, "config", "c", "", "configuration file")
		about.Varies(c.Flags().Lookup("config"), "roced/roced.yaml in $XDG_CONFIG_HOME or ~/.config, except for root; else "+config.SystemFile)
		c.Flags().StringArrayVar(&from.Set, "set", nil, "set a key outside of NICs, such as log.level=debug; repeatable")
	}
	root.AddCommand(inBackground()...)
	root.AddCommand(reload(), examples())
	about.Program{Section: 8, Pages: []about.Page{manual()}}.Add(root)
	return root
}

// check returns the command check.
func check(from *config.Sources) *cobra.Command {
	var effective, asJSON bool
	cmd := &cobra.Command{
		Use: "check", Short: "Check a configuration", Args: about.NoArgs,
		Long: `Reports all faults of a configuration, each with its line, column and key. All keys are in
roced.yaml(5). --effective prints each value and its origin: the file and line, the variable
of the environment, the option --set, or "default".`,
		Example: `  roced check --config /etc/roced.yaml
  ROCED_LOG_LEVEL=debug roced check --effective`,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := from.Load()
			switch {
			case err != nil:
				return about.Usage(err)
			case asJSON && !effective:
				return about.Usage(errors.New("--json requires --effective"))
			case effective:
				return printEffective(c.OutOrStdout(), cfg.Effective(), asJSON)
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: good, %d NICs\n", cfg.File(), len(cfg.NICs))
			return nil
		},
	}
	cmd.Flags().BoolVar(&effective, "effective", false, "print each value and its origin")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the values as JSON")
	return cmd
}

// printEffective prints values and their origins.
func printEffective(out io.Writer, values []config.Value, asJSON bool) error {
	if asJSON {
		return output.JSON(out, values)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, v := range values {
		fmt.Fprintf(w, "%s\t%s\t%s\n", v.Key, v.Value, v.Origin)
	}
	return w.Flush()
}

// reload returns the command reload.
func reload() *cobra.Command {
	var runDir string
	var force, asJSON bool
	cmd := &cobra.Command{
		Use: "reload", Short: "Reload the configuration of the running daemon", Args: about.NoArgs,
		Long: `Makes the daemon of the run directory read its configuration file again and apply the
changes, while programs stay connected, and prints the changed keys. roced.yaml(5) lists
the keys that it can change, and NICs can be added and removed. If it refuses a change, it
applies none, and prints a line for each. SIGHUP does the same and prints to the log.`,
		Example: `  roced reload
  roced reload --run-dir /run/roced --force    # also remove NICs with clients`,
		RunE: func(c *cobra.Command, _ []string) error {
			client := api.NewClient(filepath.Join(runDir, api.Socket))
			defer client.Close()
			var done api.Reloaded
			if err := client.Ask(c.Context(), http.MethodPost, api.Reload{Force: force}, &done, "reload"); err != nil {
				return err
			}
			if asJSON {
				return output.JSON(c.OutOrStdout(), done)
			}
			if len(done.Changed) == 0 {
				fmt.Fprintln(c.OutOrStdout(), "nothing has changed")
			}
			for _, k := range done.Changed {
				fmt.Fprintln(c.OutOrStdout(), k)
			}
			return nil
		},
	}
	background.RunDirFlag(cmd.Flags(), &runDir)
	cmd.Flags().BoolVar(&force, "force", false, "also remove NICs with clients, and disconnect the clients")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// inBackground returns the commands up and down.
func inBackground() []*cobra.Command {
	p := background.Program{Name: "roced", RunDir: new(string), JSON: new(bool)}
	cs := p.Commands()
	for _, c := range cs {
		background.RunDirFlag(c.Flags(), p.RunDir)
		c.Flags().BoolVar(p.JSON, "json", false, "print JSON")
	}
	return cs
}
