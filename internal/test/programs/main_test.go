package programs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write "+tableFile)

// bin is the folder of the daemon, rocectl and the preload library, built once.
var bin string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	if f := flag.Lookup("test.run"); *update && f.Value.String() != "" {
		return 1, fmt.Errorf("-update needs all results: not with -run")
	}
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "bin")
	build := exec.Command("make", "-s", "-C", "../../..", "BIN="+bin, "build")
	if out, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("make build: %w\n%s", err, out)
	}
	if err := readTable(); err != nil {
		return 1, err
	}
	code := m.Run()
	if *update {
		return code, writeTable()
	}
	return code, nil
}
