package papers

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/internal/sim/sweep"
)

// Summary is a row of the table of results.
type Summary struct {
	ID      string  `json:"id"`
	Title   string  `json:"title"`
	Form    string  `json:"form"` // full, fast; empty: not measured
	Paper   string  `json:"paper"`
	Verdict Verdict `json:"verdict"`
	Claims  []Claim `json:"claims"`
	// Unfit says why the stored runs allow no verdict; empty if they do.
	Unfit string `json:"unfit,omitempty"`
}

// Summarize summarizes a row. f may be nil.
func (r *Row) Summarize(f *Found, form string) Summary {
	s := Summary{ID: r.ID, Title: r.Paper.Title, Form: form, Paper: r.Paper.Says, Verdict: NotRun}
	if f == nil {
		return s
	}
	j := r.Judge(f)
	s.Verdict, s.Claims = j.Verdict, j.Claims
	if s.Unfit = r.unfit(f, form); s.Unfit == "" {
		return s
	}
	for i := range s.Claims {
		if s.Claims[i].Why = s.Unfit; !r.own() {
			s.Claims[i].Verdict, s.Verdict = NotRun, NotRun
		}
	}
	return s
}

// Unexpected returns an error if the values of a row's fast form are worse than its file expects. A single seed, as fast
// forms have, has no interval. It cannot contradict similarity without a bound.
func (r *Row) Unexpected(f *Found) error {
	want := slices.Index(fastVerdicts, cmp.Or(r.Paper.Fast.Expect, fastVerdicts[directionOnly]))
	if f == nil {
		return fmt.Errorf("%s: a run is missing", r.ID)
	}
	for _, c := range r.Judge(f).Claims {
		limit := r.limit(c.Says)
		if limit == nil && (c.boundless && measured(c.At) || c.byValue >= want) || limit != nil && measured(c.At) && inBounds(c.At, limit.Bounds) {
			continue
		}
		return fmt.Errorf("%s is %s in its fast form: %s: %s", r.ID, fastVerdicts[c.byValue], c.Says, c.Text())
	}
	return nil
}

// limit returns the limit of a claim's values in the fast form, nil if there is none.
func (r *Row) limit(says string) *scenario.Limit {
	for i := range r.Paper.Fast.Limits {
		if l := &r.Paper.Fast.Limits[i]; l.Says == says {
			return l
		}
	}
	return nil
}

// inBounds reports whether the values at all points are inside bounds.
func inBounds(at []At, bounds []scenario.Bound) bool {
	return !slices.ContainsFunc(at, func(a At) bool { return a.Mean < float64(bounds[0]) || a.Mean > float64(bounds[1]) })
}

// measured reports whether all points have a value.
func measured(at []At) bool {
	return !slices.ContainsFunc(at, func(a At) bool { return len(a.Seeds) == 0 })
}

// Text formats the measured values with their intervals.
func (c *Claim) Text() string { return texts(c.At, len(c.At) > 1) }

// texts formats the values of points, with their names or without.
func texts(at []At, named bool) string {
	var parts []string
	for i := range at {
		a := &at[i]
		text := "-"
		if len(a.Seeds) > 0 {
			text = digits(a.Mean, 3) + a.interval()
		}
		if named {
			text = a.name() + ": " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// interval formats the confidence interval; empty if it is that of a single seed, or its ends are the same three digits.
func (a *At) interval() string {
	switch {
	case len(a.Seeds) < 2 || a.Lo == nil && a.Hi == nil:
		return ""
	case a.Lo == nil:
		return fmt.Sprintf(" [..%s]", digits(*a.Hi, 3))
	case a.Hi == nil:
		return fmt.Sprintf(" [%s..]", digits(*a.Lo, 3))
	}
	lo, hi := digits(*a.Lo, 3), digits(*a.Hi, 3)
	if lo == hi {
		return ""
	}
	return " [" + lo + ".." + hi + "]"
}

// earlierFile has, by row and claim, the verdict before the rules, or the row's setting, changed; it lies beside the folder of
// records.
const earlierFile = "earlier.json"

func readEarlier(stored string) (m map[string]map[string]string, err error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(stored), earlierFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return m, json.Unmarshal(text, &m)
}

// report is what the pages are made of.
type report struct {
	rows      []*Row
	sets      []*Parameters
	found     []*Found
	forms     []string
	summaries []Summary
	earlier   map[string]map[string]string
}

// Document writes papers.md into a folder, and into its subfolder papers a page of each paper and the pictures, from the
// records in the folder stored. It also writes the checksums of the records.
func Document(dir, stored string, rows []*Row, sets []*Parameters) error {
	earlier, err := readEarlier(stored)
	if err != nil {
		return err
	}
	p := &report{rows: rows, sets: sets, earlier: earlier}
	sub := filepath.Join(dir, "papers")
	for _, r := range rows {
		rec, err := ReadRecord(stored, r.ID)
		if err != nil {
			return err
		}
		f, form := rec.shown()
		p.found, p.forms = append(p.found, f), append(p.forms, form)
		p.summaries = append(p.summaries, r.Summarize(f, form))
	}
	errs := []error{os.MkdirAll(sub, 0o755), write(filepath.Join(dir, "papers.md"), p.overview()), writeSums(stored)}
	for _, page := range p.pages() {
		text, err := p.page(page)
		errs = append(errs, err, write(filepath.Join(sub, page+".md"), text))
	}
	for i, r := range rows {
		if p.found[i] == nil || p.summaries[i].Unfit != "" {
			continue
		}
		if svg := r.Picture(p.found[i], p.forms[i]); svg != nil {
			errs = append(errs, sweep.WriteFile(filepath.Join(sub, r.ID+".svg"), svg))
		}
	}
	return errors.Join(errs...)
}

func write(name, text string) error {
	return sweep.WriteFile(name, []byte(strings.TrimRight(text, "\n")+"\n"))
}

// pageOf returns the name of the page of a row.
func (p *report) pageOf(r *Row) string {
	if r.own() {
		return "own"
	}
	return cmp.Or(parametersOf(p.sets, r).Page, "rows")
}

// pages returns the names of all pages in the order of their rows.
func (p *report) pages() (names []string) {
	for _, r := range p.rows {
		if name := p.pageOf(r); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

//go:embed head.md
var head string

//go:embed foot.md
var foot string

// overview writes the page of all papers.
func (p *report) overview() string {
	var b strings.Builder
	b.WriteString(head + "\n")
	p.table(&b)
	for _, page := range p.papersOnly() {
		p.paper(&b, page)
	}
	p.misses(&b)
	b.WriteString(foot)
	return b.String()
}

// cell escapes text for a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}
