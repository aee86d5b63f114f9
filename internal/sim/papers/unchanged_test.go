package papers

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write testdata/unchanged.json")

// TestUnchanged: the fast forms of two old rows have the same results, to the bit, as when the file was written. A change of
// the transports or the simulator may change them on purpose: read the difference.
func TestUnchanged(t *testing.T) {
	if testing.Short() {
		t.Skip("make check runs it")
	}
	const file = "testdata/unchanged.json"
	type golden struct {
		Numbers       map[string]float64 `json:"numbers"`
		Transmissions uint64             `json:"link_transmissions"`
	}
	got := map[string][]golden{}
	rows, err := Load("../../../configs/sim/papers")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !slices.Contains([]string{"irn-7", "melo-4"}, r.ID) {
			continue
		}
		for _, x := range r.Runs(true) {
			m, err := r.simulate(context.Background(), &x, 1, func(float64) {})
			if err != nil {
				t.Fatal(err)
			}
			got[r.ID] = append(got[r.ID], golden{m.Numbers, m.Transmissions})
		}
	}
	text, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *rewrite {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != string(text) {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
}
