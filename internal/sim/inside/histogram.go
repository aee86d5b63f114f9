package inside

import (
	"math"
	"math/bits"

	"roced.io/roced/internal/sim/result"
)

// histogram counts nanoseconds in 32 buckets per power of two, so percentiles are accurate to 3 % (as in HDR
// histograms).
type histogram struct {
	counts [64 * perPower]uint64
	count  uint64
	sum    float64
	most   uint64
}

const (
	powerBits = 5
	perPower  = 1 << powerBits
)

func (h *histogram) add(v uint64) {
	h.counts[bucket(v)]++
	h.count++
	h.sum += float64(v)
	h.most = max(h.most, v)
}

// bucket returns the bucket of v. Small values have their own.
func bucket(v uint64) int {
	if v < perPower {
		return int(v)
	}
	power := bits.Len64(v) - 1 - powerBits
	return (power+1)*perPower + int(v>>power)&(perPower-1)
}

// upper returns the largest value of a bucket.
func upper(b int) uint64 {
	if b < perPower {
		return uint64(b)
	}
	power := b/perPower - 1
	return uint64(perPower+b%perPower+1)<<power - 1
}

// describe returns the distribution in microseconds.
func (h *histogram) describe() result.Distribution {
	if h.count == 0 {
		return result.Distribution{}
	}
	at := func(part float64) float64 {
		return float64(min(upper(int(percentile(h.counts[:], h.count, part))), h.most)) / 1e3
	}
	return result.Distribution{Count: int(h.count), Mean: h.sum / float64(h.count) / 1e3,
		P50: at(0.5), P95: at(0.95), P99: at(0.99), P999: at(0.999), Max: float64(h.most) / 1e3}
}

// percentile returns the index that a part of all does not exceed; NaN without values.
func percentile(counts []uint64, all uint64, part float64) float64 {
	seen := uint64(0)
	for i, n := range counts {
		if seen += n; seen > 0 && float64(seen) >= part*float64(all) {
			return float64(i)
		}
	}
	return math.NaN()
}

// mean0 returns the mean index, zero without values.
func mean0(counts []uint64, all uint64) float64 {
	sum := 0.0
	for i, n := range counts {
		sum += float64(float64(i) * float64(n))
	}
	return zero(sum / float64(all))
}

// zero returns v, or zero if v is not finite.
func zero(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
