// Package papers reproduces results of papers. Each result is a scenario with a paper block (scenario.Paper in
// internal/sim), which defines the runs, the measurements and the claims. Package internal/sim/sweep stores the
// runs, so that they continue after an interrupt. A verdict depends only on the results of runs (criterion.go has the rules).
package papers

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/suggest"
	"roced.io/roced/internal/sim/scenario"
)

// Row is a result of a paper.
type Row struct {
	ID    string // file name without extension
	Path  string
	Text  []byte
	Paper *scenario.Paper
	Name  string
}

// Load reads all rows of a folder, sorted by name.
func Load(dir string) (rows []*Row, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no scenarios", dir)
	}
	var errs []error
	for _, name := range names {
		r, err := read(name)
		errs = append(errs, err)
		rows = append(rows, r)
	}
	slices.SortFunc(rows, func(a, b *Row) int { return strings.Compare(order(a), order(b)) })
	return rows, errors.Join(errs...)
}

// order is the sort key of a row: its ID with numbers of four digits; rows without a paper are last.
func order(r *Row) string {
	if r == nil {
		return ""
	}
	name, number, _ := strings.Cut(r.ID, "-")
	digits := strings.TrimRight(number, "abcdefghijklmnopqrstuvwxyz")
	id := fmt.Sprintf("%s-%4s%s", name, digits, number[len(digits):])
	if r.Paper != nil && r.Paper.Source == "own" {
		id = "~" + id
	}
	return id
}

func read(name string) (*Row, error) {
	text, err := bounded.ReadFile(name, bounded.Text)
	if err != nil {
		return nil, err
	}
	f, err := scenario.Read(name, text, nil)
	if err != nil {
		return nil, err
	}
	if f.Paper == nil {
		return nil, fmt.Errorf("%s: no paper block", name)
	}
	r := &Row{ID: strings.TrimSuffix(filepath.Base(name), ".yaml"), Path: name, Text: text, Paper: f.Paper, Name: f.Name}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("%s: paper: %w", name, err)
	}
	return r, nil
}

// check validates a row.
func (r *Row) check() error {
	p := r.Paper
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if p.Title == "" || p.Source == "" || p.Says == "" || len(p.Series) == 0 || len(p.Numbers) == 0 {
		bad("title, source, says, series and numbers are required")
	}
	if len(p.Points) == 0 {
		p.Points = []scenario.Point{{}}
	}
	if p.Fast.Expect != "" && !slices.Contains(fastVerdicts, p.Fast.Expect) {
		bad("fast: expect %v", suggest.OneOf(p.Fast.Expect, fastVerdicts))
	}
	for _, l := range p.Fast.Limits {
		if len(l.Bounds) != 2 || !(l.Bounds[0] <= l.Bounds[1]) || l.Why == "" || !slices.ContainsFunc(p.Claims, func(c scenario.Claim) bool { return c.Says == l.Says }) {
			bad("fast: a limit has the words of a claim, bounds and a reason, not %+v", l)
		}
	}
	for i := range p.Numbers {
		if err := checkNumber(&p.Numbers[i]); err != nil {
			bad("numbers: %s: %w", p.Numbers[i].Name, err)
		}
	}
	for i := range p.Claims {
		if err := checkClaim(&p.Claims[i], r.own()); err != nil {
			bad("claims: %q: %w", p.Claims[i].Says, err)
		}
	}
	r.checkNames(func(what, name string, ok bool) {
		if !ok {
			bad("no %s %q", what, name)
		}
	})
	return errors.Join(errs...)
}

// checkNames calls known for each name that the row refers to.
func (r *Row) checkNames(known func(what, name string, ok bool)) {
	p := r.Paper
	number := func(name string) {
		known("number", name, slices.ContainsFunc(p.Numbers, func(n scenario.Number) bool { return n.Name == name }))
	}
	series := func(name string) { known("series", name, r.series(name) != nil) }
	points := func(names []string) {
		for _, at := range names {
			known("point", at, r.point(at) != nil)
		}
	}
	also := func(list []scenario.Variant) {
		for _, v := range list {
			series(v.Name)
		}
	}
	if p.Axes.Number != "" {
		number(p.Axes.Number)
	}
	points(p.Axes.At)
	for _, c := range p.Claims {
		_, quoted := p.Quotes[c.Quote]
		known("quote", c.Quote, quoted || c.Quote == "")
		for _, one := range each(&c) {
			number(one.Number)
		}
		if c.Base != "" {
			number(c.Base)
		}
		known("point", c.From, c.From == "" || r.point(c.From) != nil)
		series(c.Of)
		if c.Over != "" {
			series(c.Over)
		}
		points(c.At)
	}
	for _, pt := range p.Points {
		also(pt.Also)
	}
	for _, o := range p.Open {
		points(o.At)
		for _, c := range o.Vary {
			also(c.Also)
		}
	}
	for _, c := range p.Figure {
		series(c.Series)
		for at := range c.Values {
			known("point", at, r.point(at) != nil || slices.Contains(p.Axes.Numbers, at))
		}
	}
	for _, s := range p.Fast.Series {
		series(s)
	}
	points(p.Fast.Points)
}

func (r *Row) series(name string) *scenario.Variant {
	i := slices.IndexFunc(r.Paper.Series, func(v scenario.Variant) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Paper.Series[i]
}

func (r *Row) point(name string) *scenario.Point {
	i := slices.IndexFunc(r.Paper.Points, func(v scenario.Point) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Paper.Points[i]
}

// Run is a simulation of a row, without its seed.
type Run struct {
	Series, Point string
	Other         string // name of an alternative setting; empty: the row's own
	Set           []string
}

// Key identifies a run within its row.
func (x *Run) Key() string {
	key := x.Series
	if x.Point != "" {
		key += "/" + x.Point
	}
	if x.Other != "" {
		key = x.Other + ":" + key
	}
	return key
}

// Runs returns the runs of a row. Those of alternative settings are last, and not in the fast form.
func (r *Row) Runs(fast bool) (runs []Run) {
	p := r.Paper
	add := func(c scenario.Choice, at []string) {
		for _, s := range p.Series {
			for _, pt := range p.Points {
				x := Run{Series: s.Name, Point: pt.Name, Other: c.Name}
				short := Run{Series: s.Name, Point: pt.Name}
				if slices.Contains(p.Skip, short.Key()) || len(at) > 0 && !slices.Contains(at, pt.Name) ||
					fast && !r.inFast(s.Name, pt.Name) {
					continue
				}
				x.Set = slices.Concat(s.Set, pt.Set, setOf(pt.Also, s.Name), c.Set, setOf(c.Also, s.Name))
				if fast {
					x.Set = append(x.Set, p.Fast.Set...)
				}
				runs = append(runs, x)
			}
		}
	}
	add(scenario.Choice{}, nil)
	if fast {
		return runs
	}
	for _, o := range p.Open {
		for _, c := range o.Vary {
			add(c, o.At)
		}
	}
	return runs
}

// setOf returns the changes that the list has for a series.
func setOf(list []scenario.Variant, series string) (set []string) {
	for _, v := range list {
		if v.Name == series {
			set = append(set, v.Set...)
		}
	}
	return set
}

func (r *Row) inFast(series, point string) bool {
	f := &r.Paper.Fast
	return (len(f.Series) == 0 || slices.Contains(f.Series, series)) && (len(f.Points) == 0 || slices.Contains(f.Points, point))
}

// Seeds returns the number of seeds of a row; asked, if not zero, is the user's choice.
func (r *Row) Seeds(fast bool, asked int) int {
	switch {
	case asked > 0:
		return asked
	case fast:
		return max(r.Paper.Fast.Seeds, 1)
	case r.Paper.Seeds > 0:
		return r.Paper.Seeds
	}
	return usualSeeds
}

// usualSeeds is the number of seeds of rows without one of their own.
const usualSeeds = 3

// Scenario returns the text of the row without its claims, which do not affect the runs, but with the runs and
// their measurements.
func (r *Row) Scenario(fast bool) ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(r.Text, &doc); err != nil {
		return nil, err
	}
	delete(doc, "paper")
	head, err := yaml.Marshal(doc)
	if err != nil {
		return nil, err
	}
	what, err := yaml.Marshal(map[string]any{"numbers": r.Paper.Numbers, "runs": r.Runs(fast)})
	if err != nil {
		return nil, err
	}
	comment := "# " + strings.ReplaceAll(strings.TrimSpace(string(what)), "\n", "\n# ") + "\n"
	return append(head, comment...), nil
}

// setting identifies the runs of a form: their scenarios and measurements, without the claims.
func (r *Row) setting(fast bool) string {
	text, err := r.Scenario(fast)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256(text))[:16]
}

// alone returns everything that the results of a run depend on, without the row's name.
func (r *Row) alone(x *Run, seed int) ([]byte, error) {
	var doc map[string]any
	if err := yaml.Unmarshal(r.Text, &doc); err != nil {
		return nil, err
	}
	for _, key := range []string{"name", "description", "paper"} {
		delete(doc, key)
	}
	return yaml.Marshal(map[string]any{"scenario": doc, "set": x.Set, "seed": seed, "numbers": r.Paper.Numbers})
}

// Folder returns the folder below dir for the runs of a row with a seed. Its name depends on the row's content.
func (r *Row) Folder(dir string, fast bool, seed int) (string, error) {
	text, err := r.Scenario(fast)
	if err != nil {
		return "", err
	}
	form := "full"
	if fast {
		form = "fast"
	}
	return filepath.Join(dir, fmt.Sprintf("%s-%s-%x", r.ID, form, sha256.Sum256(text))[:len(r.ID)+6+12], fmt.Sprintf("seed%d", seed)), nil
}
