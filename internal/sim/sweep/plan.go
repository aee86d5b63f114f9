// Package sweep stores the runs of a scenario in a folder. The result of a run appears there at once and complete.
// After an interrupt or a crash, only the runs in progress are lost, and the sweep continues from there. Several
// machines that share the folder can each do a part.
//
//	plan.json           the parameters of the sweep
//	scenario.yaml       its scenario, with the files that it names
//	runs/0007/run.json  the run's parameters, duration and error
//	runs/0007/...       its results
package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Plan describes a sweep.
type Plan struct {
	Format string     `json:"format"` // of tables: csv, hpcc, conweave; empty: no tables
	Vary   []string   `json:"vary"`   // keys that differ between runs, the seed last
	Runs   [][]string `json:"runs"`   // by run: the values of these keys
	// Refused lists invalid combinations, which are not in Runs, and the reasons.
	Refused []string `json:"refused,omitempty"`
}

// Axis is a key of the scenario and its values.
type Axis struct {
	Key    string
	Values []string
}

// ErrOther reports a folder that contains a different sweep.
var ErrOther = errors.New("the folder has another sweep")

// ParseAxis reads "key=a,b,c" or "key=[a, {b: c}]": values are YAML.
func ParseAxis(text string) (Axis, error) {
	key, list, ok := strings.Cut(text, "=")
	if !ok || key == "" || list == "" {
		return Axis{}, fmt.Errorf("%q: expected KEY=VALUES, such as transport.profile=rc,irn", text)
	}
	if !strings.HasPrefix(list, "[") {
		list = "[" + list + "]"
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(list), &doc); err != nil || len(doc.Content) != 1 || len(doc.Content[0].Content) == 0 {
		return Axis{}, fmt.Errorf("%q: the values must be a list, such as rc,irn or [{name: drill}, {name: ecmp}]", text)
	}
	a := Axis{Key: key}
	for _, n := range doc.Content[0].Content {
		value, err := flow(n)
		if err != nil {
			return a, fmt.Errorf("%q: %w", text, err)
		}
		if slices.Contains(a.Values, value) {
			return a, fmt.Errorf("%q: duplicate value %s", text, value)
		}
		a.Values = append(a.Values, value)
	}
	return a, nil
}

// flow formats a value in one line.
func flow(n *yaml.Node) (string, error) {
	if n.Kind == yaml.ScalarNode && n.Style == 0 {
		return n.Value, nil
	}
	n.Style = yaml.FlowStyle
	b, err := yaml.Marshal(n)
	return strings.Join(strings.Fields(string(b)), " "), err
}

// maxRuns limits the number of runs, to catch mistakes.
const maxRuns = 1_000_000

// NewPlan returns all combinations of the axes' values; the last axis changes fastest.
func NewPlan(format string, axes []Axis) (*Plan, error) {
	p := &Plan{Format: format, Runs: [][]string{nil}}
	for _, a := range axes {
		if slices.Contains(p.Vary, a.Key) {
			return nil, fmt.Errorf("%s: varied twice", a.Key)
		}
		if len(p.Runs)*len(a.Values) > maxRuns {
			return nil, fmt.Errorf("more than %d runs", maxRuns)
		}
		p.Vary = append(p.Vary, a.Key)
		var all [][]string
		for _, r := range p.Runs {
			for _, v := range a.Values {
				all = append(all, append(slices.Clone(r), v))
			}
		}
		p.Runs = all
	}
	return p, nil
}

// Set returns the changes to the scenario of a run, as --set takes them.
func (p *Plan) Set(run int) []string {
	set := make([]string, len(p.Vary))
	for i, key := range p.Vary {
		set[i] = key + "=" + p.Runs[run][i]
	}
	return set
}

// Folder is the folder of a sweep.
type Folder struct {
	Dir  string
	Plan Plan
}

const (
	planFile = "plan.json"
	runsDir  = "runs"
	// Scenario is the name of the scenario in a folder.
	Scenario = "scenario.yaml"
)

// Create makes the folder of a sweep, with files by name, including the scenario. It continues the same sweep; a
// different one is ErrOther.
func Create(dir string, p *Plan, files map[string][]byte) (*Folder, error) {
	text, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return nil, err
	}
	if old, err := os.ReadFile(filepath.Join(dir, planFile)); err == nil {
		return &Folder{dir, *p}, same(dir, old, text, files)
	}
	if err := os.MkdirAll(filepath.Join(dir, runsDir), 0o755); err != nil {
		return nil, err
	}
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := WriteFile(file, text); err != nil {
			return nil, err
		}
	}
	return &Folder{dir, *p}, WriteFile(filepath.Join(dir, planFile), text) // last: the folder is now complete
}

// same verifies that a folder has the sweep of a plan and the same files.
func same(dir string, old, plan []byte, files map[string][]byte) error {
	if !bytes.Equal(old, plan) {
		return fmt.Errorf("%s: %w with other values: choose another folder", dir, ErrOther)
	}
	for name, text := range files {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(b, text) {
			return fmt.Errorf("%s: %w: %s differs: choose another folder", dir, ErrOther, name)
		}
	}
	return nil
}

// Open opens the folder of a sweep.
func Open(dir string) (*Folder, error) {
	text, err := os.ReadFile(filepath.Join(dir, planFile))
	if err != nil {
		return nil, fmt.Errorf("%s: not a sweep: %w", dir, err)
	}
	f := &Folder{Dir: dir}
	if err := json.Unmarshal(text, &f.Plan); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, planFile), err)
	}
	for i, r := range f.Plan.Runs {
		if len(r) != len(f.Plan.Vary) {
			return nil, fmt.Errorf("%s: run %d has %d values of %d keys", filepath.Join(dir, planFile), i, len(r), len(f.Plan.Vary))
		}
	}
	return f, nil
}

// Run returns the folder of a run's results.
func (f *Folder) Run(i int) string { return filepath.Join(f.Dir, runsDir, fmt.Sprintf("%04d", i)) }
