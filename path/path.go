// Package path holds path selection: which of the network's paths a packet takes,
// that is which UDP source port it has, and, where acknowledgements clock packets
// out, when one may leave. Each way is a Selector; a queue pair is given one by its
// profile.
//
// A sender has three roles that know nothing of each other: ccalgo.Controller has
// the congestion window, retrans.Recovery knows what is outstanding and what to send
// again, Selector has the clock and the paths. A queue pair leads them, once for its requests
// and once for its READ responses.
//
// For each acknowledgement, in this order:
//
//	out := recovery.OnFeedback(now, f)         // snd_una, inflate, recovery mode
//	controller.OnAck(now, sample)              // cwnd; the one packet that f answers
//	n := selector.OnAck(now, f, rtt, window)   // pruning, clock
//	controller.(ccalgo.Shrinker).Shrink(n)
//
// where window is read after OnAck of the controller. To send, until nothing can:
//
//	recovery.InFlight() < cwnd                 // awnd >= 1
//	vp, ok := selector.Next(now, window)       // the clock
//	recovery.NextRetransmit, else new data, else retrans.Early.NextEarly
//	recovery.OnSent; controller.OnSent; selector.OnSent(now, window)
//
// and once the clock would let a packet leave but there is none:
//
//	controller.(ccalgo.Shrinker).Shrink(selector.Unused())
//
// After recovery.OnTimeout comes selector.Restart: the paths have fallen silent.
//
// All three belong to one queue pair, which calls them from one goroutine. Time never goes
// back from one call to the next, but may stand still or jump by days.
package path

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/reorder"
)

// Window is what the other roles know, in packets.
type Window struct {
	Packets  uint32 // the congestion window, cwnd
	InFlight uint32 // packets believed to be in the network (retrans.Recovery)
}

// Room is how many packets the window lets go now: awnd (MP-RDMA 3.2).
func (w Window) Room() uint32 {
	if w.InFlight >= w.Packets {
		return 0
	}
	return w.Packets - w.InFlight
}

// Start is what a connection begins with.
type Start struct {
	PSN  bth.PSN // the first one that will be sent
	Seed uint64  // of random choices; the same seed gives the same paths
}

// Selector chooses the virtual paths (UDP source ports) of a sender's packets.
// Arguments go by value so that no call allocates.
type Selector interface {
	// Reset forgets everything.
	Reset(s Start)
	// Next returns the path of the next packet as a UDP source port, 0 for that of the
	// connection, or ok false if it has to wait for an acknowledgement or for Deadline.
	// The answer stays the same until another call.
	Next(now mono.Time, w Window) (vp uint16, ok bool)
	// OnSent records that a packet took the path that Next returned; w is still as
	// it was then.
	OnSent(now mono.Time, w Window)
	// OnAck takes an acknowledgement and the round-trip time it gave, zero if none,
	// and returns by how many packets the congestion window has to shrink.
	OnAck(now mono.Time, f *reorder.Feedback, rtt time.Duration, w Window) (shrink int)
	// Unused tells that nothing is left to send, and returns by how many packets the
	// congestion window has to shrink.
	Unused() (shrink int)
	// Restart begins anew on paths that nothing is known of, after a timeout.
	Restart()
	// OnTimeout is called when Deadline has passed.
	OnTimeout(now mono.Time, w Window)
	// Deadline is when OnTimeout is due, mono.Never if it is not.
	Deadline() mono.Time
	// Footprint is the number of bytes of state, as papers count it.
	Footprint() int
}

// Params are the named parameters of a selector, as the configuration has them.
type Params map[string]float64

// Factory makes a selector. Unknown or impossible parameters are errors.
type Factory func(Params) (Selector, error)

// Factories are all selectors by name.
var Factories = map[string]Factory{
	"single":  newSingle,
	"spray":   newSpray,
	"mp-rdma": newMPRDMA,
}

// New makes a selector of the name given; the empty name is single.
func New(name string, p Params) (Selector, error) {
	if name == "" {
		name = "single"
	}
	f, ok := Factories[name]
	if !ok {
		return nil, fmt.Errorf("path: no path selection %q, there are %v", name, Names())
	}
	return f(p)
}

// Names are the selectors in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(Factories)) }

// unclocked is what selectors that leave the clock to the window have in common.
type unclocked struct{}

func (unclocked) OnSent(mono.Time, Window)                                      {}
func (unclocked) OnAck(mono.Time, *reorder.Feedback, time.Duration, Window) int { return 0 }
func (unclocked) Unused() int                                                   { return 0 }
func (unclocked) Restart()                                                      {}
func (unclocked) OnTimeout(mono.Time, Window)                                   {}
func (unclocked) Deadline() mono.Time                                           { return mono.Never }
