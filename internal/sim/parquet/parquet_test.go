package parquet_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	format "github.com/parquet-go/parquet-go"

	"roced.io/roced/internal/sim/parquet"
	"roced.io/roced/internal/sim/result"
)

// TestWrite: reading returns the written values, with the columns of the CSV files. Without rows there is no file.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	r := &result.Result{Samples: []result.Sample{{At: 10, Queued: 7, Goodput: 1e9}}, Ports: []result.Port{{Link: "h0-s0", Paused: 3}}}
	for i := range 5000 {
		r.Flows = append(r.Flows, result.Flow{ID: i, Src: i % 7, Bytes: uint32(i), FCT: 1 << 40, Slowdown: 1.5})
	}
	if err := parquet.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	flows, err := format.ReadFile[result.Flow](filepath.Join(dir, "flows.parquet"))
	if err != nil || !cmp.Equal(flows, r.Flows) {
		t.Errorf("%d flows, %v", len(flows), err)
	}
	ports, err := format.ReadFile[result.Port](filepath.Join(dir, "ports.parquet"))
	if err != nil || !cmp.Equal(ports, r.Ports) {
		t.Errorf("%v, %v", ports, err)
	}
	samples, err := format.ReadFile[result.Sample](filepath.Join(dir, "samples.parquet"))
	if err != nil || !cmp.Equal(samples, r.Samples) {
		t.Errorf("%v, %v", samples, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "queues.parquet")); !os.IsNotExist(err) {
		t.Errorf("a table without rows: %v", err)
	}
	f, err := os.Open(filepath.Join(dir, "flows.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := format.OpenFile(f, s.Size())
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range file.Root().Columns() {
		columns = append(columns, c.Name()+" "+c.Type().String())
	}
	want := []string{"id INT(64,true)", "src INT(64,true)", "dst INT(64,true)", "bytes INT(32,false)", "start_ps INT(64,true)", "fct_ps INT(64,true)", "ideal_ps INT(64,true)", "slowdown DOUBLE"}
	if d := cmp.Diff(want, columns); d != "" {
		t.Error(d)
	}
}
