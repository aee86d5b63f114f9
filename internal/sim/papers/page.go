package papers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/scenario"
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
			fmt.Fprintf(&b, "# %s\n\nFor readers of [the summary](../papers.md): the claims of each row. Scenarios have all choices with their reasons.\n"+
				"Alternatives have one seed, and values in the order of claims.\n\n", title(r, name))
			set.write(&b)
			b.WriteString(done(runs))
			first = false
		}
		errs = append(errs, p.section(&b, r, set, &p.summaries[i], p.found[i]))
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
	fmt.Fprintf(b, "Parameters, with sources: `configs/sim/papers/parameters/%s.yaml`.", p.Page)
	if len(p.Open) > 0 {
		b.WriteString(" Left open by the paper:\n\n")
	}
	for _, o := range p.Open {
		fmt.Fprintf(b, "* %s: %s.\n", o.What, o.Choice)
	}
	b.WriteString("\n")
}

// section writes the section of a row.
func (p *report) section(b *strings.Builder, r *Row, set *Parameters, s *Summary, f *Found) error {
	fmt.Fprintf(b, "## %s\n\n", r.ID)
	var err error
	if set != nil {
		var list []departure
		list, err = set.departures(r)
		var parts []string
		for i, d := range list {
			text := fmt.Sprintf("`%s` is %v, not %v", d.key, orNone(d.got), orNone(d.want))
			if i+1 == len(list) || list[i+1].why != d.why {
				text += fmt.Sprintf(" (%s)", d.why)
			}
			parts = append(parts, text)
		}
		if len(parts) > 0 {
			fmt.Fprintf(b, "Departs: %s.\n\n", strings.Join(parts, ", "))
		}
	}
	fmt.Fprintf(b, "**%s** (%s). %s\n\n", r.Paper.Title, r.Paper.Section, sentence(r.Paper.Setting))
	var quotes []string
	for _, name := range slices.Sorted(maps.Keys(r.Paper.Quotes)) {
		quotes = append(quotes, fmt.Sprintf("\"%s\" (%s)", r.Paper.Quotes[name].Text, r.Paper.Quotes[name].Where))
	}
	if len(quotes) > 0 {
		fmt.Fprintf(b, "> %s\n\n", strings.Join(quotes, "; "))
	}
	claims(b, s)
	if r.Paper.Found != "" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(r.Paper.Found))
	}
	if s.Unfit != "" {
		f = nil
	}
	r.open(b, f)
	if f != nil {
		fmt.Fprintf(b, "![%s](%s.svg)\n\n", r.ID, r.ID)
	}
	return err
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
func claims(b *strings.Builder, s *Summary) {
	if len(s.Claims) == 0 {
		b.WriteString("Not run.\n\n")
		return
	}
	b.WriteString("|claim|paper|measured|verdict|\n|---|---|---|---|\n")
	var notes []string
	for i := range s.Claims {
		c := &s.Claims[i]
		verdict := c.Verdict.String()
		if c.Verdict == NoVerdict && s.Unfit == "" {
			verdict = "-"
		}
		for _, note := range []string{c.Why, c.Drift} {
			if note == "" || note == reasons[c.Verdict] {
				continue
			}
			k := slices.Index(notes, note)
			if k < 0 {
				k, notes = len(notes), append(notes, note)
			}
			verdict += fmt.Sprintf(" (%d)", k+1)
		}
		fmt.Fprintf(b, "|%s|%s|%s|%s|\n", cell(c.Says), c.Paper, cell(c.Text()), verdict)
	}
	b.WriteString("\n")
	for k, note := range notes {
		fmt.Fprintf(b, "(%d) %s\n", k+1, sentence(note))
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
}

// open lists the choices that have alternatives, with their results.
func (r *Row) open(b *strings.Builder, f *Found) {
	list := slices.DeleteFunc(slices.Clone(r.Paper.Open), func(o scenario.Open) bool { return len(o.Vary) == 0 })
	if len(list) == 0 {
		return
	}
	b.WriteString("Choices with alternatives:\n\n")
	for _, o := range list {
		fmt.Fprintf(b, "* %s: %s.\n", o.What, o.Choice)
		for _, v := range o.Vary {
			if text := r.alternative(f, v.Name); text != "" {
				fmt.Fprintf(b, "  With %s: %s.\n", v.Name, text)
			}
		}
	}
	b.WriteString("\n")
}

// alternative formats the values of all claims with an alternative setting.
func (r *Row) alternative(f *Found, name string) string {
	if f == nil {
		return ""
	}
	var list []string
	for i := range r.Paper.Claims {
		c := &r.Paper.Claims[i]
		var values []string
		for _, one := range each(c) {
			for _, point := range r.pointsOf(c, f, name) {
				for _, v := range f.values(&one, point, name) {
					values = append(values, fmt.Sprintf("%.3g", v))
				}
			}
		}
		if len(values) > 0 {
			list = append(list, strings.Join(values, " "))
		}
	}
	return strings.Join(list, ", ")
}
