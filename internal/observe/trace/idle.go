package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Pause is a time in which nothing happened, of which a picture shows that it was and how long, not its length.
type Pause struct{ Start, Took time.Duration }

const (
	mostPauses = 40
	pausePart  = 0.03 // of the rest of the axis that one takes
)

// pauses are the long ones between instants, which are in order: those that take more than a twentieth of what is left
// without the longer ones, and more than twenty times what most take. The live page has the same rule (web/src/idle.js).
func pauses(at []time.Duration) (long []Pause) {
	var all []Pause
	for i := 1; i < len(at); i++ {
		if took := at[i] - at[i-1]; took > 0 {
			all = append(all, Pause{at[i-1], took})
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b Pause) int { return cmp.Compare(b.Took, a.Took) })
	busy, ordinary := at[len(at)-1]-at[0], all[len(all)/2].Took
	for _, p := range all[:min(len(all), mostPauses)] {
		if p.Took <= max(busy/20, 20*ordinary) {
			break
		}
		busy -= p.Took
		long = append(long, p)
	}
	slices.SortFunc(long, func(a, b Pause) int { return cmp.Compare(a.Start, b.Start) })
	return long
}

// place is where an instant is on the axis: time without pauses, each of which takes width instead.
func (c *Chart) place(at time.Duration) time.Duration {
	place, width := at, c.pauseWidth()
	for _, p := range c.Pauses {
		if at <= p.Start {
			break
		}
		inside := min(at-p.Start, p.Took)
		place += time.Duration(float64(inside)/float64(p.Took)*float64(width)) - inside
	}
	return place
}

// pauseWidth is how much of the axis a pause takes.
func (c *Chart) pauseWidth() time.Duration {
	busy := c.Until
	for _, p := range c.Pauses {
		busy -= p.Took
	}
	return time.Duration(float64(max(busy, 1)) * pausePart)
}

// pause is the one that an instant is in.
func (c *Chart) pause(at time.Duration) (Pause, bool) {
	i := slices.IndexFunc(c.Pauses, func(p Pause) bool { return at > p.Start && at < p.Start+p.Took })
	if i < 0 {
		return Pause{}, false
	}
	return c.Pauses[i], true
}

// drawPauses draws a band for each pause, and how long it was if there is room.
func (c *Chart) drawPauses() {
	free := 0.0
	for _, p := range c.Pauses {
		from, to := c.X(p.Start), c.X(p.Start+p.Took)
		fmt.Fprintf(c.W, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#f0f0f0"/>`+"\n", from, Top, to-from, Height-Bottom-Top)
		if middle := (from + to) / 2; middle >= free {
			fmt.Fprintf(c.W, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10" fill="#555555">%v idle</text>`+"\n", middle, Top-4, rounded(p.Took))
			free = middle + 70
		}
	}
}

// rounded has three digits.
func rounded(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}
