package ci

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/lab"
)

// step is a step of a job or of a composite action.
type step struct {
	Name, ID, If, Uses, Run, Shell string
	Env, With                      map[string]string
}

// action is an action's metadata.
type action struct {
	Inputs map[string]struct {
		Description string
		Default     string
	}
	Outputs map[string]struct{ Value string }
	Runs    struct {
		Using string
		Steps []step
	}
}

// job imitates a GitHub job as far as its steps need it. On GitHub, the runner provides the files, and steps write them
// to extend the environment and PATH.
type job struct {
	t       *testing.T
	root    string // of the repository, which is the workspace
	temp    string
	start   func(*exec.Cmd) error
	env     map[string]string // set by earlier steps
	path    []string
	uploads map[string]string // artefacts: folders, by name
	used    []string          // third-party actions
}

func newJob(t *testing.T, start func(*exec.Cmd) error) *job {
	root, err := filepath.Abs("../../..")
	lab.Must(t, err)
	temp := t.TempDir()
	if !*pristine { // the programs are linked already
		lab.Must(t, os.CopyFS(filepath.Join(temp, ".roced/bin"), os.DirFS(lab.Bin)))
	}
	return &job{t: t, root: root, temp: temp, start: start, env: map[string]string{}, uploads: map[string]string{}}
}

// scope holds the values that expressions in a list of steps can name.
type scope struct {
	inputs   map[string]string
	outputs  map[string]map[string]string // by step
	outcomes map[string]string
	folder   string // of the action, empty in a workflow
	failed   bool
}

// steps runs a list of steps and reports whether all succeeded. Like GitHub, after a failure it runs only the steps
// whose condition asks for it.
func (j *job) steps(list []step, s *scope) bool {
	j.t.Helper()
	s.outputs, s.outcomes = map[string]map[string]string{}, map[string]string{}
	for i := range list {
		st := &list[i]
		if !j.due(st, s) {
			continue
		}
		ok := j.step(st, s)
		s.outcomes[st.ID] = "success"
		if !ok {
			s.outcomes[st.ID], s.failed = "failure", true
		}
	}
	return !s.failed
}

// due reports whether a step is to run. A step without a condition on the job's state runs only if no step has failed.
func (j *job) due(st *step, s *scope) bool {
	if st.If == "" {
		return !s.failed
	}
	e := evaluation{job: j, scope: s}
	due := truth(e.text(st.If))
	return due && (e.asked || !s.failed)
}

func (j *job) step(st *step, s *scope) bool {
	with := map[string]string{}
	for k, v := range st.With {
		with[k] = j.fill(v, s)
	}
	switch {
	case strings.HasPrefix(st.Uses, "./"):
		return j.uses(st.Uses, with)
	case strings.HasPrefix(st.Uses, "actions/upload-artifact@"):
		j.uploads[with["name"]] = with["path"]
		return true
	case st.Uses != "":
		j.used = append(j.used, st.Uses)
		return true
	}
	return j.run(st, s)
}

// uses runs a composite action of this repository.
func (j *job) uses(folder string, with map[string]string) bool {
	j.t.Helper()
	a := readAction(j.t, filepath.Join(j.root, folder, "action.yml"))
	s := &scope{inputs: map[string]string{}, folder: filepath.Join(j.root, folder)}
	for name, in := range a.Inputs {
		s.inputs[name] = in.Default
	}
	for name, v := range with {
		if _, ok := a.Inputs[name]; !ok {
			j.t.Errorf("%s has no input %s", folder, name)
		}
		s.inputs[name] = v
	}
	return j.steps(a.Runs.Steps, s)
}

// run runs the commands of a step unmodified.
func (j *job) run(st *step, s *scope) bool {
	j.t.Helper()
	files := map[string]string{}
	for _, name := range []string{"GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT"} {
		f, err := os.CreateTemp(j.temp, name)
		lab.Must(j.t, err)
		lab.Must(j.t, f.Close())
		files[name] = f.Name()
	}
	script := filepath.Join(j.temp, "script.sh")
	if strings.Contains(st.Run, "${{") {
		j.t.Errorf("%s: expressions in commands are commands of whoever has written their values", st.Name)
	}
	lab.Must(j.t, os.WriteFile(script, []byte(st.Run), 0o600))
	c := exec.Command("bash", "--noprofile", "--norc", "-eo", "pipefail", script)
	if st.Shell == "" { // the default shell of a workflow's steps
		c = exec.Command("bash", "-e", script)
	}
	c.Dir = j.root
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GITHUB_") || strings.HasPrefix(v, "ROCED_") })
	c.Env = append(c.Env, "PATH="+strings.Join(append(slices.Clone(j.path), os.Getenv("PATH")), ":"), "RUNNER_TEMP="+j.temp, "GITHUB_ACTIONS=true",
		"GITHUB_ACTION_PATH="+s.folder)
	for _, name := range slices.Sorted(maps.Keys(j.env)) {
		c.Env = append(c.Env, name+"="+j.env[name])
	}
	for name, v := range st.Env {
		c.Env = append(c.Env, name+"="+j.fill(v, s))
	}
	for name, file := range files {
		c.Env = append(c.Env, name+"="+file)
	}
	p := lab.LaunchCmd(j.t, j.start, c)
	err := p.Wait(10 * lab.Limit)
	j.t.Logf("%s: %v\n%s", st.Name+st.ID, err, p.Said())
	maps.Copy(j.env, pairs(j.t, files["GITHUB_ENV"]))
	if st.ID != "" {
		s.outputs[st.ID] = pairs(j.t, files["GITHUB_OUTPUT"])
	}
	text, err2 := os.ReadFile(files["GITHUB_PATH"])
	lab.Must(j.t, err2)
	j.path = append(strings.Fields(string(text)), j.path...)
	return err == nil
}

// pairs reads a file with lines of names and values.
func pairs(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	lab.Must(t, err)
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok || strings.Contains(name, "<<") {
			t.Fatalf("%s: %q", file, line)
		}
		out[name] = value
	}
	return out
}

func readAction(t *testing.T, file string) (a action) {
	t.Helper()
	text, err := os.ReadFile(file)
	lab.Must(t, err)
	lab.Must(t, yaml.Unmarshal(text, &a))
	if a.Runs.Using != "composite" {
		t.Fatalf("%s: %q", file, a.Runs.Using)
	}
	for i, st := range a.Runs.Steps {
		if st.Run != "" && st.Shell != "bash" {
			t.Errorf("%s: step %d has no shell", file, i)
		}
	}
	return a
}

// fill replaces the expressions of a text.
func (j *job) fill(text string, s *scope) string {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "${{")
		out.WriteString(before)
		if !ok {
			return out.String()
		}
		expr, after, ok := strings.Cut(rest, "}}")
		if !ok {
			j.t.Fatalf("%q has no end", text)
		}
		e := evaluation{job: j, scope: s}
		fmt.Fprint(&out, e.text(expr))
		text = after
	}
}
