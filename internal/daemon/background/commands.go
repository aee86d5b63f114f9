// Package background implements the commands up and down of roced and rocectl. Command up starts a daemon that
// outlives it; command down terminates that daemon.
package background

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/daemon/api"
	"roced.io/roced/internal/daemon/environment"
	"roced.io/roced/verbs"
)

// Program describes the program that has the commands.
type Program struct {
	Name   string
	RunDir *string
	JSON   *bool
}

// State is the JSON output of up.
type State struct {
	RunDir string                 `json:"run_dir"`
	PID    int                    `json:"pid"` // 0 if the daemon is in another PID namespace
	Log    string                 `json:"log"` // log of a daemon that up started
	NICs   []api.Link             `json:"nics"`
	Env    []environment.Variable `json:"env"` // environment of RDMA programs
}

// RunDirFlag adds the flag --run-dir.
func RunDirFlag(f *pflag.FlagSet, dir *string) {
	f.StringVar(dir, "run-dir", verbs.DefaultRunDir(), "run directory of the daemon")
	about.Varies(f.Lookup("run-dir"), "ROCED_RUN_DIR, or that of this user's daemon: /run/roced of root, else roced in XDG_RUNTIME_DIR or roced-UID in /tmp")
}

// Commands returns the commands up and down.
func (p Program) Commands() []*cobra.Command { return []*cobra.Command{p.up(), p.down()} }

func (p Program) up() *cobra.Command {
	var w wish
	cmd := &cobra.Command{
		Use: "up [INTERFACE|ADDRESS]", Short: "Start a daemon with one NIC, or a pair, in the background",
		Long: `Starts roced with one NIC, rxe_a, or with two that reach each other, rxe_a and rxe_b, and
prints the environment for programs, as rocectl env does. If a daemon runs already, the
command shows it, and fails if its NICs differ from those requested.

One NIC uses UDP sockets, without privilege, on the interface of the default route or on the
interface or address that you name. Other types of port need the privileges listed in
docs/reference/ports.md. The NICs of a pair are on two loopback addresses whose UDP port 4791
is free; with --port unix they have the addresses 198.18.0.1 and 198.18.0.2, and need no
network. Packets between them stay in the daemon's memory, where tcpdump, firewalls and tc do not
see them; with --no-switch they go through the ports.
Only the daemon's user and root can use the NICs, unless --share is given.
The daemon's log is roced.log in the run directory.`,
		Example: p.examples("NAME up                         no privilege needed, and no configuration",
			`eval "$(NAME up --pair)"      two NICs; then run verbs programs from this shell`,
			"NAME up eth1",
			"NAME up 127.0.0.2 --run-dir /tmp/b",
			"NAME up --pair --captures out   every frame, in out/rxe_a.pcapng and out/rxe_b.pcapng",
			"NAME up --pair --captures out --captures-keep 64MiB   the newest frames, also in out/rxe_a.1.pcapng",
			"NAME up eth1 --port packet      as root",
			"NAME up --pair --web            with the live page: rocectl page prints its address",
			"NAME up --pair --no-switch      packets pass the loopback interface, where tcpdump sees them",
			"NAME up --pair --profile irn --congestion dcqcn",
			"NAME down"),
		Args: p.words(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				w.place = args[0]
			}
			if err := w.validate(); err != nil {
				return about.Usage(err)
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			s, err := up(ctx, *p.RunDir, &w)
			if err != nil {
				return err
			}
			return p.show(c.OutOrStdout(), c.ErrOrStderr(), s)
		},
	}
	cmd.Flags().StringVar(&w.port, "port", "udp", "type of port: "+strings.Join(ports, ", ")+"; for a pair "+strings.Join(pairPorts, ", "))
	cmd.Flags().BoolVar(&w.pair, "pair", false, "start two NICs that are connected to each other")
	cmd.Flags().BoolVar(&w.noSwitch, "no-switch", false, "send the packets of a pair through the ports")
	cmd.Flags().StringVar(&w.captures, "captures", "", "capture all frames into this folder, from the start")
	cmd.Flags().StringVar(&w.keep, "captures-keep", "", "limit of the captures of each NIC in bytes, such as 64MiB; the newest frames remain")
	cmd.Flags().IntVar(&w.snap, "captures-snaplen", 0, "bytes of each frame in captures (default: all)")
	cmd.Flags().BoolVar(&w.share, "share", false, "let all users of this machine use the NICs")
	cmd.Flags().BoolVar(&w.web, "web", false, "serve the live page on a loopback address; see rocectl page")
	cmd.Flags().StringVar(&w.segments, "write-segments", "", "packets of an RC WRITE: standard, one request; single, a request each (default standard)")
	w.Choice.Flags(cmd.Flags())
	return cmd
}

func (p Program) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the daemon", Args: p.words(0),
		Long: `Ends the daemon of the run directory, as SIGTERM does: it lets
programs finish for a while. Without a daemon there is nothing to do.`,
		Example: p.examples("NAME down"),
		RunE: func(c *cobra.Command, _ []string) error {
			pid, err := down(*p.RunDir)
			if err != nil {
				return err
			}
			if *p.JSON {
				return output.JSON(c.OutOrStdout(), struct {
					PID int `json:"pid"` // of the daemon that ended; 0 if none ran
				}{pid})
			}
			text := "the daemon of %s has ended"
			if pid == 0 {
				text = "no daemon runs in %s"
			}
			fmt.Fprintf(c.ErrOrStderr(), p.Name+": "+text+"\n", *p.RunDir)
			return nil
		},
	}
}

// examples formats lines of examples with the program's name.
func (p Program) examples(lines ...string) string {
	return "  " + strings.ReplaceAll(strings.Join(lines, "\n  "), "NAME", p.Name)
}

// words accepts at most n arguments.
func (p Program) words(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if f := c.Flag("socket"); f != nil && f.Changed {
			return about.Usage(errors.New("up and down select the daemon by its run directory: use --run-dir instead of --socket"))
		}
		return about.Words(0, n)(c, args)
	}
}

// show prints output that a shell can evaluate. The NICs are in comments.
func (p Program) show(out, diag io.Writer, s *State) error {
	vars, err := environment.Of(s.RunDir, "")
	if err != nil { // Go programs can use the NICs without the library
		fmt.Fprintf(diag, "%s: unmodified programs cannot run here: %v\n", p.Name, err)
		vars = []environment.Variable{{Name: environment.RunDir, Value: s.RunDir}}
	}
	s.Env = vars
	if *p.JSON {
		return output.JSON(out, s)
	}
	for i := range s.NICs {
		l := &s.NICs[i]
		gids := slices.DeleteFunc(slices.Clone(l.GIDs), func(g string) bool { return g == "::" })
		fmt.Fprintf(out, "# %s: %s, %s\n", l.Name, l.State, strings.Join(gids, ", "))
	}
	for _, v := range vars {
		fmt.Fprintln(out, v.Export())
	}
	return nil
}
