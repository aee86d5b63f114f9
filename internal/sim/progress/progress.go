// Package progress estimates the remaining time of runs from their recent speed.
package progress

import "time"

// minWindow is the least time over which speed is measured.
const minWindow = 10 * time.Second

// Estimate estimates the remaining time of a run. Its zero value is ready for a run that begins at the first call of Left.
type Estimate struct {
	points []point // of the window, and one before
	began  time.Time
	speed  float64 // at the previous call
	left   time.Duration
}

// point is the state of the run at an instant.
type point struct {
	at   time.Time
	part float64
}

// Left returns the remaining time of a run that has completed a part, from 0 to 1. It returns false while the speed is
// unknown or zero. The speed is that of the last quarter of the run, or of the later half of that if it is lower. While the speed
// falls, the result does not.
func (e *Estimate) Left(now time.Time, part float64) (time.Duration, bool) {
	if e.points == nil {
		e.began = now
	}
	e.points = append(e.points, point{now, part})
	window := max(now.Sub(e.began)/4, minWindow)
	old := e.before(now.Add(-window))
	e.points = e.points[old:]
	speed := min(e.since(0), e.since(e.before(now.Add(-window/2))))
	slower := speed < e.speed*(1-1e-6) // not by rounding
	e.speed = speed
	if speed <= 0 {
		return 0, false
	}
	left := time.Duration(min((1-part)/speed, maxSeconds) * float64(time.Second))
	if slower {
		left = max(left, e.left)
	}
	e.left = left
	return left.Round(time.Second), true
}

// maxSeconds limits the estimate to a century.
const maxSeconds = 100 * 365 * 24 * 3600

// before returns the index of the last point not after an instant, or of the first.
func (e *Estimate) before(at time.Time) int {
	i := 0
	for i+1 < len(e.points) && !e.points[i+1].at.After(at) {
		i++
	}
	return i
}

// since returns the speed since the i-th point, in parts per second.
func (e *Estimate) since(i int) float64 {
	last := e.points[len(e.points)-1]
	took := last.at.Sub(e.points[i].at).Seconds()
	if took <= 0 {
		return 0
	}
	return (last.part - e.points[i].part) / took
}
