package ctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/daemon/environment"
	"roced.io/roced/internal/lab"
)

// roleEnv selects the role of the test binary: rocectl, or a program that rocectl runs.
const roleEnv = "ROCED_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "ctl":
		// The role takes effect only after exec.
		if err := os.Setenv(roleEnv, "program"); err != nil {
			panic(err)
		}
		os.Exit(Main(os.Args[1:], os.Stdout, os.Stderr))
	default:
		os.Exit(program(os.Args[1:]))
	}
}

// program is the program that rocectl runs in these tests.
func program(args []string) int {
	if len(args) == 2 && args[0] == "exit" {
		code, _ := strconv.Atoi(args[1])
		return code
	}
	if len(args) == 2 && args[0] == "kill" {
		n, _ := strconv.Atoi(args[1])
		_ = unix.Kill(os.Getpid(), unix.Signal(n))
		time.Sleep(lab.Limit) // until the signal arrives
	}
	vars := map[string]string{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if _, twice := vars[name]; twice {
			value = "twice!"
		}
		vars[name] = value
	}
	_ = json.NewEncoder(os.Stdout).Encode(said{PID: os.Getpid(), Args: args, Env: vars})
	return 0
}

// said is the program's report on itself.
type said struct {
	PID  int
	Args []string
	Env  map[string]string
}

// startHost starts a daemon in a folder with special characters in its name. It returns its run directory.
func startHost(t *testing.T) (runDir string, stop func() error) {
	t.Helper()
	w := lab.NewWithin(t, "it's a")
	return w.RunDir, w.Stop
}

// rocectl returns a command that runs rocectl in a separate process. env extends its environment.
func rocectl(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit)
	t.Cleanup(cancel)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(ctx, self, args...)
	c.Env = append(append(os.Environ(), roleEnv+"=ctl", "LD_PRELOAD=", "ROCED_NIC=left over"), env...)
	return c
}

// library creates a file in place of the preload library. The dynamic linker prints a warning about it and continues.
func library(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), environment.LibraryName)
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExec(t *testing.T) {
	runDir, _ := startHost(t)
	lib := library(t)
	for _, c := range []struct {
		args, env []string
		want      map[string]string
	}{
		{nil, nil, map[string]string{"LD_PRELOAD": lib, "SYSFS_PATH": runDir + "/sysfs", "ROCED_NIC": ""}},
		{[]string{"--nic", "rxe_b"}, []string{"SYSFS_PATH=/x"},
			map[string]string{"LD_PRELOAD": lib, "SYSFS_PATH": runDir + "/nic/rxe_b", "ROCED_NIC": "rxe_b"}},
		{nil, []string{"LD_PRELOAD=/nonexistent/a.so /nonexistent/b.so"},
			map[string]string{"LD_PRELOAD": "/nonexistent/a.so:/nonexistent/b.so:" + lib}},
		{nil, []string{"LD_PRELOAD=/nonexistent/a.so:" + lib}, map[string]string{"LD_PRELOAD": "/nonexistent/a.so:" + lib}},
		{nil, []string{"LD_PRELOAD=" + lib + ".old"}, map[string]string{"LD_PRELOAD": lib + ".old:" + lib}},
	} {
		args := append(append([]string{"--run-dir", runDir, "exec"}, c.args...), "--", os.Args[0], "-x", "a b", "", "--nic")
		cmd := rocectl(t, append(c.env, "ROCED_LIBRARY="+lib), args...)
		out, err := cmd.Output()
		var s said
		if err == nil {
			err = json.Unmarshal(out, &s)
		}
		if err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
			continue
		}
		if s.PID != cmd.Process.Pid {
			t.Errorf("the program is process %d, rocectl %d", s.PID, cmd.Process.Pid)
		}
		if d := cmp.Diff([]string{"-x", "a b", "", "--nic"}, s.Args); d != "" {
			t.Error(d)
		}
		c.want["ROCED_RUN_DIR"] = runDir
		for name, want := range c.want {
			if got := s.Env[name]; got != want {
				t.Errorf("%v %v: %s is %q, want %q", c.args, c.env, name, got, want)
			}
		}
	}
}

// TestRelativeRunDir checks that the program may change its working directory.
func TestRelativeRunDir(t *testing.T) {
	runDir, _ := startHost(t)
	cmd := rocectl(t, []string{"ROCED_LIBRARY=" + library(t)}, "--run-dir", "run", "exec", "--", os.Args[0])
	cmd.Dir = filepath.Dir(runDir)
	out, err := cmd.Output()
	var s said
	if err := errors.Join(err, json.Unmarshal(out, &s)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if s.Env["ROCED_RUN_DIR"] != runDir || s.Env["SYSFS_PATH"] != runDir+"/sysfs" {
		t.Errorf("%s, %s", s.Env["ROCED_RUN_DIR"], s.Env["SYSFS_PATH"])
	}
}

// TestExecEnds checks the exit codes of programs, and of rocectl if it finds no program.
func TestExecEnds(t *testing.T) {
	runDir, stop := startHost(t)
	lib := library(t)
	folder, plain := t.TempDir(), filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("\x7fELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	spaced := filepath.Join(t.TempDir(), "a b.so")
	if err := os.WriteFile(spaced, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	check := func(code int, signal syscall.Signal, says, nic, lib string, args ...string) {
		t.Helper()
		line := []string{"--run-dir", runDir, "exec", "--nic", nic, "--"}
		cmd := rocectl(t, []string{"ROCED_LIBRARY=" + lib}, append(line, args...)...)
		var diag bytes.Buffer
		cmd.Stderr = &diag
		_ = cmd.Run() // the process state has the details
		st, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if signal != 0 && st.Signal() != signal || signal == 0 && st.ExitStatus() != code || !strings.Contains(diag.String(), says) {
			t.Errorf("%v: %v, %s", args, cmd.ProcessState, &diag)
		}
	}
	check(0, 0, "", "", lib, os.Args[0], "exit", "0")
	check(7, 0, "", "", lib, os.Args[0], "exit", "7")
	check(0, unix.SIGKILL, "", "", lib, os.Args[0], "kill", "9")
	check(0, unix.SIGTERM, "", "", lib, os.Args[0], "kill", "15")
	check(127, 0, "not found", "", lib, "no-such-program-anywhere")
	check(127, 0, "no such file", "", lib, "/nonexistent/program")
	check(126, 0, "permission denied", "", lib, plain)
	check(126, 0, "is a directory", "", lib, folder)
	check(126, 0, "exec format error", "", lib, garbage)
	check(2, 0, "usage: rocectl exec", "", lib)
	check(1, 0, `has no NIC "c"`, "c", lib, os.Args[0])
	check(1, 0, `has no NIC "../nic/b"`, "../nic/b", lib, os.Args[0])
	check(1, 0, "a colon or a space", "", spaced, os.Args[0])
	check(1, 0, "or set ROCED_LIBRARY to its path", "", "", os.Args[0])
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	check(1, 0, "is roced running?", "", lib, os.Args[0])
}

// TestLibraryBesideRocectl checks the search path of the library.
func TestLibraryBesideRocectl(t *testing.T) {
	runDir, _ := startHost(t)
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	prefix := t.TempDir()
	for _, dir := range []string{"bin", "lib/roced"} {
		if err := os.MkdirAll(filepath.Join(prefix, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	self := filepath.Join(prefix, "bin/rocectl")
	if err := os.WriteFile(self, text, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"lib/roced", "bin"} { // later entries have precedence
		want := filepath.Join(prefix, at, environment.LibraryName)
		if err := os.WriteFile(want, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := rocectl(t, []string{"ROCED_LIBRARY="}, "--run-dir", runDir, "exec", "--", os.Args[0])
		cmd.Path = self
		out, err := cmd.Output()
		var s said
		if err := errors.Join(err, json.Unmarshal(out, &s)); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if s.Env["LD_PRELOAD"] != want {
			t.Errorf("the library is %s, want %s", s.Env["LD_PRELOAD"], want)
		}
	}
}

// TestEnv evaluates the variables in a shell.
func TestEnv(t *testing.T) {
	runDir, _ := startHost(t)
	lib := library(t)
	out, err := rocectl(t, []string{"ROCED_LIBRARY=" + lib}, "--run-dir", runDir, "env", "--nic", "rxe_b").Output()
	if err != nil {
		t.Fatal(err)
	}
	sh := exec.CommandContext(t.Context(), "sh", "-c", `eval "$1"; LD_PRELOAD= exec "$2"`, "sh", string(out), os.Args[0])
	sh.Env = append(os.Environ(), roleEnv+"=program")
	told, err := sh.Output()
	var s said
	if err := errors.Join(err, json.Unmarshal(told, &s)); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, told)
	}
	for name, want := range map[string]string{"ROCED_RUN_DIR": runDir, "SYSFS_PATH": runDir + "/nic/rxe_b", "ROCED_NIC": "rxe_b"} {
		if s.Env[name] != want {
			t.Errorf("%s is %q, want %q", name, s.Env[name], want)
		}
	}
	if !strings.Contains(string(out), "export LD_PRELOAD='"+lib+"'\n") {
		t.Errorf("%s", out)
	}

	out, err = rocectl(t, []string{"ROCED_LIBRARY=" + lib}, "--run-dir", runDir, "env", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var vars []environment.Variable
	if err := json.Unmarshal(out, &vars); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(lib), "libmrc.so"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	out, err = rocectl(t, []string{"ROCED_LIBRARY=" + lib, "LD_LIBRARY_PATH=/x"}, "--run-dir", runDir, "env").Output()
	if want := "export LD_LIBRARY_PATH='" + filepath.Dir(lib) + ":/x'\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("with the library of MRC: %v, %s", err, out)
	}
	want := []environment.Variable{{Name: "LD_PRELOAD", Value: lib}, {Name: "ROCED_RUN_DIR", Value: runDir}, {Name: "ROCED_NIC"},
		{Name: "SYSFS_PATH", Value: runDir + "/sysfs"}, {Name: "ROCED_EXPLAIN", Value: "1"}}
	if d := cmp.Diff(want, vars); d != "" {
		t.Error(d)
	}
}
