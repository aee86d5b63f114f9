package simtest

import (
	"strings"
	"testing"
	"time"
)

func TestIncast(t *testing.T) {
	plain, err := Run(Incast{Senders: 4, Bytes: 100_000, Buffer: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	if len(plain.Flows) != 4 || plain.Dropped == 0 || plain.Retransmitted == 0 || plain.Marked != 0 || plain.LongestQueue > 100_000 {
		t.Errorf("%+v", plain)
	}
	if ideal := 4 * 8 * time.Microsecond; plain.Time < ideal || plain.Flows[3].Time < ideal {
		t.Errorf("%+v is less than %v", plain, ideal)
	}
	marked, err := Run(Incast{Senders: 4, Bytes: 1_000_000, MarkMin: 20_000, MarkMax: 50_000,
		Congestion: Module{Name: "dcqcn"}})
	if err != nil {
		t.Fatal(err)
	}
	if marked.Marked == 0 || marked.Dropped != 0 {
		t.Errorf("%+v", marked)
	}
}

func TestErrors(t *testing.T) {
	for want, c := range map[string]Incast{
		`no congestion control "mine"`: {Congestion: Module{Name: "mine"}},
		`"irm"`:                        {Profile: "irm"},
		`has no parameter "bdp"`:       {Recovery: Module{Name: "irn", Params: map[string]float64{"bdp": 1}}},
		"must be positive":             {Senders: -1},
	} {
		if _, err := Run(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
