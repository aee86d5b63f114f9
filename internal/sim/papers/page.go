package papers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// page writes the page of a paper.
func (p *report) page(name string) (string, error) {
	var b strings.Builder
	var errs []error
	var runs []*Found
	for i, r := range p.rows {
		if p.pageOf(r) == name && p.found[i] != nil && p.summaries[i].Unfit == "" {
			runs = append(runs, p.found[i])
		}
	}
	first := true
	for i, r := range p.rows {
		if p.pageOf(r) != name {
			continue
		}
		set := parametersOf(p.sets, r)
		if first {
			fmt.Fprintf(&b, "# %s\n\nFor readers of [the summary](../papers.md): the claims of each row, whose scenario in `configs/sim/papers`\n"+
				"has the paper's words and all choices. Alternatives have one seed; notes have those that disagree.\n\n", title(r, name))
			set.write(&b)
			b.WriteString(done(runs))
			first = false
		}
		errs = append(errs, p.section(&b, r, set, &p.summaries[i], p.found[i], len(builds(runs)) > 1))
	}
	return b.String(), errors.Join(errs...)
}

// title returns the title of a page from its first row.
func title(r *Row, page string) string {
	switch page {
	case "own":
		return "Results without a paper"
	case "rows":
		return "Results by row"
	}
	return "Results of " + r.Paper.Source
}

// write writes where the parameters of a paper are, and the choices for all its rows.
func (p *Parameters) write(b *strings.Builder) {
	if p == nil {
		return
	}
	fmt.Fprintf(b, "Parameters, with sources and what the paper leaves open: `configs/sim/papers/parameters/%s.yaml`.\n", p.Page)
	if p.Notes != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(p.Notes))
	}
	b.WriteString("\n")
}

// section writes the section of a row.
func (p *report) section(b *strings.Builder, r *Row, set *Parameters, s *Summary, f *Found, several bool) error {
	fmt.Fprintf(b, "## %s\n\n", r.ID)
	fmt.Fprintf(b, "**%s** (%s). %s\n\n", r.Paper.Title, r.Paper.Section, sentence(r.Paper.Setting))
	var err error
	if set != nil {
		var list []departure
		list, err = set.departures(r)
		departs(b, list)
	}
	p.claims(b, r, s)
	if r.Paper.Found != "" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(r.Paper.Found))
	}
	if s.Unfit != "" {
		f = nil
	}
	if f != nil {
		if text := f.seedsOf(several); text != "" {
			fmt.Fprintf(b, "%s\n\n", text)
		}
		fmt.Fprintf(b, "![%s](%s.svg)\n\n", r.ID, r.ID)
	}
	return err
}

// departs writes the parameters that differ from those of the paper.
func departs(b *strings.Builder, list []departure) {
	var parts []string
	for i, d := range list {
		text := fmt.Sprintf("`%s` %v", d.key, orNone(d.got))
		if i+1 == len(list) || list[i+1].why != d.why {
			text += fmt.Sprintf(" (%s)", d.why)
		}
		parts = append(parts, text)
	}
	if len(parts) > 0 {
		fmt.Fprintf(b, "Departs: %s.\n\n", strings.Join(parts, ", "))
	}
}

// seedsOf says which seeds the runs have if they are not the usual ones, and which build did them if the page has several.
func (f *Found) seedsOf(several bool) string {
	var parts []string
	if first, n := max(f.First, 1), f.cost().seeds; first != firstUnseen || n != usualSeeds {
		parts = append(parts, fmt.Sprintf("Seeds %d-%d.", first, first+n-1))
	}
	if several {
		parts = append(parts, fmt.Sprintf("Build %.8s.", strings.Join(f.origins(func(o *Origin) string { return o.Build }), " and ")))
	}
	return strings.Join(parts, " ")
}

func orNone(v any) any {
	if v == nil {
		return "absent"
	}
	return v
}

// sentence ends a text with a period.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" || strings.HasSuffix(s, ".") {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

// claims writes the table of claims. Reasons follow it, each once.
func (p *report) claims(b *strings.Builder, r *Row, s *Summary) {
	if len(s.Claims) == 0 {
		b.WriteString("Not run.\n\n")
		return
	}
	b.WriteString("|claim|paper|measured|verdict|\n|---|---|---|---|\n")
	var notes []string
	for i := range s.Claims {
		c := &s.Claims[i]
		verdict, text := c.Verdict.String(), c.Text()
		if c.Verdict == NoVerdict && s.Unfit == "" {
			verdict = "-"
		}
		if s.Unfit != "" {
			text = "earlier: " + text
		}
		if c.Drift != "" {
			verdict += " †"
		}
		verdict += p.before(r, c)
		if note := c.Why; note != "" && note != reasons[c.Verdict] && note != sameReason {
			k := slices.Index(notes, note)
			if k < 0 {
				k, notes = len(notes), append(notes, note)
			}
			verdict += fmt.Sprintf(" (%d)", k+1)
		}
		fmt.Fprintf(b, "|%s|%s|%s|%s|\n", cell(c.Says), c.Paper, cell(text), verdict)
	}
	b.WriteString("\n")
	for k, note := range notes {
		fmt.Fprintf(b, "(%d) %s\n", k+1, sentence(note))
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
}

// before says which other verdict a claim had before the rules or the row's setting changed.
func (p *report) before(r *Row, c *Claim) string {
	e := p.earlier[r.ID][c.Says]
	if e == "" || c.Verdict == NotRun || e == c.Verdict.String() {
		return ""
	}
	return ", before: " + e
}
