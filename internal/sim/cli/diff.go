package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/sweep"
)

// diffOptions are the options of `rocesim diff`.
type diffOptions struct {
	only   string
	within float64
}

// errDiffer reports a difference above --within.
var errDiffer = errors.New("the results differ by more than --within")

func (a *app) diff() *cobra.Command {
	o := diffOptions{within: -1}
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two results",
		Long: `Compares two results number by number and prints the differences. A result is a folder that
rocesim run --out has written, a file with the output of --json, or the folder of a sweep. Runs of
sweeps are compared if they have the same values.

If A or B is a file of flow completion times, of HPCC's or ConWeave's simulator or fct.txt of
rocesim run --format, or a flows.csv, it compares flows with the same hosts, size and start: a
row for each range of sizes, and the flows of one result only. A folder then needs fct.txt or
flows.csv. Hosts in flows.csv are numbers, not the IDs of a topology file.`,
		Example: `  rocesim diff a b                          after rocesim run ... --out a and --out b
  rocesim diff a b --only slowdown
  rocesim diff before after --within 5      exit code 1 if a number differs by more than 5 %
  rocesim diff a theirs/fct.txt             completion times of the same flows, ours and theirs`,
		Args: about.Words(2, 2),
		RunE: func(_ *cobra.Command, args []string) error { return a.doDiff(args[0], args[1], &o) },
	}
	c.Flags().StringVar(&o.only, "only", "", "compare only numbers with this prefix, such as slowdown or by_size")
	c.Flags().Float64Var(&o.within, "within", -1, "fail if differences exceed this percentage; print only such numbers")
	return c
}

// numbers are the numbers of a result, by names such as slowdown.p99.
type numbers map[string]float64

// difference is a number that differs.
type difference struct {
	Run     string   `json:"run,omitempty"`
	Name    string   `json:"name"`
	A       *float64 `json:"a"` // nil: missing
	B       *float64 `json:"b"`
	Percent *float64 `json:"percent"` // relative to A; nil: undefined
}

func (a *app) doDiff(nameA, nameB string, o *diffOptions) error {
	if math.IsNaN(o.within) {
		return about.Usage(errors.New("--within NaN: must be a number"))
	}
	if hasFlows(nameA) || hasFlows(nameB) {
		return a.diffFlows(nameA, nameB, o)
	}
	x, err := readResults(nameA)
	if err != nil {
		return about.Usage(err)
	}
	y, err := readResults(nameB)
	if err != nil {
		return about.Usage(err)
	}
	runs, lonely := pairs(x, y)
	if len(runs) == 0 {
		return about.Usage(fmt.Errorf("%s and %s have no run in common", nameA, nameB))
	}
	var out []difference
	same := 0
	for _, run := range runs {
		d, n := compare(run, x[run], y[run], o)
		out, same = append(out, d...), same+n
	}
	if a.json {
		err = output.JSON(a.out, map[string]any{"differences": out, "same": same, "runs_of_one_only": lonely})
	} else {
		err = a.showDiff(out, same, lonely)
	}
	if err == nil && o.within >= 0 && len(out)+len(lonely) > 0 {
		err = errDiffer
	}
	return err
}

func (a *app) showDiff(out []difference, same int, lonely []string) error {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	last := ""
	for _, d := range out {
		if d.Run != last {
			fmt.Fprintf(w, "%s\n", d.Run)
			last = d.Run
		}
		change := "-"
		if d.Percent != nil {
			change = fmt.Sprintf("%+.1f %%", *d.Percent)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.Name, shown(d.A), shown(d.B), change)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, run := range lonely {
		fmt.Fprintf(a.out, "only in one result: %s\n", run)
	}
	fmt.Fprintf(a.out, "%d numbers differ, %d do not\n", len(out), same)
	return nil
}

func shown(v *float64) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("%.6g", *v)
}

// pairs returns the runs in both results, and those in only one. If each result has one run, these are a pair
// regardless of their names.
func pairs(x, y map[string]numbers) (both, lonely []string) {
	if len(x) == 1 && len(y) == 1 {
		for name, v := range y {
			delete(y, name)
			y[first(x)] = v
		}
		return []string{first(x)}, nil
	}
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if y[name] != nil {
			both = append(both, name)
		} else {
			lonely = append(lonely, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(y)) {
		if x[name] == nil {
			lonely = append(lonely, name)
		}
	}
	return both, lonely
}

func first(m map[string]numbers) string { return slices.Sorted(maps.Keys(m))[0] }

// compare returns the differences, and the number of equal values.
func compare(run string, x, y numbers, o *diffOptions) (out []difference, same int) {
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(name, o.only) {
			continue
		}
		d := difference{Run: run, Name: name}
		a, inA := x[name]
		b, inB := y[name]
		if inA && inB && (a == b || o.within >= 0 && math.Abs(b-a) <= math.Abs(a)*o.within/100) {
			same++
			continue
		}
		if inA {
			d.A = &a
		}
		if inB {
			d.B = &b
		}
		if p := (b - a) / a * 100; inA && inB && a != 0 {
			d.Percent = &p
		}
		out = append(out, d)
	}
	return out, same
}

// readResults reads results by run name.
func readResults(name string) (map[string]numbers, error) {
	s, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !s.IsDir() {
		n, err := readNumbers(name)
		return map[string]numbers{"": n}, err
	}
	if n, err := readNumbers(filepath.Join(name, "summary.json")); !errors.Is(err, fs.ErrNotExist) {
		return map[string]numbers{"": n}, err
	}
	if f, err := sweep.Open(name); !errors.Is(err, fs.ErrNotExist) {
		return readSweep(f, err)
	}
	files, err := filepath.Glob(filepath.Join(name, "seed-*", "summary.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s: neither summary.json nor runs", name)
	}
	out := map[string]numbers{}
	for _, file := range files {
		n, err := readNumbers(file)
		if err != nil {
			return nil, err
		}
		out[filepath.Base(filepath.Dir(file))] = n
	}
	return out, err
}

func readSweep(f *sweep.Folder, err error) (map[string]numbers, error) {
	if err != nil {
		return nil, err
	}
	out := map[string]numbers{}
	for i := range f.Plan.Runs {
		n, err := readNumbers(filepath.Join(f.Run(i), "summary.json"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // missing or failed
		}
		if err != nil {
			return nil, err
		}
		out[strings.Join(f.Plan.Set(i), " ")] = n
	}
	return out, nil
}

// readNumbers reads the first result of a file.
func readNumbers(file string) (numbers, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var doc map[string]any
	if err := json.NewDecoder(bounded.Reader(f, bounded.Data)).Decode(&doc); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if doc["link_transmissions"] == nil {
		return nil, fmt.Errorf("%s: not a result of rocesim", file)
	}
	delete(doc, "seed")
	n := numbers{}
	n.add("", doc)
	return n, nil
}

// add adds the numbers of v. The upper end of a size range is its name.
func (n numbers) add(name string, v any) {
	switch v := v.(type) {
	case float64:
		n[name] = v
	case map[string]any:
		for key, e := range v {
			n.add(strings.TrimPrefix(name+"."+key, "."), e)
		}
	case []any:
		for _, e := range v {
			if m, ok := e.(map[string]any); ok {
				to := m["to_bytes"]
				delete(m, "from_bytes")
				delete(m, "to_bytes")
				n.add(fmt.Sprintf("%s.%.0f", name, to), m)
			}
		}
	}
}
