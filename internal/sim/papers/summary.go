package papers

import (
	"fmt"
	"slices"
	"strings"
)

// columns are the verdicts in the order of the table, the best first.
var columns = []Verdict{Reproduced, Direction, Mixed, Contradicted, Undecided, DependsOnChoice, Calibrated, ModelInput, NumberOnly, NotRun}

// judgedClaim is a claim of a row with its verdict.
type judgedClaim struct {
	row   *Row
	page  string
	claim *Claim
}

// link returns a link to the row: its name, and its ID if it has been named before.
func (c *judgedClaim) link(named map[*Row]bool) string {
	name := cell(c.row.Paper.Title)
	if named[c.row] {
		name = c.row.ID
	}
	named[c.row] = true
	return fmt.Sprintf("[%s](papers/%s.md#%s)", name, c.page, c.row.ID)
}

// claimsOf returns the claims on a page with a condition.
func (p *report) claimsOf(page string, is func(c *Claim) bool) (list []judgedClaim) {
	for i, r := range p.rows {
		if p.pageOf(r) != page || r.own() {
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

// of selects verdicts.
func of(verdicts ...Verdict) func(c *Claim) bool {
	return func(c *Claim) bool { return slices.Contains(verdicts, c.Verdict) }
}

// papersOnly returns the names of pages of papers.
func (p *report) papersOnly() []string {
	return slices.DeleteFunc(p.pages(), func(page string) bool { return page == "own" })
}

// table writes how many claims of each paper have each verdict.
func (p *report) table(b *strings.Builder) {
	b.WriteString("|paper|rows|claims")
	for _, v := range columns {
		b.WriteString("|" + v.String())
	}
	b.WriteString("|\n|---" + strings.Repeat("|--:", len(columns)+2) + "|\n")
	for _, page := range p.papersOnly() {
		rows := slices.DeleteFunc(slices.Clone(p.rows), func(r *Row) bool { return p.pageOf(r) != page })
		fmt.Fprintf(b, "|[%s](papers/%s.md)|%d|%d", p.source(page), page, len(rows), len(p.claimsOf(page, func(*Claim) bool { return true })))
		for _, v := range columns {
			fmt.Fprintf(b, "|%d", len(p.claimsOf(page, of(v))))
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

// paper writes the section of a paper: one line for each group of verdicts.
func (p *report) paper(b *strings.Builder, page string) {
	if page == "own" {
		return
	}
	fmt.Fprintf(b, "## %s\n\n", p.source(page))
	named := map[*Row]bool{}
	for _, line := range []struct {
		what    string
		is      func(c *Claim) bool
		figures bool
	}{
		{"Holds", of(Reproduced), true},
		{"Direction only", of(Direction), false},
		{"Does not hold", of(Contradicted, Mixed), true},
		{"Depends on choices", of(DependsOnChoice, Calibrated, ModelInput), false},
		{"Open", of(Undecided, NumberOnly, NotRun), false},
	} {
		list := p.claimsOf(page, line.is)
		fmt.Fprintf(b, "* **%s** (%d)", line.what, len(list))
		if len(list) > 0 {
			b.WriteString(": " + grouped(list, line.figures, named))
		}
		b.WriteString(".\n")
	}
	b.WriteString("\n")
}

// grouped lists the rows of claims, with the claims and their figures, or with their number.
func grouped(list []judgedClaim, figures bool, named map[*Row]bool) string {
	var parts []string
	for len(list) > 0 {
		r, n := list[0].row, 0
		var texts []string
		for ; n < len(list) && list[n].row == r; n++ {
			c := list[n].claim
			texts = append(texts, fmt.Sprintf("%s %s (paper: %s)", cell(c.Says), c.brief(), c.Paper))
		}
		switch {
		case figures:
			parts = append(parts, list[0].link(named)+": "+strings.Join(texts, ", "))
		case n > 1:
			parts = append(parts, fmt.Sprintf("%s (%d)", list[0].link(named), n))
		default:
			parts = append(parts, list[0].link(named))
		}
		list = list[n:]
	}
	return strings.Join(parts, "; ")
}

// brief formats the range of the values.
func (c *Claim) brief() string {
	var means []float64
	for i := range c.At {
		if len(c.At[i].Seeds) > 0 {
			means = append(means, c.At[i].Mean)
		}
	}
	if len(means) == 0 {
		return "-"
	}
	least, most := fmt.Sprintf("%.3g", slices.Min(means)), fmt.Sprintf("%.3g", slices.Max(means))
	if least == most {
		return least
	}
	return least + " to " + most
}

// misses lists other claims that miss the paper's value by more than 10 %, and what rows say against the transports.
func (p *report) misses(b *strings.Builder) {
	b.WriteString("## Other values that miss the paper's by more than 10 %\n\nClaims that do not hold are above. Here are the value and the paper's.\n\n")
	for i, r := range p.rows {
		var parts []string
		for k := range p.summaries[i].Claims {
			if c := &p.summaries[i].Claims[k]; c.Misses && c.Verdict > Mixed && !r.own() {
				parts = append(parts, c.brief()+" for "+c.Paper)
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

// cost is what the runs of a row take.
type cost struct {
	seeds   int
	seconds float64 // of a processor, in all
}

func (f *Found) cost() (c cost) {
	if f == nil {
		return c
	}
	for _, ms := range f.Runs {
		c.seeds = max(c.seeds, len(ms))
		for _, m := range ms {
			c.seconds += m.Seconds
		}
	}
	return c
}
