package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/lab"
)

const writeBW = "ib_write_bw -d rxe_a -n 100 & until ss -Hltn | grep -q ':18515 '; do sleep 0.1; done; ib_write_bw -d rxe_b -n 100 127.0.0.1"

// TestGitLab runs a job of the template as GitLab's runners do: before_script and script in one shell, after_script in
// another one, for any result of the first.
func TestGitLab(t *testing.T) {
	lab.Long(t)
	start := machine(t)
	var template map[string]struct {
		Variables map[string]string
		Before    []string `yaml:"before_script"`
		After     []string `yaml:"after_script"`
		Artifacts struct{ Paths []string }
	}
	text, err := os.ReadFile("../../../deploy/ci/gitlab.yml")
	lab.Must(t, err)
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	lab.Must(t, d.Decode(&template))
	base := template[".roced"]
	source := snapshot(t)
	project := t.TempDir()
	for _, c := range []struct {
		name, require, script string
		good                  bool
	}{
		{"good", "", writeBW, true},
		{"bad", "", "false", false},
		{"traffic", "1m", `.roced/source/tools/scripts/ci run "` + writeBW + `"`, true},
		{"no traffic", "1m", ".roced/source/tools/scripts/ci run ibv_devinfo", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			shell := func(lines ...string) error {
				cmd := exec.Command("bash", "-c", "set -eo pipefail\n"+strings.Join(lines, "\n"))
				cmd.Dir = project
				cmd.Env = append(os.Environ(), "CI_PROJECT_DIR="+project)
				for k, v := range base.Variables {
					cmd.Env = append(cmd.Env, k+"="+v)
				}
				cmd.Env = append(cmd.Env, "ROCED_REPOSITORY=file://"+source, "ROCED_PACKAGES=perftest iproute2", "ROCED_REQUIRE_TRAFFIC="+c.require)
				p := lab.LaunchCmd(t, start, cmd)
				err := p.Wait(10 * lab.Limit)
				t.Logf("%v\n%s", err, p.Said())
				return err
			}
			if err := shell(append(base.Before, c.script)...); (err == nil) != c.good {
				t.Error(err)
			}
			lab.Must(t, shell(base.After...))
			if len(base.Artifacts.Paths) != 1 {
				t.Fatal(base.Artifacts)
			}
			j := &job{t: t, temp: project, uploads: map[string]string{"roced": filepath.Join(project, base.Artifacts.Paths[0])}}
			j.collected("roced")
		})
	}
}

// snapshot makes a repository with the current state of this tree.
func snapshot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `cd ../../..; git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do
		[ ! -e "$f" ] || printf '%s\0' "$f"; done | tar --null -T - -c | tar -x -C "$1"
		cd "$1"; git init -q; git add -A; git -c user.name=test -c user.email=test commit -qm tree`
	if out, err := exec.Command("bash", "-euc", script, "bash", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}
