package contact

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"roced.io/roced/internal/test/lab"
)

const root = "../../.."

// step is a command of a tutorial and its output on the page; without lines, any output is accepted.
type step struct {
	command string
	prints  []string
}

// steps reads the commands of a page: lines indented by four spaces that begin with "$ ", or "> " for a continuation.
func steps(t *testing.T, page string) (all []step) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/tutorials", page))
	lab.Must(t, err)
	for line := range strings.Lines(string(text)) {
		line, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		if !indented {
			continue
		}
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, step{command: command})
			continue
		}
		last := &all[len(all)-1]
		if more, ok := strings.CutPrefix(line, "> "); ok {
			last.command += "\n" + more
		} else {
			last.prints = append(last.prints, line)
		}
	}
	return all
}

// script runs the steps in one shell, which ends at the first failure. It marks the beginning of each output.
func script(all []step) string {
	s := "set -e\nexec 2>&1\n"
	for i, step := range all {
		s += fmt.Sprintf("echo '@%d'\n%s\n", i, step.command)
	}
	return s + "echo '@end'\n"
}

// pattern matches the expected output of a step, line by line.
func (s *step) pattern() *regexp.Regexp {
	text := strings.ReplaceAll(regexp.QuoteMeta(strings.Join(s.prints, "\n")), `\.\.\.`, `.*`)
	return regexp.MustCompile(`(?s)^` + text + `\n?$`)
}

// TestTutorials runs each page as written, in a folder with the needed parts of the clone, and compares the output.
func TestTutorials(t *testing.T) {
	lab.Need(t, "ibv_devices")
	for _, page := range []string{"trace.md", "faults.md", "congestion.md"} {
		t.Run(page, func(t *testing.T) {
			all, dir := steps(t, page), lab.Dir(t)
			for name, to := range map[string]string{"bin": lab.Bin, "examples": filepath.Join(root, "examples")} {
				to, err := filepath.Abs(to)
				lab.Must(t, err)
				lab.Must(t, os.Symlink(to, filepath.Join(dir, name)))
			}
			c := exec.Command("bash", "-c", script(all))
			c.Dir, c.SysProcAttr = dir, &syscall.SysProcAttr{Setpgid: true} // with background processes
			c.Env = append(os.Environ(), "ROCED_RUN_DIR="+filepath.Join(dir, "run"), "GOWORK=off", "PWD="+dir)
			t.Cleanup(func() {
				_ = exec.Command(lab.Program("rocectl"), "--run-dir", filepath.Join(dir, "run"), "down").Run() // if the page failed
			})
			p := lab.LaunchCmd(t, (*exec.Cmd).Start, c)
			err := p.Wait(2 * lab.Limit)
			compare(t, all, p.Out.String())
			lab.Must(t, err)
		})
	}
}

// compare checks the output of each step.
func compare(t *testing.T, all []step, out string) {
	t.Helper()
	for i := range all {
		next := fmt.Sprintf("@%d\n", i+1)
		if i+1 == len(all) {
			next = "@end\n"
		}
		_, said, begun := strings.Cut(out, fmt.Sprintf("@%d\n", i))
		said, _, ended := strings.Cut(said, next)
		if !begun || !ended {
			t.Errorf("%s: failed, or was not run:\n%s", all[i].command, said)
			return
		}
		if all[i].prints != nil && !all[i].pattern().MatchString(said) {
			t.Errorf("%s prints\n%s, not\n%s", all[i].command, said, strings.Join(all[i].prints, "\n"))
		}
	}
}
