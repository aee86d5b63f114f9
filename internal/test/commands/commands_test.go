package commands

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/lab"
)

const root = "../../.."

func TestMain(m *testing.M) { lab.LongMain(m, nil) }

// TestCommands runs the commands of each page in order, in one shell, and compares their output. The shell begins in a
// fresh clone with built programs, in namespaces of its own (testdata/prelude.sh). Commands "until Ctrl-C" are interrupted
// after their first output. No page may change tracked files of the clone or add files to it, except in bin and out. The
// tutorials without plug-ins also run with an installation and a copy of its examples.
func TestCommands(t *testing.T) {
	for _, program := range []string{"unshare", "ip", "ibv_devices", "ib_write_bw", "curl"} {
		lab.Need(t, program)
	}
	unshare := []string{"unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Geteuid() != 0 {
		t.Skip("needs root, for faults on interfaces")
	}
	source := tree(t)
	all := except(t, pages(t))
	effects(t, all)
	for page, commands := range all {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			run(t, unshare, page, commands, "SOURCE="+source)
		})
	}
	prefix := filepath.Join(lab.Dir(t), "usr")
	install := exec.Command("make", "-s", "install", "BIN="+lab.Bin, "DESTDIR=", "PREFIX="+prefix, "SYSCONFDIR="+prefix+"/etc")
	install.Dir = root
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	for page, commands := range all {
		if filepath.Base(filepath.Dir(page)) == "tutorials" && !needsClone(commands) {
			t.Run("package/"+filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				run(t, unshare, page, commands, "SOURCE="+source, "PACKAGE="+prefix)
			})
		}
	}
}

// needsClone reports whether a page builds programs with the Go packages.
func needsClone(commands []*command) bool {
	return slices.ContainsFunc(commands, func(c *command) bool { return strings.HasPrefix(c.text, "go ") })
}

// tree makes a repository of the tracked files as they are.
func tree(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(lab.Dir(t), "tree")
	script := `mkdir "$1"; git ls-files -z | xargs -0 sh -c 'for f; do [ ! -e "$f" ] || echo "$f"; done' sh | tar -cT - | tar -xC "$1"
cd "$1"; git init -q; git add -A; git -c user.name=t -c user.email=t@localhost commit -qm tree`
	c := exec.Command("bash", "-euo", "pipefail", "-c", script, "bash", dir)
	c.Dir = root
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("copy the tree: %v\n%s", err, out)
	}
	return dir
}

// run runs the commands of a page and compares their output.
func run(t *testing.T, unshare []string, page string, commands []*command, env ...string) {
	dir := lab.Dir(t)
	prelude, err := filepath.Abs("testdata/prelude.sh")
	lab.Must(t, err)
	script := ". " + quote(prelude) + "\n"
	if extra := filepath.Join(filepath.Dir(prelude), strings.TrimSuffix(filepath.Base(page), ".md")+".sh"); exists(extra) {
		script += ". " + quote(extra) + "\n"
	}
	for i, c := range commands {
		script += fmt.Sprintf("echo '@%d'\n%s\nnote\n", i, c.bash())
	}
	script += "echo '@end'\nleave\n"
	c := exec.Command(unshare[0], append(unshare[1:], "bash", "-c", script)...)
	c.Dir, c.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true}
	c.Env = append(append(os.Environ(), "BUILT="+lab.Bin, "PWD="+dir), env...)
	p := lab.LaunchCmd(t, (*exec.Cmd).Start, c)
	err = p.Wait(10 * lab.Limit)
	compare(t, commands, p.Out.String())
	lab.Must(t, err)
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// compare checks the output of each command.
func compare(t *testing.T, commands []*command, out string) {
	t.Helper()
	_, out, begun := strings.Cut(out, "@0\n")
	for i, c := range commands {
		next := "@end\n"
		if i+1 < len(commands) {
			next = fmt.Sprintf("@%d\n", i+1)
		}
		said, rest, ended := strings.Cut(out, next)
		if !begun || !ended {
			t.Errorf("%s: failed, or did not run:\n%s", c.text, said)
			return
		}
		if c.prints != nil && !c.pattern().MatchString(said) {
			t.Errorf("%s prints\n%s, not\n%s", c.text, said, strings.Join(c.prints, "\n"))
		}
		out = rest
	}
}
