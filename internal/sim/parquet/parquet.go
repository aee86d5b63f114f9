// Package parquet writes the tables of a simulation's result as Parquet, compressed by Snappy. It is a separate
// package so that users of package sim do not need its dependencies.
package parquet

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"roced.io/roced/internal/sim/result"
)

// Write writes flows.parquet, ports.parquet, samples.parquet, queues.parquet and collectives.parquet into a folder, which
// it creates. It leaves out empty tables. The columns are those of the CSV files; times are whole picoseconds.
func Write(dir string, r *result.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(Table(dir, "flows", r.Flows), Table(dir, "ports", r.Ports),
		Table(dir, "samples", r.Samples), Table(dir, "queues", r.Queues),
		Table(dir, "collectives", r.Collectives))
}

// Table writes rows, whose tags name the columns, to dir/name.parquet. It writes nothing without rows.
func Table[T any](dir, name string, rows []T) error {
	if len(rows) == 0 {
		return nil
	}
	f, err := os.Create(filepath.Join(dir, name+".parquet"))
	if err != nil {
		return err
	}
	w := parquet.NewGenericWriter[T](f, parquet.Compression(&parquet.Snappy))
	_, err = w.Write(rows)
	return errors.Join(err, w.Close(), f.Close())
}

// runFlow is a flow of one of several runs.
type runFlow struct {
	Run int `parquet:"run"`
	result.Flow
}

// MergeFlows merges the flows.parquet of runs into one in dir, with the run in the first column. where returns the
// folder of a run. Runs without the file have no flows.
func MergeFlows(dir string, runs []int, where func(run int) string) error {
	f, err := os.CreateTemp(dir, ".flows-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := parquet.NewGenericWriter[runFlow](f, parquet.Compression(&parquet.Snappy))
	for _, run := range runs {
		flows, err := parquet.ReadFile[result.Flow](filepath.Join(where(run), "flows.parquet"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return errors.Join(err, f.Close())
		}
		rows := make([]runFlow, len(flows))
		for i := range flows {
			rows[i] = runFlow{run, flows[i]}
		}
		if _, err := w.Write(rows); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := errors.Join(w.Close(), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, "flows.parquet"))
}
