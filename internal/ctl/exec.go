package ctl

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
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
daemon. Children of the program inherit it. Statically linked programs cannot be
run so.`,
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
			return run(args, vars)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&nic, "nic", "", "the only NIC that the program is to see")
	return cmd
}

func (a *app) env() *cobra.Command {
	var nic string
	cmd := &cobra.Command{
		Use: "env [--nic NAME]", Short: "Print the variables that exec sets, for shells and containers", Args: between(0, 0),
		Example: `  rocectl env                     one line a variable
  eval "$(rocectl env)"          then run verbs programs from this shell
  rocectl env --json`,
		RunE: func(*cobra.Command, []string) error {
			vars, err := a.environment(nic)
			if err != nil {
				return err
			}
			return a.show(vars, func(w io.Writer) {
				for _, v := range vars {
					fmt.Fprintf(w, "export %s=%s\n", v.Name, quote(v.Value))
				}
			})
		},
	}
	cmd.Flags().StringVar(&nic, "nic", "", "the only NIC that programs are to see")
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
	tree := filepath.Join(dir, "sysfs")
	if _, err := os.Stat(tree); err != nil {
		return nil, fmt.Errorf("no daemon uses the run directory %s: %w", dir, err)
	}
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
	if old := os.Getenv("LD_PRELOAD"); old != "" && !strings.Contains(old, lib) {
		lib += ":" + old
	}
	vars := []variable{{"LD_PRELOAD", lib}, {"ROCED_RUN_DIR", dir}, {"SYSFS_PATH", tree}}
	if nic != "" {
		vars = append(vars, variable{"ROCED_NIC", nic})
	}
	return vars, nil
}

// findLibrary finds the preload library: where ROCED_LIBRARY says, beside this
// program, or where packages put it.
func findLibrary() (string, error) {
	if path := os.Getenv("ROCED_LIBRARY"); path != "" {
		return path, nil
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
func run(args []string, vars []variable) error {
	path, err := exec.LookPath(args[0])
	if err != nil {
		code := exitNotFound
		if errors.Is(err, fs.ErrPermission) {
			code = exitNotExecutable
		}
		return exitError{err, code}
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
