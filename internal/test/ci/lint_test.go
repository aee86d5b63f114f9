package ci

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/lab"
)

var (
	actions   = []string{"../../../action.yml", "../../../deploy/ci/collect/action.yml"}
	workflows = "../../../.github/workflows/*.yml"
)

// lint lints a workflow. shellcheck lints the scripts of its steps.
func lint(t *testing.T, file string, text []byte) []*actionlint.Error {
	t.Helper()
	l, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{Shellcheck: "shellcheck"})
	lab.Must(t, err)
	project, err := actionlint.NewProject("../../..")
	lab.Must(t, err)
	faults, err := l.Lint(file, text, project)
	lab.Must(t, err)
	return faults
}

// TestLint lints workflows, and the steps of actions in the form of a called workflow. actionlint supports no other
// form for steps with inputs.
func TestLint(t *testing.T) {
	lab.Need(t, "shellcheck")
	files, err := filepath.Glob(workflows)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		lab.Must(t, err)
		for _, e := range lint(t, file, text) {
			t.Error(e)
		}
	}
	for _, file := range actions {
		text := asWorkflow(t, file)
		for _, e := range lint(t, file, text) {
			t.Errorf("%v in\n%s", e, text)
		}
		// The linter finds errors in an input, a step, and a command.
		for old, with := range map[string]string{"inputs.": "inputs.x", "steps.up.": "steps.upp.", "tools/scripts/ci\" ": "tools/scripts/ci\" $x "} {
			wrong := strings.Replace(string(text), old, with, 1)
			if wrong != string(text) && len(lint(t, file, []byte(wrong))) == 0 {
				t.Errorf("%s for %s is good in %s", with, old, file)
			}
		}
	}
	if out, err := exec.Command("shellcheck", "../../../tools/scripts/ci").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// asWorkflow converts an action into a workflow.
func asWorkflow(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	lab.Must(t, err)
	var raw struct {
		Inputs  map[string]map[string]string
		Outputs map[string]struct{ Value string }
		Runs    struct{ Steps []map[string]any }
	}
	lab.Must(t, yaml.Unmarshal(text, &raw))
	inputs, outputs := map[string]any{}, map[string]string{}
	for name, in := range raw.Inputs {
		if in["description"] == "" {
			t.Errorf("%s: input %s has no description", file, name)
		}
		inputs[name] = map[string]string{"type": "string", "default": in["default"]}
	}
	for name, out := range raw.Outputs {
		outputs[name] = out.Value
	}
	job := map[string]any{"runs-on": "ubuntu-latest", "steps": raw.Runs.Steps}
	if len(outputs) > 0 {
		job["outputs"] = outputs
	}
	out, err := yaml.Marshal(map[string]any{
		"on":   map[string]any{"workflow_call": map[string]any{"inputs": inputs}},
		"jobs": map[string]any{"job": job},
	})
	lab.Must(t, err)
	return out
}

// TestGoVersion: the action installs the Go version of go.mod.
func TestGoVersion(t *testing.T) {
	mod, err := os.ReadFile("../../../go.mod")
	lab.Must(t, err)
	want := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(mod))[1]
	gitlab, err := os.ReadFile("../../../deploy/ci/gitlab.yml")
	lab.Must(t, err)
	if got := readAction(t, actions[0]).Runs.Steps[0].With["go-version"]; got != want {
		t.Errorf("action.yml: Go %s, go.mod %s", got, want)
	}
	if !strings.Contains(string(gitlab), "image: golang:"+want+"-") {
		t.Errorf("deploy/ci/gitlab.yml has not golang:%s", want)
	}
}
