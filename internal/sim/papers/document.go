package papers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"roced.io/roced/internal/sim/sweep"
)

// Summary is a row of the table of results.
type Summary struct {
	ID       string  `json:"id"`
	Title    string  `json:"title"`
	Form     string  `json:"form"` // full, fast; empty: not measured
	Paper    string  `json:"paper"`
	Measured string  `json:"measured"`
	Verdict  Verdict `json:"verdict"`
	Why      string  `json:"why,omitempty"`
	Claims   []Claim `json:"claims"`
}

// Summarize summarizes a row. f may be nil.
func (r *Row) Summarize(f *Found, form string) Summary {
	s := Summary{ID: r.ID, Title: r.Paper.Title, Form: form, Paper: r.Paper.Says, Verdict: NotMeasured}
	if f == nil {
		return s
	}
	j := r.Judge(f, "")
	s.Verdict, s.Claims = j.Verdict, j.Claims
	var parts []string
	for i := range s.Claims {
		c := &s.Claims[i]
		parts = append(parts, c.Says+": "+c.Text())
		if c.Verdict == s.Verdict && s.Why == "" {
			s.Why = c.Why
		}
	}
	s.Measured = strings.Join(parts, "; ")
	return s
}

// Unexpected returns an error if the verdict of a row's fast form is worse than its file expects.
func (r *Row) Unexpected(f *Found) error {
	want := DirectionOnly
	if r.Paper.Fast.Expect != "" {
		var err error
		if want, err = ParseVerdict(r.Paper.Fast.Expect); err != nil {
			return fmt.Errorf("%s: %w", r.ID, err)
		}
	}
	if f == nil {
		return fmt.Errorf("%s: a run is missing", r.ID)
	}
	if j := r.Judge(f, ""); j.Verdict < want {
		return fmt.Errorf("%s is %s in its fast form: %s", r.ID, j.Verdict, r.Summarize(f, "").Why)
	}
	return nil
}

// Text formats the measured values, with their ranges if there are several seeds.
func (c *Claim) Text() string {
	var parts []string
	for i, v := range c.Values {
		text := fmt.Sprintf("%.3g", v)
		if r := c.Ranges[i]; r[1] > r[0] {
			text += fmt.Sprintf(" (%.3g to %.3g)", r[0], r[1])
		}
		if len(c.Values) > 1 {
			text = c.Points[i] + " " + text
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// paperText formats the paper's figure.
func paperText(figure []float64) string {
	if len(figure) == 0 {
		return "no figure"
	}
	if len(figure) == 2 {
		return fmt.Sprintf("%.4g to %.4g", figure[0], figure[1])
	}
	return fmt.Sprintf("%.4g", figure[0])
}

// Document writes papers.md into a folder, and the pictures into its subfolder papers, from the records there.
func Document(dir string, rows []*Row) error {
	var b strings.Builder
	b.WriteString(head)
	var errs []error
	summaries, records := make([]Summary, len(rows)), make([]*Record, len(rows))
	for i, r := range rows {
		rec, err := ReadRecord(filepath.Join(dir, "papers"), r.ID)
		if err != nil {
			return err
		}
		f, form := rec.shown()
		records[i], summaries[i] = rec, r.Summarize(f, form)
	}
	table(&b, summaries)
	night(&b, rows, records)
	for i, r := range rows {
		f, form := records[i].shown()
		r.section(&b, f, &summaries[i])
		if f != nil {
			if svg := r.Picture(f, form); svg != nil {
				errs = append(errs, sweep.WriteFile(filepath.Join(dir, "papers", r.ID+".svg"), svg))
				fmt.Fprintf(&b, "![%s](papers/%s.svg)\n\n", strings.Trim(r.Paper.Title, "[]"), r.ID)
			}
		}
	}
	errs = append(errs, os.MkdirAll(dir, 0o755), sweep.WriteFile(filepath.Join(dir, "papers.md"), []byte(strings.TrimRight(b.String(), "\n")+"\n")))
	return errors.Join(errs...)
}

const head = `# Results of papers, reproduced

` + "`make papers`" + ` writes this page. For readers who want to know how far the transports match their papers: it
repeats the papers' experiments with the transports that the daemon runs. Each row is a scenario in
` + "`configs/sim/papers`" + `, with the paper's setting, its figure, and the claims to verify. Each row lists the
settings that its paper leaves open, and the results of alternatives.

A row is **reproduced** if each of its claims has the paper's direction and size. The tolerances are 25 % of the
paper's figure for a ratio, 3 percentage points for a share, and 25 % for the figure of the baseline. A claim may
define another tolerance. A result beyond the paper's figure in the claim's favour is accepted up to twice that
figure. Beyond that it is **direction only** until the reason is known, like all results with the right direction
and another size. Claims without a figure in the paper's text require only the direction. A result without the
direction is **not reproduced**. Verdicts are computed from the results of runs (` + "`docs/results/papers/ID.json`" + `).

    bin/rocesim papers --fast            # smaller settings of the same directions, also in make test
    make papers                          # the full settings, and this page: a night; the command continues an interrupted run
    bin/rocesim papers irn-1 irn-2       # some rows

A row of the form *fast* was run only in its smaller setting. Its verdict does not cover the full one.

`

func table(b *strings.Builder, rows []Summary) {
	b.WriteString("| id | paper says | measured | form | verdict |\n|---|---|---|---|---|\n")
	count := map[string]int{}
	for _, s := range rows {
		form, verdict := s.Form, s.Verdict.String()
		if form == "fast" {
			form = "fast only"
		}
		count[verdict+", "+form]++
		fmt.Fprintf(b, "| [%s](#%s) | %s | %s | %s | %s |\n", s.ID, s.ID, cell(s.Paper), cell(s.Measured), form, verdict)
	}
	b.WriteString("\n")
	var parts []string
	for name, n := range count {
		parts = append(parts, fmt.Sprintf("%d %s", n, strings.TrimSuffix(name, ", ")))
	}
	slices.Sort(parts)
	fmt.Fprintf(b, "%d rows: %s.\n\n", len(rows), strings.Join(parts, "; "))
}

// cell escapes text for a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", "\\|")
}

// speed is the minimum number of link transmissions per second on a dedicated processor.
const speed = 1e6

// night writes the estimated durations.
func night(b *strings.Builder, rows []*Row, records []*Record) {
	all := uint64(0)
	for _, rec := range records {
		all += rec.Estimate
	}
	if all == 0 {
		return
	}
	hours := func(n uint64) float64 { return float64(n) / speed / 2 / 3600 }
	fmt.Fprintf(b, "The full forms of all rows take about %.3g link transmissions, computed from their payload without\n"+
		"retransmissions. At %.1g M per second and dedicated processor this takes %.1f hours on two.\n\n", float64(all), speed/1e6, hours(all))
	b.WriteString("| row | full: link transmissions | hours on two processors |\n|---|--:|--:|\n")
	for i, r := range rows {
		fmt.Fprintf(b, "| %s | %.2g | %.2f |\n", r.ID, float64(records[i].Estimate), hours(records[i].Estimate))
	}
	b.WriteString("\n")
}

// section writes the section of a row.
func (r *Row) section(b *strings.Builder, f *Found, s *Summary) {
	p := r.Paper
	fmt.Fprintf(b, "## %s\n\n**%s** (%s; %s): %s\n\n", r.ID, p.Title, p.Source, p.Section, strings.TrimSpace(p.Says))
	fmt.Fprintf(b, "Setting: %s\n\n", strings.TrimSpace(p.Setting))
	if f == nil {
		b.WriteString("Not run yet.\n\n")
	} else {
		fmt.Fprintf(b, "| claim (%s form) | paper | measured | verdict |\n|---|---|---|---|\n", s.Form)
		for i := range s.Claims {
			c := &s.Claims[i]
			verdict := c.Verdict.String()
			if c.Why != "" {
				verdict += ": " + c.Why
			}
			fmt.Fprintf(b, "| %s | %s | %s | %s |\n", cell(c.Says), paperText(c.Paper), c.Text(), cell(verdict))
		}
		b.WriteString("\n")
		if failures := f.failures(); failures != "" {
			fmt.Fprintf(b, "Runs that failed: %s.\n\n", failures)
		}
	}
	if p.Found != "" {
		fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(p.Found))
	}
	r.open(b, f)
}

// open lists the settings that the paper leaves open, and the results of alternatives.
func (r *Row) open(b *strings.Builder, f *Found) {
	if len(r.Paper.Open) == 0 {
		return
	}
	b.WriteString("Left open by the paper:\n\n")
	for _, o := range r.Paper.Open {
		fmt.Fprintf(b, "* %s: %s. %s\n", o.What, o.Choice, o.Why)
		for _, v := range o.Vary {
			if f == nil {
				continue
			}
			var parts []string
			for _, c := range r.Judge(f, v.Name).Claims {
				if len(c.Values) > 0 {
					parts = append(parts, c.Says+": "+c.Text())
				}
			}
			if len(parts) > 0 {
				fmt.Fprintf(b, "  With %s: %s.\n", v.Name, strings.Join(parts, "; "))
			}
		}
	}
	b.WriteString("\n")
}
