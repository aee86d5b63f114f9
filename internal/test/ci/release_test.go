package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"roced.io/roced/internal/lab"
)

// TestRelease: a pipeline takes the programs of a release instead of building them, and refuses one with other bytes.
func TestRelease(t *testing.T) {
	lab.Need(t, "curl")
	dir, script := t.TempDir(), `arch=$(dpkg --print-architecture)
mkdir -p v9.9.9 "roced-9.9.9-linux-$arch/bin" "roced-9.9.9-linux-$arch/lib/roced"
cp -L "$BUILT"/roced "$BUILT"/rocectl "roced-9.9.9-linux-$arch/bin"
cp -L "$BUILT/libroced.so" "roced-9.9.9-linux-$arch/lib/roced"
tar -czf "v9.9.9/roced-9.9.9-linux-$arch.tar.gz" "roced-9.9.9-linux-$arch"
cd v9.9.9 && sha256sum * >SHA256SUMS`
	run := func(dir string, env []string, name string, args ...string) (string, error) {
		c := exec.Command(name, args...)
		c.Dir, c.Env = dir, append(os.Environ(), env...)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run(dir, []string{"BUILT=" + lab.Bin}, "bash", "-euo", "pipefail", "-c", script); err != nil {
		t.Fatal(out, err)
	}
	install, err := filepath.Abs("../../../tools/scripts/ci")
	lab.Must(t, err)
	env := []string{"ROCED_RELEASE=9.9.9", "ROCED_RELEASES=file://" + dir}
	target := t.TempDir()
	if out, err := run(target, append(env, "ROCED_CI="+target), install, "install"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := run(target, nil, filepath.Join(target, "bin", "rocectl"), "env", "--run-dir", target); !strings.Contains(out, target) {
		t.Errorf("rocectl env: %v, %s", err, out)
	}
	sums := filepath.Join(dir, "v9.9.9", "SHA256SUMS")
	text, err := os.ReadFile(sums)
	lab.Must(t, err)
	lab.Must(t, os.WriteFile(sums, []byte(strings.Repeat("0", 64)+string(text[64:])), 0o600))
	other := t.TempDir()
	if out, err := run(other, append(env, "ROCED_CI="+other), install, "install"); err == nil || !strings.Contains(out, "WARNING") {
		t.Errorf("a release with other bytes: %v, %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(other, "bin")); err == nil {
		t.Error("it is installed")
	}
}
