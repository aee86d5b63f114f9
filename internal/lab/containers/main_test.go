package containers

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	fixtures "roced.io/roced/internal/lab"
)

// all runs the whole matrix.
var all = flag.Bool("all", false, "run the whole matrix, not a sample")

// bin is the folder of the programs, the library and the test program.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		code = 1
	}
	os.Exit(code)
}

// overcommit is the limit on huge pages that the kernel allocates on demand.
const overcommit = "/proc/sys/vm/nr_overcommit_hugepages"

func runTests(m *testing.M) (int, error) {
	if testing.Short() {
		fmt.Println("skipped: make check runs it")
		return 0, nil
	}
	if os.Geteuid() != 0 {
		fmt.Println("skipped: containers are made by root")
		return 0, nil
	}
	if _, err := exec.LookPath("runc"); err != nil {
		fmt.Println("skipped: runc is not installed (make setup)")
		return 0, nil
	}
	dir, err := os.MkdirTemp("", "containers")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 1, err
	}
	bin = filepath.Join(dir, "bin")
	if err := fixtures.Programs(bin); err != nil {
		return 1, err
	}
	cc := exec.Command("cc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", filepath.Join(bin, "kinds"),
		"testdata/kinds.c", "-libverbs")
	if out, err := cc.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("%v: %w\n%s", cc.Args, err, out)
	}
	if old, err := os.ReadFile(overcommit); err == nil && os.WriteFile(overcommit, []byte("16\n"), 0) == nil {
		defer os.WriteFile(overcommit, old, 0)
	}
	return m.Run(), nil
}
