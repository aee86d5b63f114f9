package papers

import (
	"fmt"
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
			begin, want := "* ["+r.ID+"](", c.brief()+" for "+c.Paper
			if c.Verdict == Contradicted || c.Verdict == Mixed {
				begin, want = "* **Does not hold**", fmt.Sprintf("%s %s (paper: %s)", cell(c.Says), c.brief(), c.Paper)
			}
			if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, begin) && strings.Contains(line, want) }) {
				t.Errorf("%s: the summary lacks %q", r.ID, want)
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
