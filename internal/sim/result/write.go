package result

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"roced.io/roced/internal/base/output"
)

// Summary is a Result with statistics of its messages.
type Summary struct {
	*Result
	Messages int          `json:"messages"`
	Goodput  float64      `json:"goodput_bps"`
	Jain     float64      `json:"jain"`
	FCT      Distribution `json:"fct_us"`
	Slowdown Distribution `json:"slowdown"`
	BySize   []Bucket     `json:"by_size"`
}

// Summary returns a summary of r.
func (r *Result) Summary() Summary {
	all := r.All()
	return Summary{Result: r, Messages: len(r.Flows), Goodput: r.Goodput(), Jain: r.Jain(), FCT: all.FCT, Slowdown: all.Slowdown, BySize: r.Buckets()}
}

// WriteJSON writes the summary.
func (r *Result) WriteJSON(w io.Writer) error {
	return output.JSON(w, r.Summary())
}

// WriteText writes the summary as text.
func (r *Result) WriteText(w io.Writer) {
	fmt.Fprintf(w, "%s, transport %s, seed %d: %.3f ms simulated, %d link transmissions\n",
		r.Name, r.Profile, r.Seed, r.Ended.Seconds()*1e3, r.Transmissions)
	fmt.Fprintf(w, "%d messages done, %d unfinished, %d failed; goodput %.2f Gb/s, Jain's index %.3f\n",
		len(r.Flows), r.Unfinished, r.Failed, r.Goodput()/1e9, r.Jain())
	fmt.Fprintf(w, "packets: %d marked, %d retransmitted after NAKs and %d timeouts, %d needlessly", r.Marked, r.Retransmitted, r.Timeouts, r.Duplicates)
	for _, why := range sortedKeys(r.Drops) {
		fmt.Fprintf(w, ", %d lost: %s", r.Drops[why], why)
	}
	fmt.Fprintf(w, "\nqueues: longest %d KB; PFC: %d pauses, links paused for %.3f ms in total\n", r.Peak/1000, r.Pauses, r.Paused.Seconds()*1e3)
	if d := r.Deadlock; d != nil {
		fmt.Fprintf(w, "PFC deadlock of class %d since %.3f ms, each link waits for the next: %s, %s\n", d.Class, d.Since.Seconds()*1e3, strings.Join(d.Links, ", "), d.Links[0])
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "%-22s %8s %10s  %s\n", "bytes", "messages", "mean FCT", "slowdown: mean      50 %      95 %      99 %    99.9 %")
	row := func(name string, b Bucket) {
		d := b.Slowdown
		fmt.Fprintf(w, "%-22s %8d %7.1f us  %14.2f %9.2f %9.2f %9.2f %9.2f\n", name, d.Count, b.FCT.Mean, d.Mean, d.P50, d.P95, d.P99, d.P999)
	}
	for _, b := range r.Buckets() {
		row(b.Name(), b)
	}
	row("all", r.All())
	for _, c := range r.Classes {
		fmt.Fprintf(w, "class %d: %d messages, mean FCT %.1f us, slowdown %.2f; %d packets lost, %d pauses\n", c.Class, c.Messages, c.FCT.Mean, c.Slowdown.Mean, c.Lost, c.Pauses)
	}
	r.writeCollectives(w)
	r.Inside.write(w)
	r.writeCPU(w)
}

// writeCollectives writes a line for each collective.
func (r *Result) writeCollectives(w io.Writer) {
	for i, c := range r.Collectives {
		if i > 0 && r.Collectives[i-1].Job == c.Job {
			continue
		}
		var took, bus []float64
		for _, x := range r.Collectives {
			if x.Job == c.Job {
				took, bus = append(took, x.Took.Seconds()*1e6), append(bus, x.Bus/1e9)
			}
		}
		fmt.Fprintf(w, "%s of %d ranks, %d bytes: %d done, mean %.1f us, bus bandwidth %.2f Gb/s\n",
			c.Workload, c.Ranks, c.Bytes, len(took), Describe(took).Mean, Describe(bus).Mean)
	}
}

// write writes the state of transports, if measured.
func (i *Inside) write(w io.Writer) {
	if i == nil {
		return
	}
	fmt.Fprintf(w, "\n%-22s %10s  %9s %9s %9s %9s %9s\n", "inside", "", "50 %", "95 %", "99 %", "99.9 %", "most")
	row := func(name, unit string, d Distribution) {
		fmt.Fprintf(w, "%-22s %10s  %9.4g %9.4g %9.4g %9.4g %9.4g\n", name, unit, d.P50, d.P95, d.P99, d.P999, d.Max)
	}
	row("out-of-order degree", "packets", i.Degree)
	row("measured RTT", "us", i.RTT)
	row("RTT error", "us", i.RTTError)
	fmt.Fprintf(w, "%.2f %% of the payload arrived ahead of a gap; state of a connection: at most %d bytes, mean %.1f; of a host at most %d\n",
		100*i.Ahead, i.StateMost, i.StateMean, i.HostStateMost)
}

// writeCPU writes the CPU time of each part.
func (r *Result) writeCPU(w io.Writer) {
	sum := 0.0
	for _, s := range r.CPU {
		sum += s.Time.Seconds()
	}
	for i, s := range r.CPU {
		if i == 0 {
			fmt.Fprintf(w, "\n%-22s %10s\n", "part", "CPU")
		}
		fmt.Fprintf(w, "%-22s %8.2f s %5.1f %%\n", s.Name, s.Time.Seconds(), 100*s.Time.Seconds()/max(sum, 1e-9))
	}
}

// Name returns the range of sizes as text.
func (b *Bucket) Name() string {
	if b.To == 1<<32-1 {
		return "more than " + short(b.From)
	}
	return "up to " + short(b.To)
}

// short formats a number of bytes.
func short(n uint32) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%g MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%g KB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}

// WriteCSV writes flows.csv, ports.csv, samples.csv, queues.csv and collectives.csv into a folder, which it creates. It leaves out
// empty tables.
func (r *Result) WriteCSV(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(writeCSV(dir, "flows", r.Flows), writeCSV(dir, "ports", r.Ports),
		writeCSV(dir, "samples", r.Samples), writeCSV(dir, "queues", r.Queues),
		writeCSV(dir, "collectives", r.Collectives))
}

// writeCSV writes a table whose columns are the JSON names of T.
func writeCSV[T any](dir, name string, rows []T) error {
	if len(rows) == 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, name+".csv"))
	if err != nil {
		return err
	}
	w := csv.NewWriter(f)
	var columns []int
	var row []string
	for i, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if name := f.Tag.Get("json"); name != "-" {
			columns, row = append(columns, i), append(row, name)
		}
	}
	_ = w.Write(row) // w.Error returns the first error
	for k := range rows {
		v := reflect.ValueOf(&rows[k]).Elem()
		for i, column := range columns {
			row[i] = cell(v.Field(column))
		}
		_ = w.Write(row)
	}
	w.Flush()
	return errors.Join(w.Error(), f.Close())
}

// cell formats a value; times are picoseconds without a unit.
func cell(v reflect.Value) string {
	if v.CanInt() {
		return strconv.FormatInt(v.Int(), 10)
	}
	return fmt.Sprint(v.Interface())
}
