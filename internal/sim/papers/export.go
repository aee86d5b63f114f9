package papers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/internal/sim/sweep"
)

// Exported are the files of a row's raw data.
type Exported struct {
	ID    string `json:"id"`
	Dir   string `json:"folder"`
	Files int    `json:"files"` // of values
}

// indexFile lists, for each claim, the files of its runs.
const indexFile = "index.csv"

// export collects the raw data of a row.
type export struct {
	dir   string
	names []string // of files
	index [][]string
}

// Export repeats the runs of a row's claims and writes, for each number and seed, all values from which the number is
// computed: of each flow, connection, call or sample. It writes an index from claims to files, and checksums.
func (w *Work) Export(ctx context.Context, r *Row, dir string) (*Exported, error) {
	x := &export{dir: filepath.Join(dir, r.ID), index: [][]string{{"claim", "says", "series", "point", "seed", "number", "value", "file"}}}
	if err := os.MkdirAll(x.dir, 0o755); err != nil {
		return nil, err
	}
	for _, seed := range w.seeds(r) {
		for _, run := range w.runs(r, seed) {
			if run.Other != "" || len(r.uses(&run)) == 0 {
				continue
			}
			if err := x.run(ctx, r, &run, seed); err != nil {
				return nil, err
			}
		}
	}
	return &Exported{r.ID, x.dir, len(x.names)}, errors.Join(x.table(indexFile, x.index), x.sums())
}

// use is a number that a claim takes from a run.
type use struct {
	claim  int // from 1
	number string
}

// uses returns what claims take from a run.
func (r *Row) uses(run *Run) (list []use) {
	for i := range r.Paper.Claims {
		for _, c := range each(&r.Paper.Claims[i]) {
			if len(c.At) > 0 && run.Point != c.From && !slices.Contains(c.At, run.Point) {
				continue
			}
			if run.Series == c.Of {
				list = append(list, use{i + 1, c.Number})
			}
			if run.Series == c.Over {
				list = append(list, use{i + 1, cmp.Or(c.Base, c.Number)})
			}
		}
	}
	return list
}

// run simulates a run and writes its values.
func (x *export) run(ctx context.Context, r *Row, run *Run, seed int) error {
	m, p, res, err := r.observe(ctx, run, seed, func(float64) {})
	if err != nil {
		return err
	}
	written := map[string]string{}
	for _, u := range r.uses(run) {
		if written[u.number] == "" {
			name := fileName(u.number, run.Key(), seed)
			rows := [][]string{{u.number}}
			for _, v := range p.values(r.number(u.number), res) {
				rows = append(rows, []string{text(v)})
			}
			if err := x.table(name, rows); err != nil {
				return err
			}
			written[u.number] = name
		}
		x.index = append(x.index, []string{strconv.Itoa(u.claim), r.Paper.Claims[u.claim-1].Says, run.Series, run.Point,
			strconv.Itoa(seed), u.number, text(m.Numbers[u.number]), written[u.number]})
	}
	return nil
}

func text(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// fileName names the file of a number; other characters than letters and digits become dashes.
func fileName(number, key string, seed int) string {
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '+' {
			return c
		}
		return '-'
	}, number+"_"+key)
	return fmt.Sprintf("%s_seed%d.csv", plain, seed)
}

// table writes a file.
func (x *export) table(name string, rows [][]string) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	if err := w.WriteAll(rows); err != nil {
		return err
	}
	if slices.Contains(x.names, name) {
		return fmt.Errorf("two runs have the file name %s", name)
	}
	x.names = append(x.names, name)
	return sweep.WriteFile(filepath.Join(x.dir, name), []byte(b.String()))
}

// sums writes the checksums, as sha256sum does.
func (x *export) sums() error {
	var b strings.Builder
	for _, name := range x.names {
		text, err := os.ReadFile(filepath.Join(x.dir, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(text), name)
	}
	return sweep.WriteFile(filepath.Join(x.dir, sumsFile), []byte(b.String()))
}
