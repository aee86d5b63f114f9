package papers

import (
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
)

// TestPercentiles: any percentile is a value of the sample, as the named ones are.
func TestPercentiles(t *testing.T) {
	var values []float64
	for i := range 1000 {
		values = append(values, float64(999-i))
	}
	for take, want := range map[string]float64{"p10": 99, "p90": 899, "p99": 989, "p99.95": 999, "p0.1": 0, "p50": 499, "deviation": math.Sqrt((1e6 - 1) / 12)} {
		if got := pick(take, values); math.Abs(got-want) > 1e-9*want {
			t.Errorf("%s: %g, want %g", take, got, want)
		}
	}
	for _, take := range []string{"p", "p0", "p100", "p-1", "pNaN", "90", ""} {
		if percentile(take) != 0 || !math.IsNaN(pick(take, values)) {
			t.Errorf("%q is a percentile", take)
		}
		if err := checkNumber(&scenario.Number{Name: "x", Of: "fct", Take: take}); err == nil {
			t.Errorf("take %q is accepted", take)
		}
	}
	if err := checkNumber(&scenario.Number{Name: "x", Of: "fct", Take: "p90"}); err != nil {
		t.Error(err)
	}
	if d := result.Describe(values); d.P999 != pick("p99.9", values) {
		t.Error("two definitions of a percentile")
	}
}

// judged judges a claim over values by run and number.
func judged(t *testing.T, claim string, runs map[string][]map[string]float64) *Claim {
	t.Helper()
	text := strings.NewReplacer("claims: [{says: ratio, number: fct, of: long, over: short, paper: 2, quote: twice}]", "claims: ["+claim+"]\n  points: [{name: a}, {name: b}]",
		"{name: placed, of: total}", "{name: p90, of: fct, take: p90}, {name: p99, of: fct, take: p99}, {name: placed, of: total}").Replace(two)
	r := loadText(t, text)
	f := &Found{Runs: map[string][]Measured{}}
	jitter := rand.New(rand.NewPCG(1, 2)) // equal ratios of seeds would be discrete
	for _, key := range slices.Sorted(maps.Keys(runs)) {
		for _, numbers := range runs[key] {
			m := Measured{Numbers: map[string]float64{}, Unfinished: new(0.0)}
			for _, name := range slices.Sorted(maps.Keys(numbers)) {
				m.Numbers[name] = numbers[name] * (1 + 1e-6*jitter.Float64())
			}
			f.Runs[key] = append(f.Runs[key], m)
		}
	}
	return r.outcome(&r.Paper.Claims[0], f)
}

// TestDistributionClaim: a claim on several points of a CDF has the verdict of all of them, and shows each.
func TestDistributionClaim(t *testing.T) {
	two := func(p90, p99 float64) []map[string]float64 {
		return []map[string]float64{{"p90": p90, "p99": p99, "fct": 1}, {"p90": p90 * 1.01, "p99": p99 * 1.01, "fct": 1}, {"p90": p90, "p99": p99, "fct": 1}}
	}
	const claim = `{says: x, numbers: [p90, p99], of: long, over: short, at: [a], order: more, quote: twice}`
	for _, c := range []struct {
		p90, p99 float64
		want     Verdict
	}{{2, 2, Direction}, {2, 0.5, Mixed}, {0.5, 2, Mixed}, {0.5, 0.5, Contradicted}} {
		o := judged(t, claim, map[string][]map[string]float64{"long/a": two(c.p90, c.p99), "short/a": two(1, 1)})
		if o == nil || len(o.At) != 2 || o.At[0].Point != "a p90" || o.At[1].Point != "a p99" || o.Verdict != c.want {
			t.Errorf("%g, %g: %+v", c.p90, c.p99, o)
		}
	}
}

// TestFrom: a trend is the value at a point over that at another; a base is another number of the same or another series.
func TestFrom(t *testing.T) {
	value := func(v float64) []map[string]float64 {
		return []map[string]float64{{"fct": v, "p90": 10 * v}, {"fct": v, "p90": 10 * v}}
	}
	runs := map[string][]map[string]float64{"long/a": value(3), "short/a": value(2), "long/b": value(6), "short/b": value(1)}
	for claim, want := range map[string]float64{
		`{says: x, number: fct, of: long, over: short, from: a, order: more, quote: twice}`:                     4, // (6/1) / (3/2)
		`{says: x, number: fct, of: long, from: a, order: more, quote: twice}`:                                  2,
		`{says: x, number: fct, of: long, over: long, base: p90, at: [b], paper: 0.1, quote: twice}`:            0.1,
		`{says: x, number: p90, of: long, over: short, base: fct, from: b, at: [a], paper: 0.25, quote: twice}`: 0.25,
	} {
		o := judged(t, claim, runs)
		if o == nil || len(o.At) != 1 || math.Abs(o.At[0].Mean-want) > 1e-4 || o.Verdict < Direction {
			t.Errorf("%s: %+v, want %g", claim, o, want)
		}
	}
}

// TestUnfinishedFrom: flows that did not finish at the reference point of a trend leave it without a verdict, too.
func TestUnfinishedFrom(t *testing.T) {
	r := loadText(t, strings.Replace(two, "claims: [{says: ratio, number: fct, of: long, over: short, paper: 2, quote: twice}]",
		"points: [{name: a}, {name: b}]\n  claims: [{says: x, number: fct, of: long, from: a, order: more, quote: twice}]", 1))
	run := func(v, unfinished float64) []Measured {
		return []Measured{{Numbers: map[string]float64{"fct": v}, Unfinished: &unfinished}, {Numbers: map[string]float64{"fct": v * v}, Unfinished: &unfinished}}
	}
	f := &Found{Runs: map[string][]Measured{"long/a": run(1, 5), "long/b": run(3, 0)}}
	if o := r.outcome(&r.Paper.Claims[0], f); o.Verdict != Undecided || !strings.Contains(o.Why, "did not finish") {
		t.Errorf("%+v", o)
	}
}

// TestExport: the raw values give the measured numbers again, the index leads to them, and the checksums are theirs.
func TestExport(t *testing.T) {
	r := loadText(t, strings.Replace(two, "senders: 1, size: 100KB}", "senders: 1, size: 100KB, rounds: 5, every: 1ms}", 1))
	dir := t.TempDir()
	x, err := (&Work{Seeds: 2, First: 7}).Export(context.Background(), r, dir)
	if err != nil || x.Files != 2*2 {
		t.Fatalf("%+v, %v", x, err)
	}
	file, err := os.Open(filepath.Join(dir, "two", indexFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	index, err := csv.NewReader(file).ReadAll()
	if err != nil || len(index) != 5 {
		t.Fatal(index, err)
	}
	for _, line := range index[1:] {
		text, err := os.ReadFile(filepath.Join(dir, "two", line[7]))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Fields(string(text))
		sum := 0.0
		for _, s := range lines[1:] {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
		if want := fmt.Sprint(sum / 5); lines[0] != "fct" || len(lines) != 6 || line[6] != want {
			t.Errorf("%v: mean %s of %v", line, want, lines)
		}
		sums, err := os.ReadFile(filepath.Join(dir, "two", sumsFile))
		if err != nil || !strings.Contains(string(sums), sumLine(text, line[7])) {
			t.Errorf("%v: %s", err, sums)
		}
	}
	seeds := []string{index[1][4], index[2][4], index[3][4], index[4][4]}
	if slices.Compare(seeds, []string{"7", "7", "8", "8"}) != 0 {
		t.Error(seeds)
	}
}

// TestQueueAndMarking: samples of a queue and the marks of a link are those of an interval.
func TestQueueAndMarking(t *testing.T) {
	text := strings.NewReplacer("switch: {buffer: 1MiB}", "switch: {buffer: 1MiB, ecn: {min: 10KB, max: 10KB, probability: 1}}\nsample: 1us", "hosts: 2,", "hosts: 3,",
		"senders: 1, size: 100KB}", "senders: 2, size: 100KB, rounds: 2, every: 2ms}", "{name: placed, of: total}",
		"{name: all, of: marking, links: s0-h1}, {name: idle, of: marking, links: s0-h2}, {name: most, of: queue, take: max, links: s0-h1}, {name: late, of: queue, take: max, links: s0-h1, begin: 10ms}",
		"profile: irn}", "profile: irn, congestion: {name: dctcp}}").Replace(two)
	_, f := run(t, text)
	m := f.Runs["long"][0].Numbers
	late, measured := m["late"]
	if m["all"] <= 0 || m["all"] > 60 || m["idle"] != 0 || m["most"] < 10 || m["most"] > 1100 || measured && late != 0 {
		t.Errorf("%v", m)
	}
}
