package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"roced.io/roced/plugin/mono"
)

func chunker(t testing.TB, name string, p map[string]float64) Chunker {
	t.Helper()
	c, err := newChunker(name, p, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAlgorithm1 follows the paper's Algorithm 1 line by line, with numbers that are easy to verify by hand. The
// long-term average is constant.
func TestAlgorithm1(t *testing.T) {
	p := map[string]float64{"alpha_short": 1, "alpha_long": 1e-6, "max_bytes": 64 << 10, "bdp_bytes": 20 << 10}
	c := chunker(t, "rtt-uc", p)
	const us = time.Microsecond
	if got := c.Size(1 << 30); got != 20<<10 {
		t.Errorf("it begins with %d, want the BDP", got)
	}
	if got := c.Size(3000); got != 2<<10 {
		t.Errorf("of 3000 bytes %d, want a multiple of the unit", got)
	}
	for _, s := range []struct {
		rtt   time.Duration
		acwnd uint64
		want  uint32
	}{
		{100 * us, 1 << 30, 64 << 10}, // beta_min: the maximum
		{50 * us, 1 << 30, 64 << 10},
		{150 * us, 1 << 30, 32 << 10}, // half of the span
		{175 * us, 1 << 30, 16 << 10},
		{200 * us, 1 << 30, 1 << 10}, // beta_max: one unit
		{500 * us, 1 << 30, 1 << 10},
		{100 * us, 10<<10 + 1, 10 << 10}, // the window is smaller
		{100 * us, 5, 1 << 10},           // the window cannot deadlock
	} {
		c.OnRTT(s.rtt)
		if got := c.Size(s.acwnd); got/1024 != s.want/1024 && got != s.want-1024 { // the average is rounded
			t.Errorf("after %v, of %d: %d, want %d", s.rtt, s.acwnd, got, s.want)
		}
	}
}

// TestChunkingAfterLoss: under RC chunks shrink to one unit at once; under UC only the window limits them.
func TestChunkingAfterLoss(t *testing.T) {
	for name, want := range map[string]uint32{"rtt-rc": 1 << 10, "rtt-uc": 64 << 10} {
		c := chunker(t, name, map[string]float64{"alpha_long": 0.25})
		c.OnRTT(time.Millisecond)
		if c.OnLoss(); c.Size(1<<30) != want {
			t.Errorf("%s: %d after a loss, want %d", name, c.Size(1<<30), want)
		}
		for range 4 {
			c.OnRTT(time.Millisecond)
		}
		if c.Size(1<<30) != 64<<10 {
			t.Errorf("%s: %d after four round trips", name, c.Size(1<<30))
		}
	}
	if c := chunker(t, "none", nil); c.Size(0) != 1<<20 {
		t.Errorf("whole messages are cut to %d", c.Size(0))
	}
	if _, err := newChunker("best", nil, 1<<10); err == nil {
		t.Error("an unknown algorithm")
	}
	if _, err := newChunker("rtt-uc", map[string]float64{"beta": 1}, 1<<10); err == nil {
		t.Error("an unknown parameter")
	}
}

// TestChunkSizes: for any round trips, chunks are multiples of the unit, between one unit and the maximum. They fit the
// window if it holds a unit.
func TestChunkSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := newChunker(rapid.SampledFrom([]string{"rtt-uc", "rtt-rc"}).Draw(t, "name"), map[string]float64{
			"alpha_short": rapid.Float64Range(1e-6, 1).Draw(t, "s"), "alpha_long": rapid.Float64Range(1e-6, 1).Draw(t, "l"),
			"beta_min": rapid.Float64Range(0, 10).Draw(t, "min"), "beta_max": rapid.Float64Range(1e-3, 10).Draw(t, "max"),
		}, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if rapid.IntRange(0, 4).Draw(t, "loss") == 0 {
				c.OnLoss()
			} else {
				c.OnRTT(time.Duration(rapid.Int64Range(1, 1e12).Draw(t, "rtt")))
			}
			acwnd := rapid.Uint64Range(0, 1<<40).Draw(t, "acwnd")
			n := c.Size(acwnd)
			if n == 0 || n%1024 != 0 || n > 64<<10 || n > 1024 && uint64(n) > acwnd {
				t.Fatalf("%d of %d", n, acwnd)
			}
		}
	})
}

func TestClock(t *testing.T) {
	c := Clock{Every: 100 * time.Microsecond, Threshold: 10 * time.Microsecond}
	const us = mono.Time(1000)
	if !c.Due(0) {
		t.Error("it has never been set")
	}
	for _, s := range []struct {
		now, nic, then mono.Time // then is the expected NIC time at now
		corrected      uint64
	}{
		{1000 * us, 5000 * us, 5000 * us, 0},
		{1100 * us, 5110 * us, 5100 * us, 0}, // the error equals the threshold
		{1200 * us, 5211 * us, 5211 * us, 1},
		{1300 * us, 5300 * us, 5300 * us, 2},
	} {
		if c.Correct(s.now, s.nic); c.NIC(s.now) != s.then || c.Corrected != s.corrected {
			t.Errorf("at %d: %d, corrected %d times", s.now, c.NIC(s.now), c.Corrected)
		}
		if c.Due(s.now+99*us) || !c.Due(s.now+100*us) {
			t.Errorf("at %d: due at the wrong time", s.now)
		}
	}
}
