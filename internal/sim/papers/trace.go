package papers

import (
	"math"

	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/inside"
	"roced.io/roced/internal/sim/scenario"
)

// ofInside returns a number about the internal state of transports.
func ofInside(in *inside.Inside, n *scenario.Number, ended engine.Time) float64 {
	in.Finish(ended.Mono())
	switch n.Of {
	case "degree":
		if part := parts[n.Take]; part > 0 {
			return in.Degree(part)
		}
		return in.Degree(1)
	case "early":
		return in.Early()
	case "copied":
		return 100 * in.Ahead()
	case "pool":
		// A connection reports blocks that it lost to another one only with its next packet. The sum then
		// exceeds the full pool.
		return min(100*float64(in.Pool())*8/1024, 100)
	case "state":
		return mostOrMean(n.Take)(in.State())
	case "state-way":
		return float64(in.StateOfRequests())
	case "bitmaps":
		return in.Bitmaps(ended.Seconds())
	case "state-nic":
		return mostOrMean(n.Take)(in.Host(ended.Seconds()))
	}
	return math.NaN()
}

// parts are the percentiles.
var parts = map[string]float64{"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}

func mostOrMean(take string) func(most int, mean float64) float64 {
	return func(most int, mean float64) float64 {
		if take == "max" {
			return float64(most)
		}
		return mean
	}
}
