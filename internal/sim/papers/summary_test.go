package papers

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/scenario"
)

// TestAdverse: the stored summary has a line for each claim that does not hold, and for each that misses the paper's value
// by more than 10 %.
func TestAdverse(t *testing.T) {
	page, err := os.ReadFile("../../../docs/results/papers.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(page), "\n")
	n := 0
	for _, r := range allRows(t) {
		rec, err := ReadRecord(Stored(allPapers), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		f, form := rec.shown()
		for _, c := range r.Summarize(f, form).Claims {
			adverse := c.Verdict == Contradicted || c.Verdict == Mixed
			for i := range c.At {
				adverse = adverse || !r.own() && farFrom(&r.Paper.Claims[r.claim(c.Says)], c.At[i].Mean)
			}
			if !adverse || c.Verdict == NotRun || r.own() || taken(&r.Paper.Claims[r.claim(c.Says)]) && c.Verdict > Mixed {
				continue
			}
			n++
			begin, paper := "* ["+r.ID+"](", "(paper: "+c.Paper+")"
			if c.Verdict == Contradicted || c.Verdict == Mixed {
				begin = "* **Does not hold**"
			} else if c.Verdict == Direction {
				begin = "* **Direction only**"
			}
			if !slices.ContainsFunc(lines, func(line string) bool {
				return strings.HasPrefix(line, begin) && slices.ContainsFunc(strings.Split(line, "#"+r.ID+")")[1:], func(rest string) bool {
					rest, _, _ = strings.Cut(rest, "](papers/") // the next row
					return strings.Contains(rest, c.brief()) && strings.Contains(rest, paper)
				})
			}) {
				t.Errorf("%s: the summary lacks %q (%s), and %q", r.ID, c.brief(), paper, c.Says)
			}
		}
	}
	if n < 20 {
		t.Errorf("%d claims: too few to be true", n)
	}
}

// claim returns the index of a claim.
func (r *Row) claim(says string) int {
	return slices.IndexFunc(r.Paper.Claims, func(c scenario.Claim) bool { return c.Says == says })
}

// farFrom reports whether a value is more than 10 % away from a claim's figures, by a definition of its own.
func farFrom(c *scenario.Claim, v float64) bool {
	least, most := c.Paper, c.Paper
	switch {
	case c.Order == "same" && relative(c):
		least, most = 1, 1
	case c.Order != "":
		return false
	case len(c.Bounds) > 0:
		least, most = float64(c.Bounds[0]), float64(c.Bounds[1])
	}
	if c.Ideal > 0 {
		v /= c.Ideal
	}
	return v*1.1 < least || v > most*1.1 && !math.IsInf(most, 1)
}

// TestListed: claims of a row do not repeat their common words and figures; a direction as stated has no figure of the paper.
func TestListed(t *testing.T) {
	list := func(v Verdict, sizeless bool, papers string, says ...string) (list []judgedClaim) {
		for i, s := range says {
			list = append(list, judgedClaim{claim: &Claim{Says: s, Paper: papers[i : i+1], Verdict: v, sizeless: sizeless,
				At: []At{{Point: "p", Mean: 1, Seeds: []float64{1}}, {Point: "q", Mean: 2, Seeds: []float64{2}}}}})
		}
		return list
	}
	for want, in := range map[string][]judgedClaim{
		"mean: a over b 1 to 2, tail 1 to 2 (paper: 3)":          list(Direction, false, "33", "mean: a over b", "tail: a over b"),
		"mean: a 1 to 2 (paper: 3), b 1 to 2 (paper: 4)":         list(Direction, false, "34", "mean: a", "mean: b"),
		"a 1 to 2, b 1 to 2":                                     list(Direction, true, "33", "a", "b"),
		"a at p 1, q 2 (paper: 3)":                               list(Mixed, true, "3", "a"),
		"mean: a 1 to 2, b 1 to 2, tail: c 1 to 2 (paper: 3)":    list(Reproduced, false, "333", "mean: a", "mean: b", "tail: c"),
		"one 1 to 2 (paper: 3), two 1 to 2 (paper: 4)":           list(Contradicted, true, "34", "one", "two"),
		"mean: a 1 to 2, tail 1 to 2, tail: b 1 to 2 (paper: 3)": list(Contradicted, true, "333", "mean: a", "tail: a", "tail: b")[:3],
	} {
		if got := listed(in); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestMark: a list marks a measurement that is not stationary.
func TestMark(t *testing.T) {
	if got := listed([]judgedClaim{{claim: &Claim{Says: "a", Paper: "3", Verdict: Reproduced, Drift: "late"}}}); got != "a -† (paper: 3)" {
		t.Errorf("%q", got)
	}
}

// TestShort: a claim with many points shows their range and those that decide.
func TestShort(t *testing.T) {
	c := &Claim{Verdict: Undecided}
	for i := range 9 {
		c.At = append(c.At, At{Point: string(rune('a' + i)), Mean: float64(i), Seeds: []float64{1}, verdict: Direction})
	}
	c.At[3].verdict = Undecided
	if got := c.short(); got != "0 to 8 at 9 points; undecided: d: 3" {
		t.Error(got)
	}
	for i := range 5 {
		c.At[i].verdict = Undecided
	}
	if got := c.short(); got != "0 to 8 at 9 points; undecided: 5" {
		t.Error(got)
	}
	few := &Claim{Verdict: Undecided, At: c.At[:5]}
	if got := few.short(); got != few.Text() || !strings.HasPrefix(got, "a: 0; b: 1;") {
		t.Error(got)
	}
	if c.Verdict = ModelInput; c.short() == "" || strings.Contains(c.short(), "at 9 points; model") {
		t.Error(c.short())
	}
}

// TestNoted: notes on one alternative with other values are one note.
func TestNoted(t *testing.T) {
	notes := []string{"with x: 1; 2", "three equal seeds", "with x: 1; with y: 2"}
	for note, want := range map[string]int{"with x: 3": 0, "three equal seeds": 1, "with x: 1; with y: 2": 2, "with x: 3; with y: 2": -1, "with y: 2": -1} {
		if got := noted(notes, note); got != want {
			t.Errorf("%q: %d, want %d", note, got, want)
		}
	}
}

// TestWords: the pages have at most 9,000 words.
func TestWords(t *testing.T) {
	words := 0
	for _, pattern := range []string{"papers.md", "papers/*.md"} {
		for _, name := range globbed(t, "../../../docs/results/"+pattern) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			words += len(strings.Fields(string(text)))
		}
	}
	if words == 0 || words > 9000 {
		t.Errorf("%d words", words)
	}
}

func globbed(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestShowPoints: points lose their first words if the claim says them, or if there is one point only.
func TestShowPoints(t *testing.T) {
	for _, c := range []struct {
		says    string
		numbers int
		want    string
	}{{"gain, 90 %", 1, "fct, p99"}, {"gain", 1, "90 % fct, 90 % p99"}, {"gain", 2, "fct, p99"}} {
		o := &Claim{Says: c.says, At: []At{{Point: "90 % fct"}, {Point: "90 % p99"}}}
		showPoints(o, c.numbers)
		if got := o.At[0].name() + ", " + o.At[1].name(); got != c.want {
			t.Errorf("%s: %s", c.says, got)
		}
	}
}
