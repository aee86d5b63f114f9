package engine

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// Clock converts the instants of software to those of the NIC's clock, which completions have. To ask
// the NIC for the time takes long, so the difference is looked at now and then (Flor A.2.1).
type Clock struct {
	// Every is how long the clock is trusted, Threshold by how much it may be wrong.
	Every, Threshold time.Duration
	// Corrected is how often it was wrong by more.
	Corrected uint64

	offset  time.Duration // NIC less software
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
