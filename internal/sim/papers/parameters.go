package papers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/sim/scenario"
)

// Parameters are the settings that the rows of a paper have in common.
type Parameters struct {
	Paper  string // source of the rows
	Page   string // name of the page, without extension
	Values []Parameter
	Open   []scenario.Open // settings that the paper leaves open in all rows
	Notes  string          // what readers must know of all rows, such as repeated runs
}

// Parameter is a setting of scenarios.
type Parameter struct {
	Key    string // as in --set
	Value  any
	Source string   // section of the paper, or why this value was chosen
	Rows   []string // rows that have it; none: all of the paper
}

// LoadParameters reads the sets in the subfolder parameters of dir.
func LoadParameters(dir string) (sets []*Parameters, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "parameters", "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		d := yaml.NewDecoder(f)
		d.KnownFields(true)
		p := &Parameters{Page: strings.TrimSuffix(filepath.Base(name), ".yaml")}
		err = errors.Join(d.Decode(p), f.Close())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sets = append(sets, p)
	}
	return sets, nil
}

// check returns an error if a row has another value of a parameter than the set of its paper.
func (p *Parameters) check(r *Row) error {
	var doc map[string]any
	if err := yaml.Unmarshal(r.Text, &doc); err != nil {
		return err
	}
	var errs []error
	for _, v := range p.Values {
		if len(v.Rows) > 0 && !slices.Contains(v.Rows, r.ID) {
			continue
		}
		if v.Source == "" {
			errs = append(errs, fmt.Errorf("parameters: %s has no source", v.Key))
		}
		if got := lookUp(doc, v.Key); fmt.Sprint(got) != fmt.Sprint(v.Value) {
			errs = append(errs, fmt.Errorf("%s: %s is %v, not %v as in the set of its paper; give the set a value for this row", r.ID, v.Key, got, v.Value))
		}
	}
	return errors.Join(errs...)
}

// lookUp returns the value of a key such as switch.pfc.headroom; nil if there is none.
func lookUp(doc any, key string) any {
	for _, part := range strings.Split(key, ".") {
		m, ok := doc.(map[string]any)
		if !ok {
			return nil
		}
		doc = m[part]
	}
	return doc
}

// parametersOf returns the set of a row; an empty one if it has none.
func parametersOf(sets []*Parameters, r *Row) *Parameters {
	i := slices.IndexFunc(sets, func(p *Parameters) bool { return p.Paper == r.Paper.Source })
	if i < 0 {
		return &Parameters{}
	}
	return sets[i]
}
