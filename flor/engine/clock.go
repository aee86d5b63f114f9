package engine

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// Clock converts software time to the time of the NIC's clock, which completions carry. Reading the NIC's clock is
// slow, so the engine measures the difference periodically (Flor A.2.1).
type Clock struct {
	// Every is the interval between readings. Threshold is the tolerated error.
	Every, Threshold time.Duration
	// Corrected counts the readings with a larger error.
	Corrected uint64

	offset  time.Duration // NIC time minus software time
	checked mono.Time
	set     bool
}

// Due reports whether the engine should read the clock of the NIC.
func (c *Clock) Due(now mono.Time) bool { return !c.set || now.Sub(c.checked) >= c.Every }

// Correct records a reading of the NIC's clock at now.
func (c *Clock) Correct(now, nic mono.Time) {
	offset := nic.Sub(now)
	wrong := offset - c.offset
	if !c.set || max(wrong, -wrong) > c.Threshold {
		if c.set {
			c.Corrected++
		}
		c.offset = offset
	}
	c.checked, c.set = now, true
}

// NIC converts now to the clock of the NIC.
func (c *Clock) NIC(now mono.Time) mono.Time { return now.Add(c.offset) }
