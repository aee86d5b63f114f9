package trace

import (
	"cmp"
	"slices"
	"time"

	"roced.io/roced/internal/base/chart"
)

const maxPauses = 40

// pauses returns the long pauses between instants, which are in order. A pause is long if it takes more than a
// twentieth of the time that is left without the longer pauses, and more than twenty times the median pause. The live
// page has the same rule (web/src/idle.js).
func pauses(at []time.Duration) (long []chart.Pause) {
	var all []chart.Pause
	for i := 1; i < len(at); i++ {
		if took := at[i] - at[i-1]; took > 0 {
			all = append(all, chart.Pause{Start: at[i-1], Took: took})
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b chart.Pause) int { return cmp.Compare(b.Took, a.Took) })
	busy, ordinary := at[len(at)-1]-at[0], all[len(all)/2].Took
	for _, p := range all[:min(len(all), maxPauses)] {
		if p.Took <= max(busy/20, 20*ordinary) {
			break
		}
		busy -= p.Took
		long = append(long, p)
	}
	slices.SortFunc(long, func(a, b chart.Pause) int { return cmp.Compare(a.Start, b.Start) })
	return long
}
