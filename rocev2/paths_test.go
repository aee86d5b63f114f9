package rocev2_test

import (
	"testing"

	"roced.io/roced/path"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/nictest"
)

// seeded is a path selection that records its seeds.
type seeded struct {
	path.Single
	seeds *[]uint64
}

func (s *seeded) Reset(start path.Start) { *s.seeds = append(*s.seeds, start.Seed) }

// TestPathSeeds: each queue pair has its own random paths, even if a queue pair of another NIC has the same number
// and PSN. They are the same in each run.
func TestPathSeeds(t *testing.T) {
	run := func(seed uint64) (seeds []uint64) {
		p := nictest.New(t, nictest.Options{Seed: seed, Config: func(c *rocev2.Config) {
			c.NewProfile = func(name string) (qp.Profile, error) {
				f, err := rocev2.NewProfile(name)
				f.Paths = &seeded{seeds: &seeds}
				return f, err
			}
		}})
		for range 3 {
			p.RC()
		}
		return seeds
	}
	first, again, other := run(1), run(1), run(2)
	known := map[uint64]bool{}
	for i, s := range first {
		if s != again[i] {
			t.Errorf("seed %d is %x, then %x", i, s, again[i])
		}
	}
	for _, s := range append(first, other...) {
		if known[s] || s < 1<<48 { // QPN and PSN have 48 bits
			t.Errorf("seed %x", s)
		}
		known[s] = true
	}
	if len(known) != 12 {
		t.Errorf("%d seeds", len(known))
	}
}
