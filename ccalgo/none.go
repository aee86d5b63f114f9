package ccalgo

import "roced.io/roced/plugin/mono"

// None limits nothing. Other controllers embed it for the methods that they do not need.
type None struct{}

func newNone(reader) Controller { return None{} }

// Reset implements Controller.
func (None) Reset(int) {}

// ECNCapable implements Controller.
func (None) ECNCapable() bool { return false }

// OnSent implements Controller.
func (None) OnSent(mono.Time, uint32, uint32) {}

// OnAck implements Controller.
func (None) OnAck(mono.Time, Sample) {}

// OnCNP implements Controller.
func (None) OnCNP(mono.Time) {}

// OnLoss implements Controller.
func (None) OnLoss(mono.Time, uint32, bool) {}

// OnTimeout implements Controller.
func (None) OnTimeout(mono.Time) {}

// Deadline implements Controller.
func (None) Deadline() mono.Time { return mono.Never }

// Limits implements Controller.
func (None) Limits() (windowBytes, rateBps uint64) { return Unlimited, Unlimited }
