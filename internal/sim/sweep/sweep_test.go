package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseAxis(t *testing.T) {
	for text, want := range map[string][]string{
		"a.b=1,2,3":                     {"1", "2", "3"},
		"size=64KB, 1MB":                {"64KB", "1MB"},
		`x=["1", true]`:                 {`"1"`, "true"},
		"b=[{name: drill, n: 2}, ecmp]": {"{name: drill, n: 2}", "ecmp"},
	} {
		if x, err := ParseAxis(text); err != nil || !slices.Equal(x.Values, want) {
			t.Errorf("%s: %q, %v", text, x.Values, err)
		}
	}
	for _, text := range []string{"", "a", "=1", "a=", "a=[", "a=[]", "a=1,1", "a={b: c"} {
		if x, err := ParseAxis(text); err == nil {
			t.Errorf("%q is accepted: %q", text, x)
		}
	}
}

func TestPlan(t *testing.T) {
	p, err := NewPlan("", []Axis{{"a", []string{"1", "2"}}, {"b", []string{"x", "y"}}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]string{{"1", "x"}, {"1", "y"}, {"2", "x"}, {"2", "y"}}, p.Runs); d != "" {
		t.Error(d)
	}
	if got := p.Set(2); !slices.Equal(got, []string{"a=2", "b=x"}) {
		t.Error(got)
	}
	if _, err := NewPlan("", []Axis{{"a", []string{"1"}}, {"a", []string{"2"}}}); err == nil {
		t.Error("a key is varied twice")
	}
	many := Axis{"a", make([]string, 1001)}
	if _, err := NewPlan("", []Axis{many, {"b", many.Values}}); err == nil {
		t.Error("more than a million runs are accepted")
	}
}

// numbered returns a sweep of n runs.
func numbered(t *testing.T, dir string, n int) *Folder {
	t.Helper()
	x := Axis{Key: "n"}
	for i := range n {
		x.Values = append(x.Values, fmt.Sprint(i))
	}
	p, err := NewPlan("", []Axis{x})
	if err != nil {
		t.Fatal(err)
	}
	f, err := Create(dir, p, map[string][]byte{Scenario: []byte("a: 1\n"), "sub/flows": []byte("0\n")})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestOtherSweep: a folder accepts only the same sweep again.
func TestOtherSweep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	p := numbered(t, dir, 3).Plan
	numbered(t, dir, 3)
	longer := Plan{Vary: p.Vary, Runs: append(p.Runs, []string{"9"})}
	if _, err := Create(dir, &longer, nil); !errors.Is(err, ErrOther) {
		t.Errorf("another plan: %v", err)
	}
	if _, err := Create(dir, &p, map[string][]byte{"sub/flows": []byte("1\n")}); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "sub/flows") {
		t.Errorf("another file: %v", err)
	}
	f, err := Open(dir)
	if err != nil || cmp.Diff(p, f.Plan) != "" {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a folder without a sweep is opened")
	}
}

// did returns a Work that records its runs. Each run writes its number.
func did(runs *[]int) Work {
	var mu sync.Mutex
	return Work{Parallel: 3, Do: func(_ context.Context, run int, dir string, _ func(float64)) error {
		mu.Lock()
		*runs = append(*runs, run)
		mu.Unlock()
		return os.WriteFile(filepath.Join(dir, "out"), []byte(fmt.Sprint(run)), 0o644)
	}}
}

// whole reports errors of a sweep whose runs are all done.
func whole(t *testing.T, f *Folder) {
	t.Helper()
	for i := range f.Plan.Runs {
		b, err := os.ReadFile(filepath.Join(f.Run(i), "out"))
		n, err2 := f.Note(i)
		if err := errors.Join(err, err2); err != nil || n == nil || string(b) != fmt.Sprint(i) || n.Run != i || n.Set["n"] != fmt.Sprint(i) {
			t.Errorf("run %d: %q, %+v, %v", i, b, n, err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(f.Dir, runsDir))
	if err != nil || len(entries) != len(f.Plan.Runs) {
		t.Errorf("%d entries for %d runs, %v", len(entries), len(f.Plan.Runs), err)
	}
}

// TestGoesOn: finished runs are not repeated. The partial result of a dead process is removed and does not count; that
// of a living process stays.
func TestGoesOn(t *testing.T) {
	f := numbered(t, t.TempDir(), 20)
	half := filepath.Join(f.Dir, runsDir, ".0007-123")
	if err := errors.Join(os.Mkdir(half, 0o755), os.WriteFile(filepath.Join(half, "out"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	var runs []int
	w := did(&runs)
	broken := errors.New("the disk is full")
	do := w.Do
	w.Do = func(ctx context.Context, run int, dir string, report func(float64)) error {
		if run == 5 {
			return broken
		}
		return do(ctx, run, dir, report)
	}
	w.Parallel = 1
	if err := f.Work(t.Context(), w); !errors.Is(err, broken) || len(runs) != 5 {
		t.Fatalf("%v, runs %v", err, runs)
	}
	runs = nil
	if err := f.Work(t.Context(), did(&runs)); err != nil || len(runs) != 15 || slices.Min(runs) != 5 {
		t.Fatalf("%v, runs %v", err, runs)
	}
	whole(t, f)
	runs = nil
	var last Progress
	w = did(&runs)
	w.Tell = func(p Progress) { last = p }
	if err := f.Work(t.Context(), w); err != nil || runs != nil || last != (Progress{Done: 20, All: 20}) {
		t.Errorf("%v, runs %v, %+v", err, runs, last)
	}
}

// TestLiving: a folder in use by a process, in the same run, is left alone; the first result stays.
func TestLiving(t *testing.T) {
	f := numbered(t, t.TempDir(), 1)
	var other []int
	w := did(&other)
	do := w.Do
	w.Do = func(ctx context.Context, run int, dir string, report func(float64)) error {
		var inner []int
		if err := f.Work(ctx, did(&inner)); err != nil || len(inner) != 1 {
			t.Errorf("%v, runs %v", err, inner)
		}
		return do(ctx, run, dir, report)
	}
	if err := f.Work(t.Context(), w); err != nil {
		t.Error(err)
	}
	whole(t, f)
}

// TestInterrupted: an interrupt ends the sweep, and interrupted runs leave no result.
func TestInterrupted(t *testing.T) {
	f := numbered(t, t.TempDir(), 10)
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int32
	err := f.Work(ctx, Work{Parallel: 2, Do: func(ctx context.Context, _ int, _ string, _ func(float64)) error {
		if n.Add(1) == 4 {
			cancel()
		}
		return ctx.Err()
	}})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	done := 0
	for i := range f.Plan.Runs {
		if n, err := f.Note(i); err != nil {
			t.Error(err)
		} else if n != nil {
			done++
		}
	}
	if done != 3 {
		t.Errorf("%d are done", done)
	}
	var runs []int
	if err := f.Work(t.Context(), did(&runs)); err != nil || len(runs) != 7 {
		t.Errorf("%v, runs %v", err, runs)
	}
}

// TestFailed: the error of a run is its result. The run is not retried, and the others continue.
func TestFailed(t *testing.T) {
	f := numbered(t, t.TempDir(), 4)
	var last Progress
	w := Work{Tell: func(p Progress) { last = p }, Do: func(_ context.Context, run int, _ string, _ func(float64)) error {
		if run == 1 {
			return Failed{errors.New("messages never ended")}
		}
		return nil
	}}
	for range 2 {
		if err := f.Work(t.Context(), w); err != nil || last.Done != 4 || last.Failed != 1 {
			t.Fatalf("%v, %+v", err, last)
		}
	}
	if n, err := f.Note(1); err != nil || n.Error != "messages never ended" {
		t.Errorf("%+v, %v", n, err)
	}
}

// TestReports: the progress includes the parts of runs under way, without those that have ended.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := numbered(t, t.TempDir(), 2)
		var parts []float64
		var left []time.Duration
		w := Work{Parallel: 1, Tell: func(p Progress) { parts, left = append(parts, p.Parts), append(left, p.Left) },
			Do: func(_ context.Context, _ int, _ string, report func(float64)) error {
				report(0.1) // too early
				for _, part := range []float64{0.25, 0.5, 0.75} {
					time.Sleep(time.Hour)
					report(part)
				}
				time.Sleep(time.Hour)
				return nil
			}}
		if err := f.Work(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if want := []float64{0, 0.25, 0.5, 0.75, 0, 0.25, 0.5, 0.75, 0}; !slices.Equal(parts, want) {
			t.Errorf("parts %v, want %v", parts, want)
		}
		for i, l := range left {
			if want := time.Duration(8-i) * time.Hour; i > 0 && l != want {
				t.Errorf("left %v after %d hours, want %v", l, i, want)
			}
		}
	})
}

// TestShards: shards are disjoint and together complete. Batch systems count them from 0.
func TestShards(t *testing.T) {
	f := numbered(t, t.TempDir(), 10)
	for k := range 4 {
		var runs []int
		w := did(&runs)
		w.Shard = Shard{k, 4}
		if err := f.Work(t.Context(), w); err != nil || len(runs) != 3-k/2 {
			t.Errorf("shard %d: %v, runs %v", k, err, runs)
		}
	}
	whole(t, f)
}

func TestParseShard(t *testing.T) {
	for text, want := range map[string]Shard{"": {}, "1/1": {1, 1}, "0/4": {0, 4}, "4/4": {4, 4}} {
		if s, err := ParseShard(text); s != want || err != nil {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"1", "5/4", "-1/4", "0/0", "1/0", "1/2x", " 1/2", "01/2", "a/b"} {
		if s, err := ParseShard(text); err == nil {
			t.Errorf("%q: %v", text, s)
		}
	}
	for i := range 4 {
		if first, last := (Shard{0, 4}), (Shard{4, 4}); first.Has(i) != last.Has(i) || first.Has(i) != (i == 0) {
			t.Errorf("0/4 and 4/4 differ for %d", i)
		}
	}
}
