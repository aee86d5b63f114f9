package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// bin is the folder of the programs, built once.
var bin string

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "e2e")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return 1, err
	}
	build := exec.Command("go", "build", "-o", bin+"/", "roced/cmd/roced", "roced/cmd/rocectl", "roced/cmd/roceperf",
		"roced/tools/demo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the Makefile does
	out, err := build.CombinedOutput()
	if err != nil {
		return 1, fmt.Errorf("build: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// limit bounds everything that a test waits for. It is long: a loaded machine is
// slow, and only a test that fails waits for it.
const limit = 60 * time.Second

// eventually polls until ok says so.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
