package papers

import (
	"cmp"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/internal/sim/sweep"
)

// loadText loads a row from a text.
func loadText(t *testing.T, text string) *Row {
	t.Helper()
	name := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rows, err := Load(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	return rows[0]
}

// TestFirstSeed: runs may begin with a seed that no earlier run used; alternatives have the first one.
func TestFirstSeed(t *testing.T) {
	r := loadText(t, two)
	w := &Work{Dir: t.TempDir(), Seeds: 2, First: 201, Parallel: 1}
	if err := w.Run(context.Background(), []*Row{r}); err != nil {
		t.Fatal(err)
	}
	f, err := w.Collect(r)
	if err != nil || f == nil || f.First != 201 || len(f.Runs["long"]) != 2 || len(f.Runs["other:long"]) != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
	dir, err := r.Folder(w.Dir, false, 201)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil || !strings.HasSuffix(dir, "seed201") {
		t.Error(dir, err)
	}
}

// TestShards: the parts of all runs are disjoint and complete.
func TestShards(t *testing.T) {
	r := loadText(t, two)
	dir := t.TempDir()
	seen := map[string]int{}
	for shard := 1; shard <= 2; shard++ {
		w := &Work{Dir: dir, Seeds: 3, Parallel: 1, Shard: sweep.Shard{K: shard, N: 2}}
		if f, err := w.Collect(r); f != nil || err != nil {
			t.Fatalf("before shard %d: %+v, %v", shard, f, err)
		}
		if err := w.Run(context.Background(), []*Row{r}); err != nil {
			t.Fatal(err)
		}
		folders, err := filepath.Glob(filepath.Join(dir, "two-*", "seed*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range folders {
			if seen[name] == 0 {
				seen[name] = shard
			}
		}
	}
	of := map[int]int{}
	for _, shard := range seen {
		of[shard]++
	}
	w := &Work{Dir: dir, Seeds: 3, Parallel: 1}
	if f, err := w.Collect(r); f == nil || err != nil || of[1]+of[2] != 3 || of[1] == 0 || of[2] == 0 {
		t.Errorf("%v, %v, %v", f, err, of)
	}
}

// TestUnfit: stored runs have a verdict only if they say that they were done with the row's setting, by one build, and with
// seeds that had not been seen when the criteria were set.
func TestUnfit(t *testing.T) {
	r := loadText(t, two)
	run := func(build string) []Measured {
		return []Measured{{Numbers: map[string]float64{"fct": 2}, Unfinished: new(0.0), Origin: &Origin{Build: build}}}
	}
	good := func() *Found {
		return &Found{First: firstUnseen, Setting: r.setting(false), Runs: map[string][]Measured{"long": run("a"), "short": run("a")}}
	}
	for _, c := range []struct {
		name   string
		change func(f *Found)
		why    string
	}{
		{"as they should be", func(*Found) {}, ""},
		{"another setting", func(f *Found) { f.Setting = "x" }, "with another setting"},
		{"the setting of the fast form", func(f *Found) { f.Setting = r.setting(true) }, "with another setting"},
		{"no setting", func(f *Found) { f.Setting = "" }, "have no setting"},
		{"no build", func(f *Found) { f.Runs["long"][0].Origin = nil }, "do not say which revision"},
		{"an unknown revision", func(f *Found) { f.Runs["long"] = run("") }, "do not say which revision"},
		{"modified files", func(f *Found) { f.Runs["long"], f.Runs["short"] = run("a modified"), run("a modified") }, "modified files"},
		{"two builds", func(f *Found) { f.Runs["long"] = run("b") }, "several builds"},
		{"seeds that were seen", func(f *Found) { f.First = 1 }, "seed 1 had been seen"},
		{"the last seed that was seen", func(f *Found) { f.First = firstUnseen - 1 }, "seed 100 had been seen"},
	} {
		f := good()
		c.change(f)
		why := r.unfit(f, "full")
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s: %q", c.name, why)
		}
		for _, x := range r.Summarize(f, "full").Claims {
			if c.why != "" && (x.Verdict != NotRun || x.Why != why) {
				t.Errorf("%s: %v, %q", c.name, x.Verdict, x.Why)
			}
		}
	}
}

// allPapers has all rows.
const allPapers = "../../../configs/sim/papers"

func allRows(t *testing.T) []*Row {
	t.Helper()
	rows, err := Load(allPapers)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestStored: no stored record has a verdict by runs that are not fit for one.
func TestStored(t *testing.T) {
	for _, r := range allRows(t) {
		rec, err := ReadRecord(Stored(allPapers), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		for form, f := range map[string]*Found{"full": rec.Full, "fast": rec.Fast} {
			if f != nil && f.Setting != "" && len(f.origins(func(o *Origin) string { return o.Build })) != 1 {
				t.Errorf("%s: the %s form has a setting, but its runs are of no build, or of several", r.ID, form)
			}
		}
	}
}

// noisy is a row whose values depend on the seed.
var noisy = strings.NewReplacer(
	"size: 100KB}]", "size: 100KB}]\nevents: [{at: 0us, link: h0-s0, do: lose, probability: 0.01}]",
	"paper: 2,", "paper: 1.01,").Replace(two)

// TestPrecisely: seeds are added while the interval is wide, to at most 20. A criterion with another verdict and the same
// tolerance adds as many.
func TestPrecisely(t *testing.T) {
	dir := t.TempDir()
	seeds := func(text string) int {
		r := loadText(t, text)
		w := &Work{Dir: dir, Seeds: 2, Parallel: 2}
		if err := w.RunPrecisely(context.Background(), []*Row{r}); err != nil {
			t.Fatal(err)
		}
		f, err := w.Collect(r)
		if err != nil || f == nil {
			t.Fatal(f, err)
		}
		return len(f.Runs["long"])
	}
	n := seeds(noisy)
	if n <= 2 || n > mostSeeds {
		t.Errorf("%d seeds", n)
	}
	if other := seeds(strings.Replace(noisy, "paper: 1.01,", "paper: 0.9900990099009901,", 1)); other != n {
		t.Errorf("%d seeds, with the other direction %d", n, other)
	}
	if n := seeds(two); n != 2 {
		t.Errorf("%d seeds of equal values", n)
	}
}

// TestVerify: equal numbers are verified, others and missing records are reported.
func TestVerify(t *testing.T) {
	r := loadText(t, two)
	w := &Work{Dir: t.TempDir(), Fast: true, Parallel: 1}
	if err := w.Run(context.Background(), []*Row{r}); err != nil {
		t.Fatal(err)
	}
	f, err := w.Collect(r)
	if err != nil {
		t.Fatal(err)
	}
	again := func() *Work { return &Work{Dir: t.TempDir(), Fast: true, Parallel: 1} }
	v, err := again().Verify(context.Background(), r, &Record{Fast: f})
	if err != nil || v.Runs != 2 || len(v.Differs) != 0 {
		t.Fatalf("%+v, %v", v, err)
	}
	f.Runs["long"][0].Numbers["fct"] *= 1 + 1e-15
	if v, err = again().Verify(context.Background(), r, &Record{Fast: f}); err != nil || len(v.Differs) != 1 || !strings.Contains(v.Differs[0], "long, seed 1") {
		t.Errorf("another number: %+v, %v", v, err)
	}
	for what, rec := range map[string]*Record{"no fast form": {Full: f}, "another setting": {Fast: &Found{Setting: "x", Runs: f.Runs}}, "have no setting": {Fast: &Found{Runs: f.Runs}}} {
		if _, err := again().Verify(context.Background(), r, rec); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestCheckSum: a record that has changed since the pages were written, or has no checksum, is reported.
func TestCheckSum(t *testing.T) {
	dir := t.TempDir()
	rec := &Record{Fast: &Found{Runs: map[string][]Measured{}}}
	write := func(estimate uint64) {
		if rec.Estimate = estimate; rec.Write(dir, "two") != nil {
			t.Fatal("not written")
		}
	}
	write(1)
	if CheckSum(dir, "two") == nil {
		t.Error("no checksum")
	}
	if err := writeSums(dir); err != nil {
		t.Fatal(err)
	}
	if err := CheckSum(dir, "two"); err != nil {
		t.Error(err)
	}
	write(2)
	if err := CheckSum(dir, "two"); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a changed record: %v", err)
	}
	if CheckSum(dir, "three") == nil {
		t.Error("no record")
	}
}

// TestHalves: a rate that falls in the middle of a measurement shows in its halves; a constant one does not. Unfinished
// flows are counted.
func TestHalves(t *testing.T) {
	text := strings.NewReplacer("kind: incast, to: 1, senders: 1, size: 100KB}", "kind: incast, to: 1, senders: 1, size: 100KB, rounds: 20, every: 100us}",
		"set: [workload.0.size=2MB]", "set: [stop=1950us]", "set: [workload.0.size=1MB]", "set: [stop=1950us, events.0.rate=10Gbps]",
		"{name: placed, of: total}", "{name: placed, of: total, end: 1950us}",
		"paper:\n", "events: [{at: 1ms, link: h0-s0, do: degrade, rate: 40Gbps}]\npaper:\n").Replace(two)
	r := loadText(t, text)
	for i, steady := range []bool{true, false} {
		m, err := r.simulate(context.Background(), &r.Runs(false)[i], 1, func(float64) {})
		if err != nil || m.Unfinished == nil {
			t.Fatal(m, err)
		}
		if h := m.Halves["fct"]; (math.Abs(h-1) < 0.02) != steady || h <= 0 {
			t.Errorf("%d: %v", i, m)
		}
		if h := m.Halves["placed"]; math.Abs(h-1) > 0.1 {
			t.Errorf("%d: %v", i, m)
		}
		if (*m.Unfinished == 0) != steady {
			t.Errorf("%d: %v %% unfinished", i, *m.Unfinished)
		}
	}
}

// TestParameters: a row has the parameters of its paper.
func TestParameters(t *testing.T) {
	set := &Parameters{Paper: "a paper", Page: "page", Values: []Parameter{{Key: "topology.hosts", Value: 2, Source: "1"}, {Key: "switch.pfc.headroom", Value: nil, Source: "2"},
		{Key: "topology.delay", Value: "2us", Source: "3", Rows: []string{"three"}}}}
	for hosts, want := range map[int]string{2: "", 3: "topology.hosts is 2, not 3"} {
		set.Values[0].Value = hosts
		if err := set.check(loadText(t, two)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", hosts, err)
		}
	}
	set.Values[0].Value, set.Values[0].Source = 2, ""
	if err := set.check(loadText(t, two)); err == nil || !strings.Contains(err.Error(), "has no source") {
		t.Error(err)
	}
	if r := (&Row{Paper: &scenario.Paper{Source: "another"}}); parametersOf([]*Parameters{set}, r).Page != "" {
		t.Error("the set of another paper")
	}
}

// TestSets: each paper has one set, and each row of it agrees with the set.
func TestSets(t *testing.T) {
	sets, err := LoadParameters(allPapers)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range allRows(t) {
		set := parametersOf(sets, r)
		if set.Page == "" && !r.own() {
			t.Errorf("%s has no set", r.ID)
		}
		if err := set.check(r); err != nil {
			t.Error(err)
		}
	}
}

// TestAttainable: no claim asks for more payload than frames of the links can carry.
func TestAttainable(t *testing.T) {
	n := 0
	for _, r := range allRows(t) {
		for i := range r.Paper.Claims {
			c := &r.Paper.Claims[i]
			least := c.Paper
			if len(c.Bounds) > 0 {
				least = float64(c.Bounds[0])
			}
			if c.Number == "" || c.Over != "" || c.From != "" || !slices.Contains([]string{"goodput", "total", "received", "placed", "rate", "requests"}, r.number(c.Number).Of) || least <= 0 ||
				strings.HasSuffix(r.number(c.Number).Take, "jain") || r.number(c.Number).Take == "unfair" {
				continue
			}
			n++
			least *= max(c.Ideal, 1)
			rate, share := r.lines(t, c.Of)
			if most := rate * share * math.Ceil(least/rate); least > most*1.005 { // figures of papers have two digits or three
				t.Errorf("%s: %q asks for %.4g Gb/s or more; frames of %.4g Gb/s carry %.4g", r.ID, c.Says, least, rate, most)
			}
		}
	}
	if n < 10 {
		t.Errorf("%d claims on goodput", n)
	}
}

// lines returns the rate of the links of a host with all planes, in Gb/s, and the share of payload in their frames.
func (r *Row) lines(t *testing.T, series string) (gbps, share float64) {
	t.Helper()
	i := slices.IndexFunc(r.Runs(false), func(x Run) bool { return x.Series == series })
	c, err := r.config(&r.Runs(false)[i], 1)
	if err != nil {
		t.Fatal(err)
	}
	header := cmp.Or(c.Framing.Header, 14+20+8+12+4+24) // Ethernet, IPv4, UDP, BTH, ICRC, preamble and gap
	mtu := float64(cmp.Or(c.MTU, 1000))
	return float64(c.Graph.Cables[0].Rate) / 1e9 * float64(max(c.Planes, 1)), mtu / (mtu + float64(header))
}
