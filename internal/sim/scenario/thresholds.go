package scenario

import (
	"cmp"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
)

// Limits of thresholds and of pauses: 65,535 quanta of 512 bits at 1 Gb/s.
const (
	maxAlpha = 1024
	minPause = 100 * engine.Nanosecond
	maxPause = 33_553_920 * engine.Nanosecond
)

// thresholds rejects thresholds of a switch that its queues cannot reach.
func (f *File) thresholds(key string, s *Switch) error {
	if mtu := quantity.Bytes(cmp.Or(f.Transport.MTU, 1000)); s.Bytes < mtu {
		return f.At(key+".buffer", "%d bytes hold no packet of transport.mtu, %d", s.Bytes, mtu)
	}
	if err := f.within(key+".input", s.Input, s.Bytes); err != nil {
		return err
	}
	if err := f.alpha(key+".egress_alpha", s.EgressAlpha); err != nil {
		return err
	}
	if mtu := quantity.Bytes(cmp.Or(f.Transport.MTU, 1000)); s.Trim > mtu {
		return f.At(key+".trim", "%d bytes: packets of transport.mtu, %d, would not be cut", s.Trim, mtu)
	}
	if p := s.PFC; p != nil {
		if err := f.pfc(key+".pfc", &p.PFCConfig, s.Bytes); err != nil {
			return err
		}
	}
	if s.ECN == nil {
		return nil
	}
	if e := s.ECN.At; e != "" && e != "enqueue" && e != "dequeue" {
		return f.At(key+".ecn.at", "%q is neither enqueue nor dequeue", e)
	}
	return f.marking(key+".ecn", &s.ECN.ECNConfig, s.Bytes)
}

// pfc checks the thresholds of flow control.
func (f *File) pfc(key string, p *fabric.PFCConfig, buffer quantity.Bytes) error {
	if p.Pause != 0 && (p.Pause < minPause || p.Pause > maxPause) {
		return f.At(key+".pause", "must be from 100ns to 33.5ms, the longest pause at 1 Gb/s")
	}
	if err := f.within(key+".shared", p.Shared, buffer); err != nil {
		return err
	}
	if err := f.within(key+".resume_offset", p.ResumeOffset, buffer); err != nil {
		return err
	}
	return f.alpha(key+".alpha", p.Alpha)
}

// marking checks the thresholds of ECN marks. buffer is that of the switch, 0 if it is unknown.
func (f *File) marking(key string, e *fabric.ECNConfig, buffer quantity.Bytes) error {
	switch {
	case e.Max == 0:
		return f.At(key+".max", "missing; set the queue from which all packets are marked, such as 400KB")
	case e.Min > e.Max:
		return f.At(key+".min", "%d bytes exceed max, %d", e.Min, e.Max)
	case e.Probability < 0 || e.Probability > 1:
		return f.At(key+".probability", "%g: must be from 0 to 1", e.Probability)
	case buffer > 0 && e.Min >= buffer:
		return f.At(key+".min", "%d bytes: no queue in a buffer of %d is as long, so no packet would be marked", e.Min, buffer)
	}
	return nil
}

// within rejects a limit that exceeds the buffer.
func (f *File) within(key string, bytes, buffer quantity.Bytes) error {
	if bytes > buffer {
		return f.At(key, "%d bytes exceed the buffer, %d", bytes, buffer)
	}
	return nil
}

// alpha checks a factor of free bytes; 0 is the default.
func (f *File) alpha(key string, v float64) error {
	if v < 0 || v > maxAlpha {
		return f.At(key, "%g: must be above 0, at most %d", v, maxAlpha)
	}
	return nil
}
