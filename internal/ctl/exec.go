package ctl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/daemon/environment"
)

// Exit codes of exec when it cannot run a program, as in env(1).
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// exitError carries an exit code.
type exitError struct {
	error
	code int
}

// Unwrap returns the error without the code.
func (e exitError) Unwrap() error { return e.error }

func (a *app) exec() *cobra.Command {
	var nic, size string
	var d demand
	cmd := &cobra.Command{
		Use: "exec [--nic NAME] [--require-traffic SIZE] [--summary] -- PROGRAM [ARG...]", Short: "Run a verbs program on the daemon's NICs",
		Long: `Runs an RDMA program as it is, on a machine whose kernel has no InfiniBand: a
preload library stands between the program's libibverbs and librdmacm and the
daemon. Children of the program inherit it. They see no other RDMA devices, also where
the kernel has some. Statically linked programs, and those for another processor than
the library, cannot be run so; it says so.

Programs may choose TCP or shared memory without a word. --require-traffic fails with
exit code 3 if the program and its children have succeeded, but moved less payload than
SIZE over the NICs. The payload of SENDs, WRITEs, READs and atomics counts when they
complete, also of those that a peer requests, such as a SEND received. A message between
two of these processes counts once. --summary prints what each process has done to
standard error.`,
		Example: `  rocectl exec -- ibv_devinfo -v
  rocectl exec --nic rxe_a -- ib_write_bw
  rocectl exec --require-traffic 1m -- mpirun -n 2 ./a.out
  rocectl exec --summary -- python3 my_pyverbs_program.py`,
		Args: about.Words(1, math.MaxInt),
		RunE: func(_ *cobra.Command, args []string) error {
			vars, err := environment.Of(a.runDir, nic)
			if err != nil {
				return err
			}
			if size != "" {
				if d.require, err = quantity.ParseBytes(size); err != nil || d.require == 0 {
					return about.Usage(fmt.Errorf("--require-traffic: %w", cmp.Or(err, errors.New("must be at least 1 byte"))))
				}
			}
			return a.run(args, vars, d)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&size, "require-traffic", "", "fail if the program moves less payload over the NICs, such as 1m")
	cmd.Flags().BoolVar(&d.summary, "summary", false, "print the verbs traffic of each process")
	cmd.Flags().StringVar(&nic, "nic", "", "show the program only this NIC")
	return cmd
}

func (a *app) env() *cobra.Command {
	var nic string
	var container bool
	cmd := &cobra.Command{
		Use: "env [--nic NAME] [--container]", Short: "Print the variables that exec sets", Args: about.Words(0, 0),
		Long: `Prints the variables that exec sets, as commands of a shell; with --container, what a
container is to mount and to set, as arguments of docker run or podman run.
docs/guides/containers.md has the same for Compose and Kubernetes.`,
		Example: `  rocectl env                     one line a variable
  eval "$(rocectl env)"          then run verbs programs from this shell
  docker run $(rocectl env --container) IMAGE ibv_devinfo
  rocectl env --json`,
		RunE: func(*cobra.Command, []string) error {
			vars, err := environment.Of(a.runDir, nic)
			if err != nil {
				return err
			}
			if container {
				s, err := environment.ForContainer(vars)
				if err != nil {
					return err
				}
				return a.show(s, func(w io.Writer) { fmt.Fprintln(w, strings.Join(s.Flags(), "\n")) })
			}
			return a.show(vars, func(w io.Writer) {
				for _, v := range vars {
					fmt.Fprintln(w, v.Export())
				}
			})
		},
	}
	cmd.Flags().StringVar(&nic, "nic", "", "show programs only this NIC")
	cmd.Flags().BoolVar(&container, "container", false, "print the mounts and variables for a container")
	return cmd
}

// run replaces this process with another program, unless the user wants to know about its traffic.
func (a *app) run(args []string, vars []environment.Variable, d demand) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		code := exitNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
		return exitError{err, code}
	}
	if lib, err := environment.Library(); err == nil {
		if why := unsuited(path, lib); why != "" {
			fmt.Fprintln(a.diag, "rocectl:", why)
		}
	}
	env := os.Environ()
	for _, v := range vars {
		env = append(env, v.Name+"="+v.Value) // the last value of a variable counts: see dedup
	}
	if d.summary || d.require > 0 {
		return a.runCounted(path, args, env, d)
	}
	err = unix.Exec(path, args, dedup(env))
	return exitError{fmt.Errorf("%s: %w", path, err), exitNotExecutable}
}

// dedup keeps the last value of each variable.
func dedup(env []string) []string {
	at := map[string]int{}
	var out []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if i, ok := at[name]; ok {
			out[i] = v
			continue
		}
		at[name] = len(out)
		out = append(out, v)
	}
	return out
}
