package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"roced.io/roced/internal/base/about"
	"roced.io/roced/internal/base/bounded"
	"roced.io/roced/internal/base/output"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/ns3"
	"roced.io/roced/internal/sim/result"
)

// compared compares the flows that two results have in common.
type compared struct {
	Matched int            `json:"matched"`
	BySize  []comparedSize `json:"by_size"`
	All     comparedSize   `json:"all"`
	OnlyA   []flowName     `json:"only_a"`
	OnlyB   []flowName     `json:"only_b"`
}

// comparedSize compares the flows of a range of sizes.
type comparedSize struct {
	To       uint32          `json:"to_bytes"`
	Flows    int             `json:"flows"`
	FCT      map[string]both `json:"fct_us"`
	Slowdown map[string]both `json:"slowdown"`

	name string
}

// both has a number of two results.
type both struct {
	A     float64 `json:"a"`
	B     float64 `json:"b"`
	Ratio float64 `json:"ratio"` // of B to A
}

// flowName identifies a flow. Start is in nanoseconds.
type flowName struct {
	Src   int    `json:"src"`
	Dst   int    `json:"dst"`
	Bytes uint32 `json:"bytes"`
	Start int64  `json:"start_ns"`
}

// statistics are the compared numbers of a distribution.
var statistics = []struct {
	name string
	of   func(d *result.Distribution) float64
}{
	{"mean", func(d *result.Distribution) float64 { return d.Mean }},
	{"p50", func(d *result.Distribution) float64 { return d.P50 }},
	{"p95", func(d *result.Distribution) float64 { return d.P95 }},
	{"p99", func(d *result.Distribution) float64 { return d.P99 }},
}

// hasFlows reports whether a file has flows, in the format of a simulator or as a table.
func hasFlows(name string) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 64)
	n, err := f.Read(head)
	head = bytes.TrimLeft(head[:n], " \t\r\n")
	return err == nil && len(head) > 0 && head[0] != '{'
}

// readFlows reads the flows of a file or of the folder of a result.
func readFlows(name string) ([]result.Flow, error) {
	if s, err := os.Stat(name); err == nil && s.IsDir() {
		flows, err := readFlows(filepath.Join(name, fctFile))
		if errors.Is(err, fs.ErrNotExist) {
			flows, err = readFlows(filepath.Join(name, "flows.csv"))
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: neither %s nor flows.csv", name, fctFile)
		}
		return flows, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReader(bounded.Reader(f, bounded.Data))
	head, _ := r.Peek(3) // the readers report errors
	var flows []result.Flow
	if string(head) == "id," {
		flows, err = result.ReadFlows(r)
	} else {
		var lines []ns3.FCT
		lines, err = ns3.ReadFCT(r)
		for i := range lines {
			flows = append(flows, lines[i].Flow())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return flows, nil
}

// sameStart is the largest difference of the starts of a flow in two results: ns-3 rounds times to nanoseconds.
const sameStart = engine.Nanosecond

// match returns the flows with the same hosts, sizes and starts in order, and the names of the others.
func match(a, b []result.Flow) (x, y []result.Flow, onlyA, onlyB []flowName) {
	order := func(p, q result.Flow) int {
		return cmp.Or(cmp.Compare(p.Src, q.Src), cmp.Compare(p.Dst, q.Dst), cmp.Compare(p.Bytes, q.Bytes), cmp.Compare(p.Start, q.Start))
	}
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	onlyA, onlyB = []flowName{}, []flowName{}
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0:
			a, onlyA = a[1:], append(onlyA, nameOf(&a[0]))
		case len(a) == 0:
			b, onlyB = b[1:], append(onlyB, nameOf(&b[0]))
		case a[0].Src == b[0].Src && a[0].Dst == b[0].Dst && a[0].Bytes == b[0].Bytes &&
			max(a[0].Start, b[0].Start)-min(a[0].Start, b[0].Start) <= sameStart:
			x, y, a, b = append(x, a[0]), append(y, b[0]), a[1:], b[1:]
		case order(a[0], b[0]) < 0:
			a, onlyA = a[1:], append(onlyA, nameOf(&a[0]))
		default:
			b, onlyB = b[1:], append(onlyB, nameOf(&b[0]))
		}
	}
	return x, y, onlyA, onlyB
}

func nameOf(f *result.Flow) flowName {
	return flowName{f.Src, f.Dst, f.Bytes, int64(f.Start / engine.Nanosecond)}
}

// diffFlows compares the flows of two results.
func (a *app) diffFlows(nameA, nameB string, o *diffOptions) error {
	if o.only != "" {
		return about.Usage(errors.New("--only: flows have no other numbers; remove it"))
	}
	left, err := readFlows(nameA)
	if err != nil {
		return about.Usage(err)
	}
	right, err := readFlows(nameB)
	if err != nil {
		return about.Usage(err)
	}
	x, y, onlyA, onlyB := match(left, right)
	if len(x) == 0 {
		return about.Usage(fmt.Errorf("%s and %s have no flow in common: %d and %d flows", nameA, nameB, len(left), len(right)))
	}
	c := compared{Matched: len(x), OnlyA: onlyA, OnlyB: onlyB}
	p, q := &result.Result{Flows: x}, &result.Result{Flows: y}
	others := q.Buckets()
	for i, bucket := range p.Buckets() {
		c.BySize = append(c.BySize, compareSize(bucket, others[i]))
	}
	c.All = compareSize(p.All(), q.All())
	c.All.name = "all"
	if a.json {
		err = output.JSON(a.out, &c)
	} else {
		err = a.showFlows(&c)
	}
	if err == nil && o.within >= 0 && c.differ(o.within) {
		err = errDiffer
	}
	return err
}

// compareSize compares two buckets with the same flows.
func compareSize(p, q result.Bucket) comparedSize {
	c := comparedSize{To: p.To, Flows: p.FCT.Count, FCT: map[string]both{}, Slowdown: map[string]both{}, name: p.Name()}
	for _, s := range statistics {
		c.FCT[s.name], c.Slowdown[s.name] = ratio(s.of(&p.FCT), s.of(&q.FCT)), ratio(s.of(&p.Slowdown), s.of(&q.Slowdown))
	}
	return c
}

// ratio compares two positive numbers.
func ratio(a, b float64) both { return both{a, b, b / a} }

// differ reports whether a flow is in one result only, or a number differs by more than a percentage.
func (c *compared) differ(percent float64) bool {
	for _, size := range append(slices.Clone(c.BySize), c.All) {
		for _, s := range statistics {
			for _, n := range [...]both{size.FCT[s.name], size.Slowdown[s.name]} {
				if math.Abs(n.B-n.A) > n.A*percent/100 {
					return true
				}
			}
		}
	}
	return len(c.OnlyA)+len(c.OnlyB) > 0
}

func (a *app) showFlows(c *compared) error {
	w := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "bytes\tflows\t\tFCT us: A\tB\tB/A\tslowdown: A\tB\tB/A")
	for _, size := range append(slices.Clone(c.BySize), c.All) {
		for i, s := range statistics {
			name, flows := "", ""
			if i == 0 {
				name, flows = size.name, fmt.Sprint(size.Flows)
			}
			f, d := size.FCT[s.name], size.Slowdown[s.name]
			fmt.Fprintf(w, "%s\t%s\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\n", name, flows, s.name, f.A, f.B, f.Ratio, d.A, d.B, d.Ratio)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(a.out, "%d flows in both results\n", c.Matched)
	a.showUnmatched("A", c.OnlyA)
	a.showUnmatched("B", c.OnlyB)
	return nil
}

// showUnmatched shows some of the flows of one result only.
func (a *app) showUnmatched(of string, flows []flowName) {
	const most = 5
	if len(flows) > 0 {
		fmt.Fprintf(a.out, "flows only in %s: %d, such as\n", of, len(flows))
	}
	for _, f := range flows[:min(len(flows), most)] {
		fmt.Fprintf(a.out, "  %d to %d, %d bytes at %d ns\n", f.Src, f.Dst, f.Bytes, f.Start)
	}
}
