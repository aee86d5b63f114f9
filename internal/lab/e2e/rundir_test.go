package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
)

// as prepares a program to run as a user without a run directory outside dir.
func as(uid uint32, dir, program string, args ...string) *exec.Cmd {
	c := exec.Command(program, args...)
	c.Dir, c.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + dir, "HOME=" + dir}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	return c
}

// TestPreparedRunDir: an attacker creates another user's default run directory before that user does. The victim's
// programs use neither the attacker's daemon, which would get their memory, nor the files in the folder.
func TestPreparedRunDir(t *testing.T) {
	lab.Long(t)
	if os.Geteuid() != 0 {
		t.Skip("two other users take part, which takes root")
	}
	const attacker, victim = 64001, 64002
	dir, err := os.MkdirTemp("", "prepared")
	lab.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	lab.Must(t, os.Chmod(dir, os.ModeSticky|0o777))
	for _, p := range []string{"roced", "rocectl", "libroced.so"} {
		text, err := os.ReadFile(lab.Program(p))
		lab.Must(t, err)
		lab.Must(t, os.WriteFile(filepath.Join(dir, p), text, 0o755))
	}
	program := func(name string) string { return filepath.Join(dir, name) }
	run := filepath.Join(dir, "roced-64002")
	config := filepath.Join(dir, "attack.yaml")
	lab.Must(t, os.WriteFile(config, []byte("run_dir: "+run+"\nnics:\n  - {name: rxe_a, port: {type: udp, address: 127.77.0.1}}\n"), 0o644))
	daemon := as(attacker, dir, program("roced"), "run", "--config", config)
	lab.Must(t, daemon.Start())
	t.Cleanup(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		_ = daemon.Wait()
	})
	lab.Eventually(t, 20*time.Second, "the attacker's daemon runs", func() bool {
		_, err := os.Stat(filepath.Join(run, "roced.sock"))
		return err == nil
	})
	precious := filepath.Join(dir, "precious")
	lab.Must(t, os.WriteFile(precious, []byte("kept"), 0o644))
	lab.Must(t, os.Chown(precious, victim, victim))
	for name, make := range map[string]func(string) error{
		"up.lock":   func(p string) error { return os.WriteFile(p, nil, 0o666) },
		"roced.log": func(p string) error { return os.Symlink(precious, p) },
	} {
		lab.Must(t, make(filepath.Join(run, name)))
	}
	for _, args := range [][]string{
		{"rocectl", "exec", "--", "true"}, {"rocectl", "link", "show"}, {"rocectl", "env"}, {"roced", "up"}, {"rocectl", "down"},
	} {
		out, err := as(victim, dir, program(args[0]), args[1:]...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "owned by uid 64001") {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "kept" {
		t.Errorf("a file of the victim has %q, %v", text, err)
	}
}
