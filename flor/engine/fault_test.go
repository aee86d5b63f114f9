package engine

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"roced.io/roced/plugin/mono"
)

var (
	seeds = flag.Int("flor.seeds", 8, "how many seeds TestFaults runs for each kind of fault")
	seed  = flag.Uint64("flor.seed", 0, "the one seed that TestFaults runs")
)

var kinds = []struct {
	name string
	rc   bool
	f    faults
}{
	{"clean", false, faults{}},
	{"loss", false, faults{lose: 0.05, ackLose: 0.05}},
	{"heavy loss", false, faults{lose: 0.4, ackLose: 0.4}},
	{"disorder", false, faults{disorder: 0.3}},
	{"duplicates", false, faults{duplicate: 0.3, lose: 0.02}},
	{"delay of seconds", false, faults{stall: 0.03, lose: 0.02}},
	{"failing queue pairs", false, faults{qpFails: 0.02, lose: 0.02}},
	{"deaf queue pairs", false, faults{deaf: 0.5, lose: 0.05}},
	{"everything", false, faults{lose: 0.1, ackLose: 0.1, duplicate: 0.1, disorder: 0.1, stall: 0.02, qpFails: 0.01}},
	{"RC", true, faults{}},
	{"RC, failing queue pairs", true, faults{qpFails: 0.03}},
	{"RC, delay of seconds", true, faults{qpFails: 0.01, stall: 0.01}},
}

// numbers returns first numbers, sometimes shortly before all of them wrap.
func (l *lab) numbers() Numbers {
	if l.rng.IntN(2) == 0 {
		return Numbers{}
	}
	return Numbers{GN: -uint64(l.rng.IntN(100)), RN: -uint32(l.rng.IntN(100)), MID: MaxMessageID - uint32(l.rng.IntN(20))}
}

// size returns the size of a random message.
func (l *lab) size() int {
	switch l.rng.IntN(8) {
	case 0:
		return 0
	case 1, 2, 3:
		return 8 + l.rng.IntN(1000)
	case 4, 5:
		return 8 + l.rng.IntN(32<<10-8)
	case 6:
		return 32<<10 + 1 + l.rng.IntN(100<<10)
	}
	return 32<<10 + 1 + l.rng.IntN(256<<10)
}

// runFaults sends messages in both directions under faults, until both sides close.
func runFaults(t testing.TB, seed uint64, rc bool, f faults) (l *lab, err error) {
	congestion := []string{"swift", "static", "none"}[seed%3]
	cfg := Config{Congestion: congestion, Reorder: 1 + int(seed%2)*2, MaxRTO: 50 * time.Millisecond}
	if f.deaf > 0 {
		cfg.Stuck = 2
	}
	if congestion == "static" {
		cfg.CongestionWith = map[string]float64{"window_bytes": 100 << 10}
	}
	if seed%5 == 0 && !rc {
		cfg.Pool = make([]Buffer, 4)
	}
	l = newLab(t, seed, rc, f, cfg)
	ends := l.connect([2]Numbers{l.numbers(), l.numbers()})
	id := uint64(0)
	for side, n := range l.nodes {
		for range 40 {
			id++
			id, size := id, l.size()
			l.after(l.upTo(20*time.Millisecond), func() {
				if !n.crashed && ends[side].Err() == nil {
					if err := n.send(ends[side], id, size); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
		l.after(l.upTo(10*time.Millisecond), func() { n.noLanding = true })
		l.after(10*time.Millisecond+l.upTo(10*time.Millisecond), func() {
			if n.noLanding = false; !n.crashed {
				ends[side].Resume(l.now)
			}
		})
	}
	crash := seed%7 == 0
	if crash {
		l.after(l.upTo(20*time.Millisecond), func() { l.nodes[1].crashed = true })
	}
	l.run(l.now.Add(100 * time.Second))
	if err := l.check(); err != nil {
		return l, err
	}
	for side, n := range l.nodes {
		if n.crashed {
			continue
		}
		for id, s := range n.sent {
			if s.err != nil && !(crash && errors.Is(s.err, ErrSilent)) {
				return l, fmt.Errorf("side %d: message %d: %w", side, id, s.err)
			}
		}
		ends[side].Close(l.now)
	}
	l.run(mono.Never)
	for _, n := range l.nodes {
		if n.crashed {
			continue
		}
		if err := n.leaks(); err != nil {
			return l, err
		}
	}
	return l, l.check()
}

// TestFaults: every message is delivered exactly once and intact, or its sender gets an error. No byte changes after
// delivery. Bytes in flight never exceed the window. No state remains.
func TestFaults(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			first, n := uint64(1), uint64(*seeds)
			if *seed != 0 {
				first, n = *seed, 1
			}
			for s := first; s < first+n; s++ {
				if _, err := runFaults(t, s, k.rc, k.f); err != nil {
					t.Fatalf("-flor.seed %d: %v", s, err)
				}
			}
		})
	}
}
