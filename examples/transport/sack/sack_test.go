package sack_test

import (
	"os"
	"testing"

	"example.org/sack/sack"

	"roced.io/roced/entry/simtest"
)

func TestMain(m *testing.M) {
	sack.Register()
	os.Exit(m.Run())
}

// TestIncast: with a buffer for an eighth of the data, messages complete, and the
// transport retransmits little more than the switch drops.
func TestIncast(t *testing.T) {
	r, err := simtest.Run(simtest.Incast{Profile: sack.Name, Buffer: 300_000})
	if err != nil {
		t.Fatal(err)
	}
	if r.Dropped == 0 || r.Retransmitted < r.Dropped || r.Retransmitted > r.Dropped*11/10 {
		t.Errorf("%d dropped, %d retransmitted", r.Dropped, r.Retransmitted)
	}
	t.Logf("%v, %d dropped, %d retransmitted", r.Time, r.Dropped, r.Retransmitted)
}
