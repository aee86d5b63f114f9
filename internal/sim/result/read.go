package result

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"roced.io/roced/internal/sim/engine"
)

// flowColumns are the columns of flows.csv that ReadFlows needs, with the limits of their values.
var flowColumns = [...]struct {
	name        string
	least, most uint64
}{{"src", 0, math.MaxInt32}, {"dst", 0, math.MaxInt32}, {"bytes", 0, math.MaxUint32}, {"start_ps", 0, math.MaxInt64},
	{"fct_ps", 1, math.MaxInt64}, {"ideal_ps", 1, math.MaxInt64}}

// ReadFlows reads flows.csv. Its input is untrusted.
func ReadFlows(r io.Reader) ([]Flow, error) {
	c := csv.NewReader(r)
	c.ReuseRecord = true
	head, err := c.Read()
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	var where [len(flowColumns)]int
	for i, column := range flowColumns {
		if where[i] = slices.Index(head, column.name); where[i] < 0 {
			return nil, fmt.Errorf("line 1: no column %s; expected the table flows of rocesim", column.name)
		}
	}
	var out []Flow
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err // has the line
		}
		var v [len(flowColumns)]uint64
		for i, column := range flowColumns {
			if v[i], err = strconv.ParseUint(row[where[i]], 10, 64); err != nil || v[i] < column.least || v[i] > column.most {
				line, _ := c.FieldPos(where[i])
				return nil, fmt.Errorf("line %d: %s %.40q: must be from %d to %d", line, column.name, row[where[i]], column.least, column.most)
			}
		}
		f := Flow{Src: int(v[0]), Dst: int(v[1]), Bytes: uint32(v[2]), Start: engine.Time(v[3]), FCT: engine.Time(v[4]), Ideal: engine.Time(v[5])}
		f.Slowdown = max(float64(f.FCT)/float64(f.Ideal), 1)
		out = append(out, f)
	}
}
