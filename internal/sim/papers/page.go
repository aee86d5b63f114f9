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
			fmt.Fprintf(&b, "# %s\n\nFor readers of [the summary](../papers.md).\n\n", title(r, name))
			set.write(&b)
			b.WriteString(done(runs))
			first = false
		}
		errs = append(errs, set.check(r))
		p.section(&b, r, &p.summaries[i], p.found[i], usualBuild(runs))
	}
	return b.String(), errors.Join(errs...)
}

// title returns the title of a page from its first row.
func title(r *Row, page string) string {
	if page == "own" {
		return "Results without a paper"
	}
	return "Results of " + r.Paper.Source
}

// write writes where the parameters of a paper are, and the choices for all its rows.
func (p *Parameters) write(b *strings.Builder) {
	if p.Page == "" {
		return
	}
	fmt.Fprintf(b, "Parameters and their sources: `configs/sim/papers/parameters/%s.yaml`.\n", p.Page)
	if p.Notes != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimSpace(p.Notes))
	}
	b.WriteString("\n")
}

// section writes the section of a row.
func (p *report) section(b *strings.Builder, r *Row, s *Summary, f *Found, usual string) {
	fmt.Fprintf(b, "## %s\n\n", r.ID)
	fmt.Fprintf(b, "**%s** (%s). %s\n\n", r.Paper.Title, r.Paper.Section, sentence(r.Paper.Setting))
	p.claims(b, r, s)
	if r.Paper.Found != "" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(r.Paper.Found))
	}
	if s.Unfit != "" {
		f = nil
	}
	if f != nil {
		if text := f.seedsOf(usual); text != "" {
			fmt.Fprintf(b, "%s\n\n", text)
		}
		fmt.Fprintf(b, "![%s](%s.svg)\n\n", r.ID, r.ID)
	}
}

// seedsOf says which seeds and which build the runs have if they are not the usual ones.
func (f *Found) seedsOf(usual string) string {
	var parts []string
	if first, n := max(f.First, 1), f.most(); first != firstUnseen || n != usualSeeds {
		parts = append(parts, fmt.Sprintf("Seeds %d-%d.", first, first+n-1))
	}
	if build := f.builds(); build != usual {
		parts = append(parts, fmt.Sprintf("Build %.8s.", build))
	}
	return strings.Join(parts, " ")
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
		verdict, text := c.Verdict.String(), c.short()
		if i > 0 && len(c.At) > 1 && c.Text() == s.Claims[i-1].Text() {
			text = "as above"
		}
		if c.Verdict == NoVerdict && s.Unfit == "" {
			verdict, text = "-", c.brief()
		}
		if s.Unfit != "" {
			text = "earlier: " + text
		}
		verdict += c.mark() + p.before(r, c)
		if note := c.Why; note != "" && note != reasons[c.Verdict] && note != sameReason {
			k := noted(notes, note)
			if k < 0 {
				k, notes = len(notes), append(notes, note)
			} else if notes[k] != note {
				_, value, _ := strings.Cut(note, ": ")
				notes[k] += "; " + value
			}
			verdict += fmt.Sprintf(" (%d)", k+1)
		}
		fmt.Fprintf(b, "|%s|%s|%s|%s|\n", cell(c.Says), c.Paper, cell(text), verdict)
	}
	b.WriteString("\n")
	for k, note := range notes {
		first, rest, _ := strings.Cut(note, "; ")
		if i := slices.Index(notes[:k], first); i >= 0 && rest != "" {
			note = fmt.Sprintf("as (%d); %s", i+1, rest)
		}
		fmt.Fprintf(b, "(%d) %s\n", k+1, sentence(note))
	}
	if len(notes) > 0 {
		b.WriteString("\n")
	}
}

// noted returns the index of an earlier note that a new one repeats: the same note, or one on the same alternative with another
// value. It returns -1 if there is none.
func noted(notes []string, note string) int {
	what, _, one := strings.Cut(note, ": ")
	one = one && strings.Count(note, ": ") == 1
	return slices.IndexFunc(notes, func(n string) bool {
		return n == note || one && strings.HasPrefix(n, what+": ") && strings.Count(n, ": ") == 1
	})
}

// short formats the values. Of many points it has the range, and those that decide the verdict if they are few.
func (c *Claim) short() string {
	few := slices.DeleteFunc(slices.Clone(c.At), func(a At) bool { return a.verdict != c.Verdict })
	switch {
	case len(c.At) <= 5 || len(few) == 0:
		return c.Text()
	case len(few) > 4:
		return fmt.Sprintf("%s at %d points; %s: %d", c.brief(), len(c.At), c.Verdict, len(few))
	}
	return fmt.Sprintf("%s at %d points; %s: %s", c.brief(), len(c.At), c.Verdict, texts(few, true))
}

// before says which other verdict a claim had before the rules or the row's setting changed.
func (p *report) before(r *Row, c *Claim) string {
	e := p.earlier[r.ID][c.Says]
	if e == "" || c.Verdict == NotRun || e == c.Verdict.String() {
		return ""
	}
	return ", before: " + e
}
