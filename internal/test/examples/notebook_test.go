package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const notebook = "../../../examples/notebook/sweep.py"

// TestNotebook compiles the script of examples/notebook. Where pandas and matplotlib exist, it also runs the script.
func TestNotebook(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing")
	}
	dir := t.TempDir()
	compile := exec.Command(python, "-c", "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], doraise=True)", notebook, filepath.Join(dir, "x.pyc"))
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if exec.Command(python, "-c", "import pandas, matplotlib").Run() != nil {
		t.Skip("python3-pandas or python3-matplotlib is missing; the script compiles")
	}
	rocesim := filepath.Join(dir, "rocesim")
	if out, err := exec.Command("go", "build", "-o", rocesim, "../../../cmd/rocesim").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile("../../../configs/sim/websearch.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scenario := filepath.Join(dir, "short.yaml")
	if err := os.WriteFile(scenario, []byte(strings.Replace(string(text), "until: 2ms", "until: 50us", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	run := exec.Command(python, notebook, scenario, filepath.Join(dir, "out"))
	run.Env = append(os.Environ(), "ROCESIM="+rocesim)
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "hpcc") {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "slowdown.png")); err != nil {
		t.Error(err)
	}
}
