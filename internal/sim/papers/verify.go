package papers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Verified is the comparison of a row's stored runs with repeated ones.
type Verified struct {
	ID      string   `json:"id"`
	Form    string   `json:"form"`
	Runs    int      `json:"runs"`    // compared
	Differs []string `json:"differs"` // runs with another value
}

// Verify repeats the runs of a row's form and compares the bytes of their numbers with those of the record.
func (w *Work) Verify(ctx context.Context, r *Row, rec *Record) (*Verified, error) {
	stored, form := rec.Full, "full"
	if w.Fast {
		stored, form = rec.Fast, "fast"
	}
	if stored == nil {
		return nil, fmt.Errorf("%s: no %s form is stored", r.ID, form)
	}
	if why := r.unknown(stored, form); why != "" {
		return nil, fmt.Errorf("%s: %s form: %s", r.ID, form, why)
	}
	w.First, w.Seeds = max(stored.First, 1), stored.most()
	if err := w.Run(ctx, []*Row{r}); err != nil {
		return nil, err
	}
	f, err := w.Collect(r)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("%s: a run is missing", r.ID)
	}
	return compare(r.ID, form, stored, f)
}

// compare lists the runs whose numbers differ.
func compare(id, form string, stored, f *Found) (*Verified, error) {
	v := &Verified{ID: id, Form: form, Differs: []string{}}
	for _, key := range slices.Sorted(maps.Keys(stored.Runs)) {
		for i := range stored.Runs[key] {
			v.Runs++
			a, err := json.Marshal(values(stored.Runs[key], i))
			if err != nil {
				return nil, err
			}
			b, err := json.Marshal(values(f.Runs[key], i))
			if err != nil {
				return nil, err
			}
			if string(a) != string(b) {
				v.Differs = append(v.Differs, fmt.Sprintf("%s, seed %d: %s, stored %s", key, max(stored.First, 1)+i, b, a))
			}
		}
	}
	return v, nil
}

// values are what a run measured, without its duration; nil if there is none.
func values(ms []Measured, i int) any {
	if i >= len(ms) {
		return nil
	}
	return []any{ms[i].Numbers, ms[i].Transmissions, ms[i].Error}
}
