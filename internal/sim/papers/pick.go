package papers

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"roced.io/roced/internal/sim/result"
)

// pick selects or computes one of many values.
func pick(take string, values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	d := result.Describe(values)
	switch take {
	case "mean":
		return d.Mean
	case "p50":
		return d.P50
	case "p95":
		return d.P95
	case "p99":
		return d.P99
	case "p99.9":
		return d.P999
	case "max":
		return d.Max
	case "min":
		return slices.Min(values)
	case "unfair":
		return 1 - pick("jain", values)
	case "jain":
		squares := 0.0
		for _, v := range values {
			squares += float64(v * v)
		}
		sum := d.Mean * float64(d.Count)
		return sum * sum / (float64(d.Count) * squares)
	case "deviation":
		squares := 0.0
		for _, v := range values {
			squares += float64((v - d.Mean) * (v - d.Mean))
		}
		return math.Sqrt(squares / float64(d.Count))
	}
	if q := percentile(take); q > 0 {
		sorted := slices.Sorted(slices.Values(values))
		return sorted[max(int(math.Ceil(q/100*float64(len(sorted))))-1, 0)]
	}
	return math.NaN()
}

// percentile returns the percentage in a name such as p99.9; 0 if it is none.
func percentile(take string) float64 {
	text, ok := strings.CutPrefix(take, "p")
	q, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil || !(q > 0 && q < 100) {
		return 0
	}
	return q
}
