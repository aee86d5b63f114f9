package install

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/base/version"
	"roced.io/roced/internal/lab"
)

// when is the time of the commits of checkouts.
const when = "2026-01-02T03:04:05Z"

// copied copies the source into a new folder that is no repository.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	list := exec.Command("git", "-C", root, "ls-files", "-coz", "--exclude-standard")
	names, err := list.Output()
	lab.Must(t, err)
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, but not committed yet
		}
		lab.Must(t, err)
		info, err := os.Stat(filepath.Join(root, name))
		lab.Must(t, err)
		to := filepath.Join(dir, name)
		lab.Must(t, os.MkdirAll(filepath.Dir(to), 0o755))
		lab.Must(t, os.WriteFile(to, text, info.Mode()))
	}
	return dir
}

// checkout copies the source into a repository with one commit. The commit is the same in all copies.
func checkout(t *testing.T) string {
	t.Helper()
	dir := copied(t)
	env := []string{"GIT_AUTHOR_DATE=" + when, "GIT_COMMITTER_DATE=" + when}
	command(t, env, "git", "-C", dir, "init", "-q")
	command(t, env, "git", "-C", dir, "add", "-A")
	command(t, env, "git", "-C", dir, "-c", "user.name=n", "-c", "user.email=n@example.org", "commit", "-qm", "all")
	return dir
}

// TestSameBytes: the same source gives the same programs and packages in any folder, and they name their source.
func TestSameBytes(t *testing.T) {
	dirs := []string{checkout(t), checkout(t)}
	for _, dir := range dirs {
		command(t, nil, "make", "-s", "-C", dir, "build")
	}
	for _, name := range append([]string{"libroced.so"}, programs...) {
		one := sameFile(t, dirs, filepath.Join("bin", name))
		if bytes.Contains(one, []byte(dirs[0])) {
			t.Errorf("%s says where it was built", name)
		}
	}
	own := func() (v version.Info) {
		lab.Must(t, json.Unmarshal([]byte(command(t, nil, dirs[0]+"/bin/roced", "version", "--json")), &v))
		return v
	}
	head := strings.TrimSpace(command(t, nil, "git", "-C", dirs[0], "rev-parse", "HEAD"))
	if v := own(); v.Revision != head || v.Time != when || v.Modified {
		t.Errorf("%+v, not of %s", v, head)
	}
	t.Run("image", func(t *testing.T) { image(t, dirs, head) })
	packages := samePackages(t, dirs)
	lab.Must(t, os.WriteFile(filepath.Join(dirs[0], "LICENSE"), nil, 0o644))
	command(t, nil, "make", "-s", "-C", dirs[0], "build", "TOOLS=roced")
	if v := own(); v.Revision != head || !v.Modified {
		t.Errorf("%+v, not a modified %s", v, head)
	}
	if packages == nil {
		return
	}
	t.Run("package", func(t *testing.T) { inspect(t, packages[0], head) })
	t.Run("upgrade", func(t *testing.T) { upgrade(t, packages[0], build(t, dirs[0], runtime.GOARCH)[0]) })
}

// sameFile compares a file in two folders and returns it.
func sameFile(t *testing.T, dirs []string, name string) []byte {
	t.Helper()
	one, err := os.ReadFile(filepath.Join(dirs[0], name))
	lab.Must(t, err)
	other, err := os.ReadFile(filepath.Join(dirs[1], name))
	lab.Must(t, err)
	if !bytes.Equal(one, other) {
		t.Errorf("%s is of other bytes when it is built in another folder", name)
	}
	return one
}

// TestLintWithoutGit: formatting is checked in a tree that is no repository, such as an unpacked archive, and without
// input: gofmt without file names would wait for its standard input. The other lint steps use no repository.
func TestLintWithoutGit(t *testing.T) {
	dir := copied(t)
	lint := func() *lab.Proc {
		c := exec.Command("make", "-s", "-C", dir, "lint-text")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // gofmt is in the same group
		_, err := c.StdinPipe()                             // never closed
		lab.Must(t, err)
		return lab.LaunchCmd(t, (*exec.Cmd).Start, c)
	}
	lab.Must(t, lint().Wait(lab.Limit))
	lab.Must(t, os.WriteFile(filepath.Join(dir, "bad.go"), []byte("package  bad\n"), 0o644))
	bad := lint()
	if err := bad.Wait(lab.Limit); err == nil || !strings.Contains(bad.Said(), "bad.go") || !strings.Contains(bad.Said(), "gofmt needed") {
		t.Errorf("an ill-formatted file is not found: %v\n%s", err, bad.Said())
	}
}
