package papers

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// run simulates the first run of a row.
func run(t *testing.T, text string) (*Row, *Found) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	rows, err := Load(filepath.Dir(name))
	if err != nil {
		t.Fatal(err)
	}
	f := &Found{Runs: map[string][]Measured{}}
	for _, x := range rows[0].Runs(true) {
		m, err := rows[0].simulate(context.Background(), &x, 1, func(float64) {})
		if err != nil {
			t.Fatal(err)
		}
		f.Runs[x.Key()] = append(f.Runs[x.Key()], *m)
	}
	return rows[0], f
}

// TestReceived: rates of connections and of hosts can be those of some servers. A host without payload has rate 0.
func TestReceived(t *testing.T) {
	text := strings.NewReplacer("hosts: 2,", "hosts: 4,", "profile: irn}", "profile: irn, connections: persistent}",
		"workload: [{kind: incast, to: 1, senders: 1, size: 100KB}]",
		"stop: 2ms\nworkload: [{kind: stream, from: 0, to: 1, size: 10KB, qps: 2}, {kind: stream, from: 2, to: 1, size: 10KB}, {kind: stream, from: 1, to: 3, size: 10KB, until: 1ms}]",
		"set: [workload.0.size=2MB]", "set: []", "set: [workload.0.size=1MB]", "set: []",
		"{name: placed, of: total}, ", "{name: target, of: received, take: max, servers: [1, 1], begin: 500us, end: 1ms}, {name: late, of: received, take: min, begin: 1500us}, "+
			"{name: least, of: placed, take: min, servers: [1, 1], begin: 500us, end: 1ms}, {name: other, of: received, take: max, servers: [3, 3], begin: 500us, end: 1ms}, "+
			"{name: silent, of: received, take: max, servers: [3, 3], begin: 1500us}, ").Replace(two)
	_, f := run(t, text)
	m := f.Runs["long"][0].Numbers
	if m["target"] < 30 || m["target"] > 40 || m["other"] < 15 || m["least"] < 5 || m["least"] > 15 {
		t.Errorf("%v", m)
	}
	if late, ok := m["late"]; !ok || late != 0 || m["silent"] != 0 {
		t.Errorf("host 3 receives after its stream: %v", m)
	}
}

// TestBus: the bus bandwidth is that of nccl-tests.
func TestBus(t *testing.T) {
	text := strings.NewReplacer("hosts: 2,", "hosts: 4,", "{kind: incast, to: 1, senders: 1, size: 100KB}", "{kind: ring-all-reduce, size: 4MB, rounds: 2}",
		"{name: placed, of: total}", "{name: took, of: collective, take: max}, {name: bus, of: bus, take: min}").Replace(two)
	_, f := run(t, text)
	for series, size := range map[string]float64{"long": 2e6, "short": 1e6} {
		m := f.Runs[series][0].Numbers
		if want := size * 2 * 3 / 4 * 8 / m["took"] / 1e3; math.Abs(m["bus"]-want) > 0.001*want || want < 30 || want > 40 {
			t.Errorf("%s: %v, want %v", series, m, want)
		}
	}
}

// TestFastByValue: a fast form is judged by its values without intervals.
func TestFastByValue(t *testing.T) {
	for _, c := range []struct {
		old, with string
		fails     bool
	}{
		{"", "", false},
		{"paper: 2,", "order: more,", false},
		{"paper: 2,", "order: less,", true},
		{"paper: 2,", "order: same,", false},
		{"number: fct, of: long, over: short, paper: 2", "number: none, of: long, over: short, order: same", true},
		{"paper: 2,", "bounds: [1.5, 2.5],", false},
		{"paper: 2,", "bounds: [3, 4],", false}, // the direction is right
		{"paper: 2,", "bounds: [0, 0.9],", true},
		{"open:", "fast: {expect: reproduced}\n  open:", false},
		{"paper: 2, quote: twice}]\n", "paper: 3, quote: twice}]\n  fast: {expect: reproduced}\n", true},
		{"paper: 2,", "paper: 0.5,", true},
		{"number: fct, of: long", "number: none, of: long", true},
		{"paper: 2, quote: twice}]\n", "bounds: [0, 0.9], quote: twice}]\n  fast: {limits: [{says: ratio, bounds: [1.5, 2.5], why: so}]}\n", false},
		{"paper: 2, quote: twice}]\n", "paper: 2, quote: twice}]\n  fast: {limits: [{says: ratio, bounds: [3, .inf], why: so}]}\n", true},
	} {
		text := strings.Replace(two, "take: max}", "take: max}, {name: none, of: query, take: max, bytes: 5}", 1)
		r, f := run(t, strings.Replace(text, c.old, c.with, 1))
		if err := r.Unexpected(f); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.with, err)
		}
	}
}
