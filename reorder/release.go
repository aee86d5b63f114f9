package reorder

import "roced/bth"

// Released counts messages that became complete because everything before their
// last packet has arrived.
type Released struct {
	Messages    uint32 // MSN moves by as many
	Completions uint32 // of these, complete a receive work request
}

// add counts the last packet of a message.
func (r *Released) add(last LastKind) {
	if last == NotLast {
		return
	}
	r.Messages++
	if last == LastWithCompletion {
		r.Completions++
	}
}

// take returns what has been counted and begins anew.
func (r *Released) take() Released {
	out := *r
	*r = Released{}
	return out
}

// Releaser is a Tracker that accepts packets ahead of a gap. What these complete
// is kept until the gap has been filled, and completions are released in order: the
// queue pair parks them and lets the oldest go that it is told of.
type Releaser interface {
	Tracker
	// Released returns what has become complete since it was called last, the
	// packet included that Receive was called for.
	Released() Released
	// Refuse records that psn was dropped although it could have been tracked,
	// because it came too early for what it does: Feedback says so.
	Refuse(psn bth.PSN)
}
