package cli

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/sweep"
)

func (a *app) collect() *cobra.Command {
	return &cobra.Command{
		Use:   "collect FOLDER",
		Short: "Collect the results of a sweep",
		Long: `Prints a line for each combination of values, with the means over its seeds, and writes
runs.csv, with a line for each run, into the sweep's folder. If runs have tables, it merges their
flows into flows.csv, with the number of the run in the first column.

If runs are missing or have failed, it lists them and exits with code 1. It also lists the
combinations that the sweep has left out as invalid.`,
		Example: `  rocesim collect s
  rocesim collect s --json`,
		Args: about.Words(1, 1),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := sweep.Open(args[0])
			if err != nil {
				return about.Usage(err)
			}
			a.showRefused(&f.Plan)
			return a.collectFrom(f)
		},
	}
}

// row is a run of a sweep and its result; nil if it failed without a result.
type row struct {
	*sweep.Note
	Result *summary `json:"result"`
}

// summary is the content of summary.json.
type summary struct {
	result.Result
	Messages int                 `json:"messages"`
	Goodput  float64             `json:"goodput_bps"`
	Jain     float64             `json:"jain"`
	FCT      result.Distribution `json:"fct_us"`
	Slowdown result.Distribution `json:"slowdown"`
	BySize   []result.Bucket     `json:"by_size"`
}

func (s *summary) lost() (n uint64) {
	for _, d := range s.Drops {
		n += d
	}
	return n
}

// metric is a column of the collected results.
type metric struct {
	name string // in runs.csv
	head string // in the table; empty: omitted
	unit float64
	of   func(*summary) float64
}

var metrics = []metric{
	{"messages", "messages", 1, func(s *summary) float64 { return float64(s.Messages) }},
	{"unfinished", "", 1, func(s *summary) float64 { return float64(s.Unfinished) }},
	{"failed", "", 1, func(s *summary) float64 { return float64(s.Failed) }},
	{"goodput_bps", "Gb/s", 1e9, func(s *summary) float64 { return s.Goodput }},
	{"jain", "Jain", 1, func(s *summary) float64 { return s.Jain }},
	{"fct_mean_us", "FCT us", 1, func(s *summary) float64 { return s.FCT.Mean }},
	{"fct_p50_us", "", 1, func(s *summary) float64 { return s.FCT.P50 }},
	{"fct_p99_us", "", 1, func(s *summary) float64 { return s.FCT.P99 }},
	{"fct_p999_us", "", 1, func(s *summary) float64 { return s.FCT.P999 }},
	{"fct_max_us", "", 1, func(s *summary) float64 { return s.FCT.Max }},
	{"slowdown_mean", "slowdown", 1, func(s *summary) float64 { return s.Slowdown.Mean }},
	{"slowdown_p50", "50 %", 1, func(s *summary) float64 { return s.Slowdown.P50 }},
	{"slowdown_p95", "", 1, func(s *summary) float64 { return s.Slowdown.P95 }},
	{"slowdown_p99", "99 %", 1, func(s *summary) float64 { return s.Slowdown.P99 }},
	{"slowdown_p999", "99.9 %", 1, func(s *summary) float64 { return s.Slowdown.P999 }},
	{"lost_packets", "lost", 1, func(s *summary) float64 { return float64(s.lost()) }},
	{"marked_packets", "", 1, func(s *summary) float64 { return float64(s.Marked) }},
	{"retransmitted_packets", "retransmitted", 1, func(s *summary) float64 { return float64(s.Retransmitted) }},
	{"timeouts", "", 1, func(s *summary) float64 { return float64(s.Timeouts) }},
	{"pauses", "pauses", 1, func(s *summary) float64 { return float64(s.Pauses) }},
	{"paused_ps", "", 1, func(s *summary) float64 { return float64(s.Paused) }},
	{"peak_queue_bytes", "queue KB", 1e3, func(s *summary) float64 { return float64(s.Peak) }},
	{"ended_ps", "", 1, func(s *summary) float64 { return float64(s.Ended) }},
}

// collectFrom prints and writes the available results of a sweep.
func (a *app) collectFrom(f *sweep.Folder) error {
	rows, missing, err := readRows(f)
	if err != nil {
		return err
	}
	if err := errors.Join(writeRuns(f, rows), mergeFlows(f, rows)); err != nil {
		return err
	}
	if a.json {
		if err := output.JSON(a.out, map[string]any{"runs": rows, "missing": missing, "refused": append([]string{}, f.Plan.Refused...)}); err != nil {
			return err
		}
	} else if err := a.showGroups(f, rows); err != nil {
		return err
	}
	return incomplete(f, rows, missing)
}

// incomplete returns an error for missing and failed runs.
func incomplete(f *sweep.Folder, rows []row, missing []int) error {
	var errs []error
	if n := len(missing); n > 0 {
		errs = append(errs, fmt.Errorf("%d of %d runs are missing: %s", n, len(f.Plan.Runs), few(missing)))
	}
	var failed []int
	why := ""
	for _, r := range rows {
		if r.Error != "" {
			failed, why = append(failed, r.Run), r.Error
		}
	}
	if len(failed) > 0 {
		errs = append(errs, fmt.Errorf("%d runs failed: %s (the last: %s)", len(failed), few(failed), why))
	}
	return errors.Join(errs...)
}

// few lists some runs.
func few(runs []int) string {
	const most = 10
	s := strings.Trim(fmt.Sprint(runs[:min(len(runs), most)]), "[]")
	if len(runs) > most {
		s += " ..."
	}
	return s
}

func readRows(f *sweep.Folder) (rows []row, missing []int, err error) {
	missing = []int{}
	for i := range f.Plan.Runs {
		n, err := f.Note(i)
		if err != nil {
			return nil, nil, err
		}
		if n == nil {
			missing = append(missing, i)
			continue
		}
		r := row{Note: n}
		b, err := os.ReadFile(filepath.Join(f.Run(i), "summary.json"))
		switch {
		case err == nil:
			r.Result = new(summary)
			if err := json.Unmarshal(b, r.Result); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", f.Run(i), err)
			}
		case !errors.Is(err, os.ErrNotExist) || n.Error == "":
			return nil, nil, err
		}
		rows = append(rows, r)
	}
	return rows, missing, nil
}

// writeRuns writes runs.csv.
func writeRuns(f *sweep.Folder, rows []row) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	head := append([]string{"run"}, f.Plan.Vary...)
	for _, m := range metrics {
		head = append(head, m.name)
	}
	_ = w.Write(append(head, "seconds", "error"))
	for _, r := range rows {
		line := append([]string{fmt.Sprint(r.Run)}, f.Plan.Runs[r.Run]...)
		for _, m := range metrics {
			if r.Result == nil {
				line = append(line, "")
				continue
			}
			line = append(line, fmt.Sprintf("%.10g", m.of(r.Result)))
		}
		_ = w.Write(append(line, fmt.Sprintf("%.3f", r.Seconds), r.Error))
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return sweep.WriteFile(filepath.Join(f.Dir, "runs.csv"), []byte(b.String()))
}

// mergeFlows merges the flows of all runs into one table.
func mergeFlows(f *sweep.Folder, rows []row) error {
	if f.Plan.Format != "csv" {
		return nil
	}
	var b strings.Builder
	for _, r := range rows {
		text, err := os.ReadFile(filepath.Join(f.Run(r.Run), "flows.csv"))
		if errors.Is(err, os.ErrNotExist) {
			continue // no flows
		}
		if err != nil {
			return err
		}
		lines := strings.SplitAfter(strings.TrimRight(string(text), "\n"), "\n")
		if b.Len() == 0 {
			b.WriteString("run," + lines[0])
		}
		for _, l := range lines[1:] {
			fmt.Fprintf(&b, "%d,%s", r.Run, l)
		}
		b.WriteByte('\n')
	}
	return sweep.WriteFile(filepath.Join(f.Dir, "flows.csv"), []byte(b.String()))
}

// showGroups prints a line for each combination of values other than the seed.
func (a *app) showGroups(f *sweep.Folder, rows []row) error {
	keys := slices.DeleteFunc(slices.Clone(f.Plan.Vary), func(k string) bool { return k == "seed" })
	groups := map[string][]row{}
	var order []string
	for _, r := range rows {
		var name []string
		for _, k := range keys {
			name = append(name, r.Set[k])
		}
		key := strings.Join(name, "\t")
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], r)
	}
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	head := append([]string{}, keys...)
	for _, m := range metrics {
		if m.head != "" {
			head = append(head, m.head)
		}
	}
	fmt.Fprintln(w, strings.Join(append(head, "runs"), "\t"))
	for _, key := range order {
		if len(keys) > 0 {
			fmt.Fprint(w, key, "\t")
		}
		group := slices.DeleteFunc(groups[key], func(r row) bool { return r.Result == nil })
		for _, m := range metrics {
			if m.head != "" {
				fmt.Fprintf(w, "%s\t", mean(group, m))
			}
		}
		fmt.Fprintln(w, len(group))
	}
	return w.Flush()
}

// mean formats the mean of a metric.
func mean(group []row, m metric) string {
	if len(group) == 0 {
		return "-"
	}
	sum := 0.0
	for _, r := range group {
		sum += m.of(r.Result)
	}
	v := sum / float64(len(group)) / m.unit
	if v == float64(int64(v)) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
