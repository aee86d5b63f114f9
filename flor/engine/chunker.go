package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"roced.io/roced/plugin/param"
)

// Chunker is the module that chooses the size of the next chunk (Flor 4.2). It belongs to one connection.
type Chunker interface {
	// OnRTT reports a measured round trip.
	OnRTT(rtt time.Duration)
	// OnLoss reports a lost chunk, or in RC mode a failed queue pair.
	OnLoss()
	// Size returns the size of the next chunk in bytes. acwnd is the free part of the congestion window in bytes. The
	// size is a multiple of the unit, and not zero.
	Size(acwnd uint64) uint32
}

// Chunkers maps names to chunking algorithms.
var Chunkers = map[string]func(r *param.Reader, unit uint32) Chunker{
	"rtt-uc": func(r *param.Reader, unit uint32) Chunker { return newRTTChunker(r, unit, false) },
	"rtt-rc": func(r *param.Reader, unit uint32) Chunker { return newRTTChunker(r, unit, true) },
	"none":   func(_ *param.Reader, unit uint32) Chunker { return whole(unit) },
}

func newChunker(name string, p map[string]float64, unit uint32) (Chunker, error) {
	f, ok := Chunkers[name]
	if !ok {
		return nil, fmt.Errorf("flor: no chunking %q, there are %v", name, slices.Sorted(maps.Keys(Chunkers)))
	}
	r := param.NewReader("flor: chunking "+name, p)
	c := f(r, unit)
	return c, r.Err()
}

// rttChunker is Algorithm 1 of Flor. It smooths a short-term and a long-term round-trip time. The long-term value
// defines a span, and the position of the short-term value in it defines the chunk size. The size is size_max at the
// lower end and one unit at the upper end.
//
// Under UC a loss shrinks chunks through the congestion window. Under RC a loss reduces them to one unit at once (Flor
// 4.2). That lasts until the long-term average has absorbed as many round trips as it remembers.
type rttChunker struct {
	unit, max           uint32
	bdp                 uint32
	alphaShort          float64 // [alpha_s]
	alphaLong           float64 // [alpha_l]
	betaMin, betaMax    float64
	rtt                 time.Duration // [rtt_s]; rttLong is the long-term form
	rttLong             time.Duration // [rtt_l]
	size                uint32        // [size_t]
	restart, restarting int
	rc                  bool
}

// newRTTChunker reads the parameters of the paper. The paper gives no numbers for alpha and beta. With beta_min 1,
// chunks have the maximum size while the round trip has its usual value.
func newRTTChunker(r *param.Reader, unit uint32, rc bool) Chunker {
	c := &rttChunker{unit: unit, rc: rc,
		max:        uint32(r.Int("max_bytes", 64<<10, 1, 1<<30)),
		bdp:        uint32(r.Int("bdp_bytes", 64<<10, 1, 1<<30)),
		alphaShort: r.Value("alpha_short", 0.25, 1e-6, 1),
		alphaLong:  r.Value("alpha_long", 1.0/64, 1e-6, 1),
		betaMin:    r.Value("beta_min", 1, 0, 1e3),
		betaMax:    r.Value("beta_max", 2, 1e-3, 1e4),
	}
	c.betaMax = max(c.betaMax, c.betaMin+1e-3)
	c.size = min(c.max, c.bdp) // chunk_size <- min{acwnd, BDP}
	c.restart = int(1 / c.alphaLong)
	return c
}

// OnRTT implements Chunker: lines 1 to 3 of Algorithm 1.
func (c *rttChunker) OnRTT(rtt time.Duration) {
	if c.rttLong == 0 {
		c.rtt, c.rttLong = rtt, rtt
	}
	c.rtt += time.Duration(c.alphaShort * float64(rtt-c.rtt))
	c.rttLong += time.Duration(c.alphaLong * float64(rtt-c.rttLong))
	long := float64(c.rttLong)
	share := (float64(c.betaMax*long) - float64(c.rtt)) / (float64(c.betaMax*long) - float64(c.betaMin*long))
	c.size = uint32(float64(c.max) * max(0, min(share, 1)))
	c.restarting = max(c.restarting-1, 0)
}

// OnLoss implements Chunker.
func (c *rttChunker) OnLoss() {
	if c.rc {
		c.restarting = c.restart
	}
}

// Size implements Chunker: line 4 of Algorithm 1, aligned to units.
func (c *rttChunker) Size(acwnd uint64) uint32 {
	if c.restarting > 0 {
		return c.unit
	}
	n := uint32(min(uint64(c.size), acwnd))
	return max(n-n%c.unit, c.unit)
}

// whole does not divide messages: with the NIC's congestion control there are no chunks (Flor table 1).
type whole uint32

func (whole) OnRTT(time.Duration) {}
func (whole) OnLoss()             {}

// Size implements Chunker.
func (w whole) Size(uint64) uint32 { return MaxChunks * uint32(w) }
