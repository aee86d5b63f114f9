package papers

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/internal/sim/sweep"
)

// TestRows: all rows are valid in both forms, and name their open points.
func TestRows(t *testing.T) {
	rows, err := Load("../../../configs/sim/papers")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
		if r.Name != r.ID || len(r.Paper.Claims) == 0 || r.Paper.Axes.Y == "" || r.Paper.Setting == "" {
			t.Errorf("%s: its name is %q; claims, axes and setting are needed", r.ID, r.Name)
		}
		if r.Paper.Fast.Expect == fastVerdicts[notReproduced] && r.Paper.Fast.Why == "" {
			t.Errorf("%s expects no direction of its fast form, and says not why", r.ID)
		}
	}
}

// two is a row of two short runs with a known number.
const two = `name: two
topology: {kind: star, hosts: 2, host_rate: 40Gbps, delay: 1us}
switch: {buffer: 1MiB}
transport: {profile: irn}
workload: [{kind: incast, to: 1, senders: 1, size: 100KB}]
paper:
  title: Two sizes
  source: a paper
  says: twice the bytes take longer
  axes: {y: us, number: fct}
  series: [{name: long, set: [workload.0.size=2MB]}, {name: short, set: [workload.0.size=1MB]}]
  numbers: [{name: fct, of: fct, take: mean}, {name: placed, of: total}, {name: degree, of: degree, take: max}, {name: state, of: state}]
  quotes: {twice: {where: "1", text: twice as long}}
  claims: [{says: ratio, number: fct, of: long, over: short, paper: 2, quote: twice}]
  open: [{what: delay, choice: 1 us, why: no reason, vary: [{name: other, set: [topology.delay=2us]}]}]
`

// TestRuns: an alternative setting may concern one series or one point only.
func TestRuns(t *testing.T) {
	text := strings.NewReplacer(
		"vary: [{name: other, set: [topology.delay=2us]}]", "at: [b], vary: [{name: other, set: [topology.delay=2us], also: [{name: short, set: [stop=1ms]}]}]",
		"  numbers:", "  points: [{name: a}, {name: b, set: [stop=2ms], also: [{name: long, set: [stop=3ms]}]}]\n  numbers:",
	).Replace(two)
	name := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rows, err := Load(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range rows[0].Runs(false) {
		got = append(got, x.Key()+" "+strings.Join(x.Set, " "))
	}
	want := []string{
		"long/a workload.0.size=2MB",
		"long/b workload.0.size=2MB stop=2ms stop=3ms",
		"short/a workload.0.size=1MB",
		"short/b workload.0.size=1MB stop=2ms",
		"other:long/b workload.0.size=2MB stop=2ms stop=3ms topology.delay=2us",
		"other:short/b workload.0.size=1MB stop=2ms topology.delay=2us stop=1ms",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	nobody := strings.Replace(text, "also: [{name: short", "also: [{name: nobody", 1)
	if err := os.WriteFile(name, []byte(nobody), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(filepath.Dir(name)); err == nil || !strings.Contains(err.Error(), `no series "nobody"`) {
		t.Error(err)
	}
}

// TestWork: runs are kept. A changed claim does not repeat them, a changed setting does. The document contains the
// results.
func TestWork(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "rows", "two.yaml")
	if err := os.Mkdir(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	w := &Work{Dir: filepath.Join(dir, "out"), Seeds: 2, Parallel: 2} // begins with firstUnseen
	do := func(text string) (began int, j Judged, r *Row, f *Found) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		rows, err := Load(filepath.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		first := true
		w.Tell = func(p sweep.Progress) {
			if first && p.Done == 0 {
				began = p.All
			}
			first = false
		}
		if err := w.Run(context.Background(), rows); err != nil {
			t.Fatal(err)
		}
		if f, err = w.Collect(rows[0]); err != nil || f == nil {
			t.Fatal(f, err)
		}
		return began, rows[0].Judge(f), rows[0], f
	}
	began, j, r, f := do(two) // kept for the document
	for _, ms := range f.Runs {
		for i := range ms {
			ms[i].Origin.Build = "a" // tests have no revision
		}
	}
	if began == 0 || j.Verdict != Undecided || !strings.Contains(j.Claims[0].Why, "equal seeds") || // seeds change nothing in this row
		j.Claims[0].At[0].Mean < 1.9 || j.Claims[0].At[0].Mean > 2 {
		t.Fatalf("%d, %+v", began, j)
	}
	if len(f.Runs["long"]) != 2 || len(f.Runs["other:long"]) != 1 {
		t.Errorf("%+v", f.Runs)
	}
	if f.most() != 2 {
		t.Errorf("%d seeds", f.most())
	}
	m := f.Runs["long"][0].Numbers
	if m["placed"] < 30 || m["placed"] > 40 || m["degree"] != 0 || m["state"] <= 0 {
		t.Errorf("%v", m)
	}
	if began, j, _, _ = do(strings.Replace(two, "paper: 2,", "paper: 3,", 1)); began != 0 || j.Claims[0].Paper != "3" {
		t.Errorf("%d runs are done again, %v", began, j.Verdict)
	}
	if began, _, _, _ = do(strings.Replace(two, "2MB", "3MB", 1)); began == 0 {
		t.Error("another setting, and nothing is done again")
	}
	docs, stored := filepath.Join(dir, "docs", "papers"), Stored(dir)
	if err := os.MkdirAll(stored, 0o755); err != nil {
		t.Fatal(err)
	}
	rec := &Record{Full: f}
	if err := rec.Write(stored, r.ID); err != nil {
		t.Fatal(err)
	}
	if err := Document(filepath.Dir(docs), stored, []*Row{r}, nil); err != nil {
		t.Fatal(err)
	}
	text := pages(t, docs)
	for _, want := range []string{"# Results of papers\n", "\n## Rules\n", "\n## Threats to validity\n", "|1|1|0|0|0|0|0|0|0|0|1|0|0|", "* **Holds**: none.", "* **Open**: *undecided* (1): [Two sizes, two](papers/rows.md#two).", "Runs: 20", "Seeds 101-102.", "|ratio|2|1.9", "|undecided (1)|\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	r.Text = bytes.Replace(r.Text, []byte("delay: 1us"), []byte("delay: 3us"), 1)
	if err := Document(filepath.Dir(docs), stored, []*Row{r}, nil); err != nil {
		t.Fatal(err)
	}
	if text := pages(t, docs); !strings.Contains(text, "|not run (1)|") || !strings.Contains(text, "|earlier: 1.9") || !strings.Contains(text, "another setting") {
		t.Errorf("results of another setting have a verdict:\n%s", text)
	}
	svg, err := os.ReadFile(filepath.Join(dir, "docs", "papers", "two.svg"))
	if err != nil || !strings.HasSuffix(string(svg), "</svg>\n") {
		t.Errorf("%v, %s", err, svg)
	}
}

// TestPicture: a picture has the intervals of Over, and says so; equal seeds have none.
func TestPicture(t *testing.T) {
	r := &Row{ID: "x", Paper: &scenario.Paper{Axes: scenario.Axes{Number: "n"}, Series: []scenario.Variant{{Name: "s"}}, Points: []scenario.Point{{}}}}
	for second, want := range map[float64]bool{100: false, 102: true} {
		f := &Found{Runs: map[string][]Measured{"s": {{Numbers: map[string]float64{"n": 100}}, {Numbers: map[string]float64{"n": second}}}}}
		svg := string(r.Picture(f, "full"))
		if strings.Contains(svg, "95 % interval") != want {
			t.Errorf("second seed %v: %s", second, svg)
		}
		d := &picture{r: r}
		d.collect(f)
		if v, iv := d.values[0][0], Over([]float64{100, second}, false); v.lo != iv.Lo || v.hi != iv.Hi {
			t.Errorf("second seed %v: %v to %v, want %+v", second, v.lo, v.hi, iv)
		}
	}
}

// pages returns the text of the summary and the page of a row in a folder.
func pages(t *testing.T, docs string) string {
	t.Helper()
	a, err := os.ReadFile(filepath.Join(filepath.Dir(docs), "papers.md"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(docs, "rows.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(a) + string(b)
}

// TestShared: a run of another row with the same settings is reused; any difference prevents that.
func TestShared(t *testing.T) {
	dir := t.TempDir()
	w := &Work{Dir: filepath.Join(dir, "out"), Seeds: 1, Parallel: 1}
	var seconds []float64
	for name, text := range map[string]string{"two": two, "same": strings.NewReplacer("name: two", "name: same", "says: twice the", "says: so the").Replace(two),
		"wide": strings.Replace(two, "name: fct, of: fct, take: mean", "name: fct, of: fct, take: max", 1)} {
		file := filepath.Join(dir, name, name+".yaml")
		if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		rows, err := Load(filepath.Dir(file))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(context.Background(), rows); err != nil {
			t.Fatal(err)
		}
		f, err := w.Collect(rows[0])
		if err != nil || f == nil {
			t.Fatal(f, err)
		}
		seconds = append(seconds, f.Runs["long"][0].Seconds)
	}
	shared, err := filepath.Glob(filepath.Join(w.Dir, "shared", "*"))
	slices.Sort(seconds)
	if err != nil || len(shared) != 2*4 || len(slices.Compact(seconds)) != 2 {
		t.Errorf("%d runs, of %v s, %v", len(shared), seconds, err)
	}
}

// TestDegreeFrom: a degree may count from an instant on, without earlier events.
func TestDegreeFrom(t *testing.T) {
	text := strings.Replace(two, "paper:\n", "events: [{at: 100us, link: h0-s0, do: lose, probability: 0.2}, {at: 200us, link: h0-s0, do: lose, probability: 0}]\npaper:\n", 1)
	for begin, held := range map[string]bool{"": true, ", begin: 50us": true, ", begin: 350us": false} {
		name := filepath.Join(t.TempDir(), "two.yaml")
		if err := os.WriteFile(name, []byte(strings.Replace(text, "degree, take: max", "degree, take: max"+begin, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		rows, err := Load(filepath.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		m, err := rows[0].simulate(context.Background(), &rows[0].Runs(false)[0], 1, func(float64) {})
		if err != nil || m.Numbers["degree"] > 0 != held {
			t.Errorf("begin %q: %v, %v", begin, m, err)
		}
	}
}

// TestPlaced: connections count placed data once, although a queue pair carries several messages in turn. Flows can be
// selected by the time of their begin.
func TestPlaced(t *testing.T) {
	text := strings.NewReplacer(
		"size: 100KB}", "size: 100KB, rounds: 10, every: 100us}", "set: [workload.0.size=2MB]", "set: []", "set: [workload.0.size=1MB]", "set: []",
		"{name: placed, of: total}", "{name: total, of: total, end: 1ms}, {name: least, of: placed, take: min, end: 1ms}, {name: most, of: placed, take: max, end: 1ms}, "+
			"{name: half, of: placed, take: mean, begin: 500us, end: 1ms}, {name: late, of: fct, take: mean, within: [0.95, 1]}",
		"paper:\n", "events: [{at: 850us, link: h0-s0, do: degrade, rate: 20Gbps}]\npaper:\n").Replace(two)
	name := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rows, err := Load(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	m, err := rows[0].simulate(context.Background(), &rows[0].Runs(false)[0], 1, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	// Ten messages of 100 KB in a millisecond are 8 Gb/s, each of them 0.8 Gb/s, and 1.6 Gb/s in half a millisecond.
	for name, want := range map[string]float64{"total": 8, "least": 0.8, "most": 0.8, "half": 1.6} {
		if got := m.Numbers[name]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%s: %v Gb/s, not %v", name, got, want)
		}
	}
	if m.Numbers["late"] < 1.5*m.Numbers["fct"] {
		t.Errorf("%v", m.Numbers)
	}
}

// TestRefused: a row that refers to unknown names is refused.
func TestRefused(t *testing.T) {
	for _, c := range [][2]string{
		{"of: long,", "of: none,"}, {"over: short", "over: none"}, {"number: fct, of", "number: none, of"}, {"take: mean", "take: some"},
		{"of: degree", "of: nothing"},
		{"take: mean", "take: mean, within: [0.5]"}, {"take: mean", "take: mean, within: [0.8, 0.5]"}, {"of: total", "of: total, within: [0, 1]"}, {"paper: 2", "paper: 0"}, {"quote: twice", "quote: thrice"}, {"series:", "nonsense: 1\n  series:"}, {"title: Two sizes", "title:"},
	} {
		name := filepath.Join(t.TempDir(), "two.yaml")
		if err := os.WriteFile(name, []byte(strings.Replace(two, c[0], c[1], 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := read(name); err == nil {
			t.Errorf("%q instead of %q is accepted", c[1], c[0])
		}
	}
}

// TestEstimate: the estimate of a run without losses is within a twentieth of its actual time.
func TestEstimate(t *testing.T) {
	r := &Row{ID: "two", Path: "two.yaml", Text: []byte(two), Paper: &scenario.Paper{Series: []scenario.Variant{{Name: "s"}}, Points: []scenario.Point{{}}}}
	n, err := r.Estimate(false, 1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.simulate(context.Background(), &r.Runs(false)[0], 1, func(float64) {})
	if err != nil || float64(n) < 0.95*float64(m.Transmissions) || float64(n) > 1.05*float64(m.Transmissions) {
		t.Errorf("%d, %+v, %v", n, m, err)
	}
}
