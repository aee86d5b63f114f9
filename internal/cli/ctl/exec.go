package ctl

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"roced/verbs"
)

// Exit codes of exec when there is no program to have one, as of env(1).
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// libraryName is the preload library.
const libraryName = "libroced.so"

// exitError carries an exit code.
type exitError struct {
	error
	code int
}

// variable is one of the environment.
type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func (a *app) exec() *cobra.Command {
	var nic string
	cmd := &cobra.Command{
		Use: "exec [--nic NAME] -- PROGRAM [ARG...]", Short: "Run a verbs program on the daemon's NICs",
		Long: `Runs an RDMA program as it is, on a machine whose kernel has no InfiniBand: a
preload library stands between the program's libibverbs and librdmacm and the
daemon. Children of the program inherit it. Statically linked programs, and those for
another processor than the library, cannot be run so; it says so.`,
		Example: `  rocectl exec -- ibv_devinfo -v
  rocectl exec --nic rxe_a -- ib_write_bw
  rocectl exec -- python3 my_pyverbs_program.py`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("usage: %s", c.UseLine())}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			vars, err := a.environment(nic)
			if err != nil {
				return err
			}
			return a.run(args, vars)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&nic, "nic", "", "the only NIC that the program is to see")
	return cmd
}

func (a *app) env() *cobra.Command {
	var nic string
	var container bool
	cmd := &cobra.Command{
		Use: "env [--nic NAME] [--container]", Short: "Print the variables that exec sets, for shells and containers", Args: between(0, 0),
		Long: `Prints the variables that exec sets, as commands of a shell; with --container, what a
container is to mount and to set, as arguments of docker run or podman run.
docs/containers.md has the same for Compose and Kubernetes.`,
		Example: `  rocectl env                     one line a variable
  eval "$(rocectl env)"          then run verbs programs from this shell
  docker run $(rocectl env --container) IMAGE ibv_devinfo
  rocectl env --json`,
		RunE: func(*cobra.Command, []string) error {
			vars, err := a.environment(nic)
			if err != nil {
				return err
			}
			if container {
				s, err := forContainer(vars)
				if err != nil {
					return err
				}
				return a.show(s, func(w io.Writer) { fmt.Fprintln(w, strings.Join(s.flags(), "\n")) })
			}
			return a.show(vars, func(w io.Writer) {
				for _, v := range vars {
					fmt.Fprintf(w, "export %s=%s\n", v.Name, quote(v.Value))
				}
			})
		},
	}
	cmd.Flags().StringVar(&nic, "nic", "", "the only NIC that programs are to see")
	cmd.Flags().BoolVar(&container, "container", false, "for a container: what to mount and to set")
	return cmd
}

// quote makes a word of a shell of s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// environment returns the variables for programs, having looked that a daemon is
// there which serves them.
func (a *app) environment(nic string) ([]variable, error) {
	dir, err := filepath.Abs(a.runDir)
	if err != nil {
		return nil, err
	}
	devices, err := verbs.Devices(dir)
	if err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("no NIC in %s answers this user: is roced running? (--run-dir names another one)", dir)
	}
	tree := filepath.Join(dir, "sysfs")
	if nic != "" {
		tree = filepath.Join(dir, "nic", nic)
		if _, err := os.Stat(tree); err != nil || filepath.Base(nic) != nic {
			return nil, fmt.Errorf("the daemon of %s has no NIC %q", dir, nic)
		}
	}
	lib, err := findLibrary()
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(lib, separators) {
		return nil, fmt.Errorf("LD_PRELOAD cannot name %q: it has a colon or a space; ROCED_LIBRARY can name a copy", lib)
	}
	return []variable{{"LD_PRELOAD", preload(lib, os.Getenv("LD_PRELOAD"))}, {"ROCED_RUN_DIR", dir}, {"ROCED_NIC", nic},
		{"SYSFS_PATH", tree}, {explains, cmp.Or(os.Getenv(explains), "1")}}, nil
}

// explains makes the library print why a command has failed of which the program sees an
// error number only.
const explains = "ROCED_EXPLAIN"

// separators are what stands between the libraries of LD_PRELOAD.
const separators = ": "

// preload puts a library behind others of LD_PRELOAD, unless it is there: it stands for the
// kernel, so what others do with a program's calls (librspreload, sanitizers) they do first.
func preload(lib, others string) string {
	list := strings.FieldsFunc(others, func(r rune) bool { return strings.ContainsRune(separators, r) })
	if slices.Contains(list, lib) {
		return others
	}
	return strings.Join(append(list, lib), ":")
}

// findLibrary finds the preload library: where ROCED_LIBRARY says, beside this
// program, or where packages put it.
func findLibrary() (string, error) {
	if path := os.Getenv("ROCED_LIBRARY"); path != "" {
		return filepath.Abs(path)
	}
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	tried := []string{filepath.Join(dir, libraryName), filepath.Join(dir, "..", "lib", "roced", libraryName)}
	for _, path := range tried {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the preload library is in none of %s; ROCED_LIBRARY can name it", strings.Join(tried, ", "))
}

// run replaces this program by another.
func (a *app) run(args []string, vars []variable) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		code := exitNotExecutable
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			code = exitNotFound
		}
		return exitError{err, code}
	}
	if lib, err := findLibrary(); err == nil {
		if why := unsuited(path, lib); why != "" {
			fmt.Fprintln(a.diag, "rocectl:", why)
		}
	}
	env := os.Environ()
	for _, v := range vars {
		env = append(env, v.Name+"="+v.Value) // of two the last counts: see dedup
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
