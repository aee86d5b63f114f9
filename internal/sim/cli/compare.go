package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/papers"
	"roced.io/roced/internal/sim/result"
	"roced.io/roced/internal/sim/scenario"
	"roced.io/roced/internal/sim/sweep"
	"roced.io/roced/qp/profile"
)

// compareOptions are the options of `rocesim compare`.
type compareOptions struct {
	against, seeds, out, svg string
	parallel                 int
	quiet                    bool
}

func (a *app) compare() *cobra.Command {
	var o compareOptions
	c := &cobra.Command{
		Use:   "compare SCENARIO --against A,B,C",
		Short: "Compare a scenario's congestion control with others",
		Long: `Runs a scenario with its own congestion control and with each of the others, with the same
traffic for each seed. It prints means with 95 % intervals over the seeds, and ratios to the
scenario's own control, paired by seed. Only transport.congestion changes; entries of transports
and nics keep theirs. dcqcn gets CNPs every 50us if the scenario sets neither an interval nor echo.

Exit codes: 0, 1 if runs failed, 2 for a wrong command line or scenario. After an interrupt the
same command with --out continues.`,
		Example: `  rocesim compare configs/sim/websearch.yaml --against hpcc,swift,nscc
  rocesim compare configs/sim/websearch.yaml --against dcqcn,'{name: hpcc, eta: 0.99}' --seeds 1..10 --out c --svg pictures
  rocesim compare configs/sim/websearch.yaml --against hpcc --set workload.0.load=0.3 --json`,
		Args: about.Words(1, 1),
		RunE: func(c *cobra.Command, args []string) error { return a.doCompare(c.Context(), args[0], &o) },
	}
	a.changes(c)
	f := c.Flags()
	f.StringVar(&o.against, "against", "", "congestion controls: names, or {name: hpcc, eta: 0.99} with parameters (required)")
	f.StringVar(&o.seeds, "seeds", "1..5", "seed or range of seeds, such as 1..10; one seed has no intervals")
	f.StringVarP(&o.out, "out", "o", "", "keep the runs in this folder, as rocesim sweep does")
	f.StringVar(&o.svg, "svg", "", "draw compare.svg, the slowdown by size, into this folder")
	f.IntVar(&o.parallel, "parallel", runtime.GOMAXPROCS(0), "number of concurrent runs")
	about.Varies(f.Lookup("parallel"), "as many as processors")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not show progress")
	return c
}

// Keys that differ between the runs of a comparison.
const (
	congestionKey = "transport.congestion"
	cnpKey        = "transport.cnp_interval"
)

// control is a congestion control of a comparison, and its results.
type control struct {
	Name    string               `json:"name"`
	Setting string               `json:"congestion"`
	Runs    int                  `json:"runs"`
	Metrics map[string]estimated `json:"metrics"`
	// Ratio is the 99th percentile of the slowdown over that of the first control.
	Ratio  estimated   `json:"slowdown_p99_ratio"`
	BySize []sizeRange `json:"slowdown_p99_by_size"`

	cnp  string
	rows map[string]*summary // by seed
}

// sizeRange is a range of message sizes.
type sizeRange struct {
	From      uint32 `json:"from_bytes"` // exclusive
	To        uint32 `json:"to_bytes"`
	estimated `json:"slowdown_p99"`

	name string
}

// estimated is a mean and its interval, which a single value does not have.
type estimated struct {
	Mean float64  `json:"mean"`
	Lo   *float64 `json:"lo"`
	Hi   *float64 `json:"hi"`
}

func estimate(values []float64, ratio bool) (e estimated) {
	if len(values) == 0 {
		return e
	}
	i := papers.Over(values, ratio)
	if e.Mean = i.Mean; !math.IsNaN(i.Lo) {
		e.Lo, e.Hi = &i.Lo, &i.Hi
	}
	return e
}

// text formats e in units.
func (e *estimated) text(unit float64) string {
	if e.Lo == nil {
		return fmt.Sprintf("%.4g", e.Mean/unit)
	}
	return fmt.Sprintf("%.4g [%.4g, %.4g]", e.Mean/unit, *e.Lo/unit, *e.Hi/unit)
}

func (a *app) doCompare(ctx context.Context, name string, o *compareOptions) error {
	f, err := a.read(name, 0)
	if err != nil {
		return err
	}
	all, err := controls(f, o.against)
	if err != nil {
		return about.Usage(err)
	}
	plan, err := a.comparison(all, o)
	if err != nil {
		return about.Usage(err)
	}
	files, title, err := try(name, plan, a.force)
	if err == nil && len(plan.Refused) > 0 {
		err = errors.New(strings.Join(plan.Refused, "\n"))
	}
	if err != nil {
		return about.Usage(err)
	}
	if err := output.Folders(o.svg); err != nil {
		return about.Usage(err)
	}
	if o.out == "" {
		if o.out, err = os.MkdirTemp("", "rocesim-compare-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.out)
	}
	folder, err := sweep.Create(o.out, plan, files)
	if errors.Is(err, sweep.ErrOther) {
		return about.Usage(err)
	}
	if err != nil {
		return err
	}
	if err := a.work(ctx, folder, sweep.Work{Parallel: o.parallel}, o.quiet); err != nil {
		return err
	}
	return a.showComparison(folder, all, title, o.svg)
}

// controls returns the scenario's own congestion control, then the others.
func controls(f *scenario.File, against string) ([]*control, error) {
	if against == "" {
		return nil, errors.New("--against is missing: name congestion controls, such as --against dcqcn,hpcc")
	}
	others, err := sweep.ParseAxis(congestionKey + "=" + against)
	if err != nil {
		return nil, fmt.Errorf("--against: %w", err)
	}
	t := &f.Transport
	own, err := profile.Resolve(t.Profile, t.Spec)
	if err != nil {
		return nil, f.At("transport.profile", "%v", err)
	}
	all := []*control{{Name: own.Congestion.Name + " (own)", Setting: setting(t.Congestion), cnp: fmt.Sprintf("%gus", t.CNPInterval.Seconds()*1e6)}}
	for _, v := range others.Values {
		c := &control{Name: v, Setting: v, cnp: all[0].cnp}
		if !strings.HasPrefix(v, "{") {
			c.Setting = "{name: " + v + "}"
		}
		if strings.Contains(c.Setting, "name: dcqcn") && t.CNPInterval == 0 && !strings.Contains(c.Setting, "echo:") {
			c.cnp = "50us"
		}
		all = append(all, c)
	}
	return all, nil
}

// setting writes a plug-in as YAML.
func setting(p profile.Part) string {
	var keys []string
	if p.Name != "" {
		keys = append(keys, "name: "+p.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(p.Params)) {
		keys = append(keys, k+": "+strconv.FormatFloat(p.Params[k], 'g', -1, 64))
	}
	return "{" + strings.Join(keys, ", ") + "}"
}

// comparison returns the runs of all controls with all seeds.
func (a *app) comparison(all []*control, o *compareOptions) (*sweep.Plan, error) {
	seeds, err := a.plan(&sweepOptions{seeds: o.seeds, format: noTables})
	if err != nil {
		return nil, err
	}
	last := len(seeds.Vary) - 1
	if last < 0 || seeds.Vary[last] != "seed" {
		return nil, errors.New("--seeds is missing: set a seed or a range, such as 1..5")
	}
	p := &sweep.Plan{Vary: append(slices.Clone(seeds.Vary[:last]), congestionKey, cnpKey, "seed")}
	for _, key := range seeds.Vary[:last] {
		if key == cnpKey || strings.HasPrefix(key, congestionKey) { // in the own control already
			return nil, fmt.Errorf("--set %s: a comparison sets it; write it into the scenario, or into --against", key)
		}
	}
	for _, c := range all {
		for _, run := range seeds.Runs {
			p.Runs = append(p.Runs, append(slices.Clone(run[:last]), c.Setting, c.cnp, run[last]))
		}
	}
	return p, nil
}

// showComparison prints the results of all controls.
func (a *app) showComparison(f *sweep.Folder, all []*control, title, svg string) error {
	rows, missing, err := readRows(f)
	if err != nil {
		return err
	}
	for _, c := range all {
		c.rows = map[string]*summary{}
		for _, r := range rows {
			if r.Set[congestionKey] == c.Setting && r.Result != nil {
				c.rows[r.Set["seed"]] = r.Result
			}
		}
		c.evaluate(all[0])
	}
	if svg != "" {
		if err := os.WriteFile(filepath.Join(svg, "compare.svg"), comparisonChart(title, all), 0o644); err != nil {
			return err
		}
	}
	if a.json {
		err = output.JSON(a.out, map[string]any{"scenario": title, "controls": all})
	} else {
		err = a.comparisonTables(all)
	}
	return errors.Join(err, incomplete(f, rows, missing))
}

// evaluate computes the estimates of c; base is the control for ratios.
func (c *control) evaluate(base *control) {
	seeds := slices.Sorted(maps.Keys(c.rows))
	c.Runs, c.Metrics = len(seeds), map[string]estimated{}
	values := func(of func(*summary) float64) (v []float64) {
		for _, s := range seeds {
			v = append(v, of(c.rows[s]))
		}
		return v
	}
	for _, m := range metrics {
		c.Metrics[m.name] = estimate(values(m.of), false)
	}
	var ratios []float64
	for _, s := range seeds {
		if b := base.rows[s]; b != nil && b.Slowdown.P99 > 0 {
			ratios = append(ratios, c.rows[s].Slowdown.P99/b.Slowdown.P99)
		}
	}
	c.Ratio = estimate(ratios, true)
	ranges := map[uint32][]float64{}
	known := map[uint32]result.Bucket{}
	for _, s := range seeds {
		for _, b := range c.rows[s].BySize {
			ranges[b.To], known[b.To] = append(ranges[b.To], b.Slowdown.P99), b
		}
	}
	for _, to := range slices.Sorted(maps.Keys(ranges)) {
		b := known[to]
		c.BySize = append(c.BySize, sizeRange{From: b.From, To: to, estimated: estimate(ranges[to], false), name: b.Name()})
	}
}

// comparedMetrics are the metrics of the table.
var comparedMetrics = []string{"goodput_bps", "fct_mean_us", "slowdown_mean", "slowdown_p99", "peak_queue_bytes", "lost_packets", "pauses"}

// comparisonTables prints a table of metrics and one of slowdowns by size.
func (a *app) comparisonTables(all []*control) error {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprint(w, "congestion")
	for _, m := range metrics {
		if slices.Contains(comparedMetrics, m.name) {
			fmt.Fprintf(w, "\t%s", m.head)
		}
	}
	fmt.Fprintln(w, "\t99 % to own\truns")
	for _, c := range all {
		fmt.Fprint(w, c.Name)
		for _, m := range metrics {
			if e := c.Metrics[m.name]; slices.Contains(comparedMetrics, m.name) {
				fmt.Fprintf(w, "\t%s", e.text(m.unit))
			}
		}
		fmt.Fprintf(w, "\t%s\t%d\n", c.Ratio.text(1), c.Runs)
	}
	fmt.Fprint(w, "\n99 % slowdown")
	for _, c := range all {
		fmt.Fprintf(w, "\t%s", c.Name)
	}
	fmt.Fprintln(w)
	for _, r := range sizesOf(all) {
		fmt.Fprint(w, r.name)
		for _, c := range all {
			text := "-"
			if at := slices.IndexFunc(c.BySize, func(s sizeRange) bool { return s.To == r.To }); at >= 0 {
				text = c.BySize[at].text(1)
			}
			fmt.Fprintf(w, "\t%s", text)
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range all {
		if u := c.Metrics["unfinished"].Mean; u > 0 {
			fmt.Fprintf(a.out, "%s: %.4g messages of a run are unfinished, and its figures do not count them\n", c.Name, u)
		}
	}
	return nil
}

// sizesOf returns the ranges of sizes that some control has.
func sizesOf(all []*control) (out []sizeRange) {
	for _, c := range all {
		for _, r := range c.BySize {
			if !slices.ContainsFunc(out, func(s sizeRange) bool { return s.To == r.To }) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b sizeRange) int { return int(int64(a.To) - int64(b.To)) })
	return out
}
