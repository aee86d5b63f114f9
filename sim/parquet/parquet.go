// Package parquet writes the tables of a simulation's result as Parquet, compressed by Snappy. It is
// by itself so that who uses package sim as a library does without what it needs.
package parquet

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"

	"roced/sim/result"
)

// Write writes flows.parquet, ports.parquet, samples.parquet and queues.parquet, as far as there is
// something in them, into a folder, which it makes. Their columns are those of the CSV files; times
// are whole picoseconds.
func Write(dir string, r *result.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(Table(dir, "flows", r.Flows), Table(dir, "ports", r.Ports),
		Table(dir, "samples", r.Samples), Table(dir, "queues", r.Queues))
}

// Table writes rows, whose tags name the columns, to dir/name.parquet, unless there are none.
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
