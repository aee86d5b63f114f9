package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"roced.io/roced/bpf/bottleneck"
	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/host"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/daemon/environment"
	"roced.io/roced/internal/daemon/transport"
)

// ports are the port types of the NICs of a lab.
var ports = []string{"udp", "packet", "xdp"}

// Program is the program that has the commands.
type Program struct {
	JSON *bool
}

// options are the options of up, which passes them to the keeper.
type options struct {
	dir, port, bottleneck string
	transport.Choice
}

// arguments returns the arguments of the keeper.
func (o *options) arguments() []string {
	return []string{"--dir", o.dir, "--port", o.port, "--bottleneck", o.bottleneck, "--profile", o.Profile, "--congestion", o.Congestion}
}

// permitted returns an error if the lab needs more than the namespaces that any user can make.
func (o *options) permitted() error {
	need := ""
	switch {
	case o.bottleneck != "":
		need = "--bottleneck"
	case o.port == "xdp":
		need = "--port xdp"
	}
	if need == "" || host.RequireCaps(host.CapBPF|host.CapNetAdmin) == nil {
		return nil
	}
	return fmt.Errorf("%s needs root, because it loads eBPF programs; without root, use --port udp or packet, "+
		"--profile and --congestion", need)
}

// Command returns the command lab.
func (p Program) Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "lab", Short: "Make a leaf-spine fabric of hosts with NICs for experiments",
		Long: `Makes a network of four hosts with a NIC each (h1 to h4), two leaves and two spines, in
new network namespaces. Root makes them directly, other users in a user namespace. Nothing
remains when the lab ends.`,
		Example: `  rocectl lab up leaf-spine
  rocectl lab exec h1 -- rocectl link
  rocectl lab down`,
		Args: about.Words(0, 0),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.PersistentFlags().StringVar(&o.dir, "dir", defaultDir(), "folder of the lab, with run directories and logs")
	about.Varies(cmd.PersistentFlags().Lookup("dir"), "that of this user")
	cmd.AddCommand(p.up(&o), p.down(&o), p.showCommand(&o), p.exec(&o), p.keep(&o))
	return cmd
}

// flags adds the flags of up and of the keeper.
func (o *options) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.port, "port", "udp", "port type of the NICs: "+strings.Join(ports, ", "))
	c.Flags().StringVar(&o.bottleneck, "bottleneck", "", "limit the links between leaves and spines, with the options of rocectl bottleneck; needs root")
	o.Choice.Flags(c.Flags())
}

// parse checks the options.
func (o *options) parse(topology string) (*bottleneck.Options, error) {
	if topology != leafSpine {
		return nil, fmt.Errorf("topology %q: must be %s", topology, leafSpine)
	}
	if !slices.Contains(ports, o.port) {
		return nil, fmt.Errorf("--port %w", suggest.OneOf(o.port, ports))
	}
	if err := o.Choice.Validate(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return nil, err
	}
	o.dir = dir
	if o.bottleneck == "" {
		return nil, nil
	}
	b, err := bottleneck.Parse(strings.Fields(o.bottleneck))
	return &b, err
}

func (p Program) up(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "up leaf-spine", Short: "Start the fabric in the background", Args: about.Words(1, 1), ValidArgs: []string{leafSpine},
		Long: `Makes the fabric, starts a daemon on each host, and shows hosts and links. h1 and h2 are on
leaf1, h3 and h4 on leaf2. Each leaf spreads packets to the other leaf over spine1 and spine2,
by addresses and ports. If a lab is up already, the command only shows it. The lab ends with
the process that keeps it. Users other than root need user namespaces. --bottleneck and
--port xdp need root.`,
		Example: `  rocectl lab up leaf-spine
  rocectl lab up leaf-spine --bottleneck 'rate=1gbit kmin=40k kmax=200k'    as root
  rocectl lab up leaf-spine --port packet --profile irn --congestion dcqcn`,
		RunE: func(c *cobra.Command, args []string) error {
			if _, err := o.parse(args[0]); err != nil {
				return about.Usage(err)
			}
			if err := o.permitted(); err != nil {
				return err
			}
			release, err := lockCommands(c.Context(), o.dir)
			if err != nil {
				return err
			}
			defer release()
			s, err := up(c.Context(), o)
			if err != nil {
				return err
			}
			if s.Choice != o.Choice && o.Choice != (transport.Choice{}) {
				return errors.New("a lab with another transport is up: show it with rocectl lab show, stop it with rocectl lab down")
			}
			return p.show(c.OutOrStdout(), s)
		},
	}
	o.flags(c)
	return c
}

func (p Program) down(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the fabric", Args: about.Words(0, 0),
		Long: `Ends the lab and all programs in it, and removes leftovers of a crash. Succeeds without a lab
as well.`,
		Example: "  rocectl lab down",
		RunE: func(c *cobra.Command, _ []string) error {
			release, err := lockCommands(c.Context(), o.dir)
			if err != nil {
				return err
			}
			defer release()
			return down(o.dir)
		},
	}
}

// running returns the lab. It fails if the lab is not up.
func running(dir string) (*State, error) {
	s, isUp, err := read(dir)
	if err == nil && s != nil && !isUp {
		err = errors.New("the lab has ended unexpectedly: rocectl lab down removes its logs, rocectl lab up makes a new one")
	}
	if err == nil && s == nil {
		err = errors.New("there is no lab: make one with rocectl lab up leaf-spine (--dir selects another lab)")
	}
	return s, err
}

func (p Program) showCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show hosts and links", Args: about.Words(0, 0),
		Example: "  rocectl lab show\n  rocectl lab show --json",
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := running(o.dir)
			if err != nil {
				return err
			}
			return p.show(c.OutOrStdout(), s)
		},
	}
}

func (p Program) show(out io.Writer, s *State) error {
	if *p.JSON {
		return output.JSON(out, s)
	}
	for _, n := range s.Nodes {
		if n.RunDir != "" {
			fmt.Fprintf(out, "%s: NIC %s address %s on %s run-dir %s\n", n.Name, nicName, n.Address, n.Leaf, n.RunDir)
		}
	}
	for _, l := range s.Links {
		fmt.Fprintf(out, "%s %s -- %s %s", l.A, l.AInterface, l.B, l.BInterface)
		if l.Rate > 0 {
			fmt.Fprintf(out, " rate %gMb/s", float64(l.Rate)/1e6)
		}
		fmt.Fprintln(out)
	}
	return nil
}

func (p Program) exec(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "exec NODE [-- PROGRAM [ARG...]]", Short: "Run a program, or a shell, on a host or a switch",
		Long: `Runs a program in the network namespace of a host, leaf or spine. On a host, its environment
is set up for verbs programs, and rocectl and roceperf use the daemon of the host.`,
		Example: `  rocectl lab exec h3 -- ib_write_bw
  rocectl lab exec h1 -- ib_write_bw 198.18.2.1
  rocectl lab exec leaf1 -- ip route
  rocectl lab exec h1`,
		Args: about.Words(1, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error {
			s, err := running(o.dir)
			if err != nil {
				return err
			}
			return p.run(s, args[0], args[1:])
		},
	}
	c.Flags().SetInterspersed(false)
	return c
}

// run replaces this process by a program in a namespace of the lab.
func (p Program) run(s *State, name string, program []string) error {
	n := s.node(name)
	if n == nil {
		return about.Usage(fmt.Errorf("the lab has no %q", name))
	}
	if len(program) > 0 && program[0] == "--" {
		program = program[1:]
	}
	if len(program) == 0 {
		program = []string{"/bin/sh"}
		if sh := os.Getenv("SHELL"); sh != "" {
			program[0] = sh
		}
	}
	vars := []environment.Variable{{Name: ownLab, Value: s.Dir}}
	if n.RunDir != "" {
		more, err := environment.Of(n.RunDir, "")
		if err != nil { // without the preload library, Go programs still work
			more = []environment.Variable{{Name: environment.RunDir, Value: n.RunDir}}
		}
		vars = append(vars, more...)
	}
	enter, err := exec.LookPath("nsenter")
	if err != nil {
		return fmt.Errorf("%w (package util-linux)", err)
	}
	args := []string{"nsenter", "--net=" + n.Namespace}
	foreign, err := otherUsers(s.PID)
	if err != nil {
		return err
	}
	if foreign {
		args = append(args, fmt.Sprintf("--user=/proc/%d/ns/user", s.PID), "--preserve-credentials")
	}
	// env sets the variables for the program, so that nsenter does not load the preload library.
	args = append(args, "--", "env")
	for _, v := range vars {
		args = append(args, v.Name+"="+v.Value)
	}
	return unix.Exec(enter, append(args, program...), os.Environ())
}

// otherUsers reports whether the lab is in another user namespace than this process.
func otherUsers(pid int) (bool, error) {
	own, err := inodeOf("/proc/self/ns/user")
	if err != nil {
		return false, err
	}
	its, err := inodeOf(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return false, fmt.Errorf("the lab belongs to another user: %w", err)
	}
	return own != its, nil
}

// keep returns the command that up runs in the background.
func (p Program) keep(o *options) *cobra.Command {
	c := &cobra.Command{
		Use: "keep leaf-spine", Short: "Make the fabric and keep it until SIGTERM", Args: about.Words(1, 1), Hidden: true,
		Example: "  rocectl lab keep leaf-spine",
		RunE: func(c *cobra.Command, args []string) error {
			b, err := o.parse(args[0])
			if err != nil {
				return about.Usage(err)
			}
			return ended(c.Context(), keepAsUser(c.Context(), o, b))
		},
	}
	o.flags(c)
	return c
}

// ended returns nil for an error that only reports the end of ctx.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
