package papers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// groups are the columns of the table, the best first, and the parts of the lines of a paper.
var groups = []struct {
	line, column string
	is           func(c *Claim) bool
	figures      bool
}{
	{"Holds", "reproduced", of(Reproduced), true},
	{"Holds", "direction as stated", func(c *Claim) bool { return c.Verdict == Direction && c.sizeless }, true},
	{"Direction only", "direction only", func(c *Claim) bool { return c.Verdict == Direction && !c.sizeless }, true},
	{"Does not hold", "contradicted", of(Contradicted), true},
	{"Does not hold", "mixed", of(Mixed), true},
	{"Depends on choice", "depends on choice", of(DependsOnChoice), false},
	{"Depends on choice", "calibrated", of(Calibrated), false},
	{"Depends on choice", "model input", of(ModelInput), false},
	{"Open", "undecided", of(Undecided), false},
	{"Open", "number", of(NumberOnly), false},
	{"Open", "not run", of(NotRun), false},
}

// judgedClaim is a claim of a row with its verdict.
type judgedClaim struct {
	row   *Row
	page  string
	claim *Claim
}

// link returns a link to the row: its name and ID, or its ID if it has been named before.
func (c *judgedClaim) link(named map[*Row]bool) string {
	name := c.row.ID
	if !named[c.row] {
		name = cell(c.row.Paper.Title) + ", " + name
	}
	named[c.row] = true
	return fmt.Sprintf("[%s](papers/%s.md#%s)", name, c.page, c.row.ID)
}

// claimsOf returns the claims on a page with a condition.
func (p *report) claimsOf(page string, is func(c *Claim) bool) (list []judgedClaim) {
	for i, r := range p.rows {
		if p.pageOf(r) != page {
			continue
		}
		for k := range p.summaries[i].Claims {
			if c := &p.summaries[i].Claims[k]; is(c) {
				list = append(list, judgedClaim{r, page, c})
			}
		}
	}
	return list
}

// of selects a verdict.
func of(v Verdict) func(c *Claim) bool { return func(c *Claim) bool { return c.Verdict == v } }

// papersOnly returns the names of pages of papers.
func (p *report) papersOnly() []string {
	return slices.DeleteFunc(p.pages(), func(page string) bool { return page == "own" })
}

// table writes how many claims of each paper have each verdict.
func (p *report) table(b *strings.Builder) {
	b.WriteString("|paper|rows|claims")
	for _, g := range groups {
		b.WriteString("|" + g.column)
	}
	b.WriteString("|\n|---" + strings.Repeat("|--:", len(groups)+2) + "|\n")
	for _, page := range p.papersOnly() {
		rows := slices.DeleteFunc(slices.Clone(p.rows), func(r *Row) bool { return p.pageOf(r) != page })
		fmt.Fprintf(b, "|[%s](papers/%s.md)|%d|%d", p.source(page), page, len(rows), len(p.claimsOf(page, func(*Claim) bool { return true })))
		for _, g := range groups {
			fmt.Fprintf(b, "|%d", len(p.claimsOf(page, g.is)))
		}
		b.WriteString("|\n")
	}
	b.WriteString("\n")
}

// source returns the paper of a page.
func (p *report) source(page string) string {
	i := slices.IndexFunc(p.rows, func(r *Row) bool { return p.pageOf(r) == page })
	return p.rows[i].Paper.Source
}

// paper writes the section of a paper: a line for each kind of verdict.
func (p *report) paper(b *strings.Builder, page string) {
	fmt.Fprintf(b, "## %s\n\n", p.source(page))
	named := map[*Row]bool{}
	var parts []string
	for i, g := range groups {
		if list := p.claimsOf(page, g.is); len(list) > 0 {
			text := grouped(list, g.figures, named)
			if g.column != strings.ToLower(g.line) {
				text = fmt.Sprintf("*%s* (%d): %s", g.column, len(list), text)
			}
			parts = append(parts, text)
		}
		if i+1 == len(groups) || groups[i+1].line != g.line {
			fmt.Fprintf(b, "* **%s**: %s.\n", g.line, cmp.Or(strings.Join(parts, "; "), "none"))
			parts = nil
		}
	}
	b.WriteString("\n")
}

// grouped lists the rows of claims, with the claims and their figures, or with their number.
func grouped(list []judgedClaim, figures bool, named map[*Row]bool) string {
	var parts []string
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n].row == list[0].row {
			n++
		}
		text := list[0].link(named)
		if figures {
			text += ": " + listed(list[:n])
		} else if n > 1 {
			text += fmt.Sprintf(" (%d)", n)
		}
		parts, list = append(parts, text), list[n:]
	}
	return strings.Join(parts, "; ")
}

// listed lists the claims of a row with their values and the paper's. It omits the words that the claim before has, and the paper's
// value if the claim after has it. A direction as stated is the paper's.
func listed(list []judgedClaim) string {
	var parts []string
	what, of := "", ""
	for i := range list {
		c := list[i].claim
		text := cell(c.Says)
		before, after, _ := strings.Cut(text, ": ")
		switch {
		case after != "" && after == of:
			text, what = before, ""
		case after != "" && before == what:
			text, of = after, ""
		default:
			what, of = before, after
		}
		text += " " + c.brief() + c.mark()
		if last := i+1 == len(list); !(c.Verdict == Direction && c.sizeless) && (last || list[i+1].claim.Paper != c.Paper) {
			text += fmt.Sprintf(" (paper: %s)", c.Paper)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// mark marks measurements that are not stationary.
func (c *Claim) mark() string {
	if c.Drift == "" {
		return ""
	}
	return "†"
}

// brief formats the range of the values, the extreme that the claim is of, or each value if points differ in their verdicts.
func (c *Claim) brief() string {
	var means []float64
	var each []string
	for i := range c.At {
		if a := &c.At[i]; len(a.Seeds) > 0 {
			means, each = append(means, a.Mean), append(each, a.name()+" "+digits(a.Mean, 3))
		}
	}
	if c.Verdict == Mixed {
		return "at " + strings.Join(each, ", ")
	}
	if len(means) == 0 {
		return "-"
	}
	least, most := digits(slices.Min(means), 3), digits(slices.Max(means), 3)
	switch {
	case least == most || c.take == "least":
		return least
	case c.take == "most":
		return most
	}
	return least + " to " + most
}

// misses lists claims without figures in the section of their paper that miss the paper's value by more than 10 %, and what
// rows say against the transports.
func (p *report) misses(b *strings.Builder) {
	b.WriteString("## Other values that miss the paper's by more than 10 %\n\nClaims without a value above, open ones too.\n\n")
	for i, r := range p.rows {
		var parts []string
		for k := range p.summaries[i].Claims {
			if c := &p.summaries[i].Claims[k]; c.Misses && c.Verdict > Mixed && c.Verdict < Direction {
				parts = append(parts, fmt.Sprintf("%s %s (paper: %s)", cell(c.Says), c.brief(), c.Paper))
			}
		}
		if r.Paper.Adverse != "" {
			parts = append(parts, cell(r.Paper.Adverse))
		}
		if f := p.found[i]; f != nil && f.failures() != "" {
			parts = append(parts, "runs failed: "+cell(f.failures()))
		}
		if len(parts) > 0 {
			fmt.Fprintf(b, "* [%s](papers/%s.md#%s): %s\n", r.ID, p.pageOf(r), r.ID, strings.Join(parts, "; "))
		}
	}
	b.WriteString("\n")
}
