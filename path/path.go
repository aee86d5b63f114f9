// Package path selects the network path of each packet by its entropy value. Where acknowledgements clock packets out, it
// also decides when a packet may leave. Each scheme is a Selector. A queue pair gets one from its profile, and a second one
// for READ responses if its transport acknowledges them.
//
// A sender has three independent plug-ins: ccalgo.Controller has the congestion window, retrans.Recovery knows the
// outstanding packets and the ones to retransmit, and Selector has the clock and the paths. The queue pair calls them.
//
// For each acknowledgement the calls are, in this order:
//
//	out := recovery.OnFeedback(now, f)         // snd_una, inflate, recovery mode
//	controller.OnAck(now, sample)              // cwnd
//	n := selector.OnAck(now, f, rtt, window)   // pruning, clock
//	controller.(ccalgo.Shrinker).Shrink(n)
//
// where window is computed after OnAck of the controller. To send, until no packet may leave:
//
//	recovery.InFlight() < cwnd                 // awnd >= 1
//	vp, ok := selector.Next(now, window)       // the clock
//	recovery.NextRetransmit, else new data, else retrans.Early.NextEarly
//	recovery.OnSent; controller.OnSent; selector.OnSent(now, window)
//
// and once the clock allows a packet but there is none to send:
//
//	controller.(ccalgo.Shrinker).Shrink(selector.Unused())
//
// selector.Restart follows recovery.OnTimeout, because the paths no longer deliver acknowledgements.
//
// The queue pair owns all three and calls them from one goroutine. Time never goes back from one call to the next, but may
// stand still or jump by days.
//
// No promise: this package may change between releases.
package path

import (
	"cmp"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/registry"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/plugin/param"
	"roced.io/roced/reorder"
)

// Window is the state of the other two plug-ins, in packets.
type Window struct {
	Packets  uint32 // the congestion window, cwnd
	InFlight uint32 // packets believed to be in the network (retrans.Recovery)
}

// Room returns the number of packets that the window allows now: awnd (MP-RDMA 3.2).
func (w Window) Room() uint32 {
	if w.InFlight >= w.Packets {
		return 0
	}
	return w.Packets - w.InFlight
}

// Start holds the initial values of a connection.
type Start struct {
	PSN  bth.PSN // the first PSN that will be sent
	Seed uint64  // for random choices; the same seed gives the same paths
}

// Selector selects the virtual paths (UDP source ports) of a sender's packets. The package comment gives the order of calls.
// No call allocates memory. The queue pair calls OnAck and Unused, and the Window has values, only if the Selector is a Syncer.
type Selector interface {
	// Reset sets the initial state. It comes first.
	Reset(s Start)
	// Next returns the path of the next packet as an entropy value (bth.SplitEntropy); 0 means the path of the connection.
	// ok is false if the packet must wait for an acknowledgement or for Deadline. The result stays the same until a call
	// of another method.
	Next(now mono.Time, w Window) (vp uint32, ok bool)
	// OnSent records that a packet was sent on the path that Next returned. w is the same as for Next.
	OnSent(now mono.Time, w Window)
	// OnAck processes an acknowledgement and its round-trip time, zero if not measured. The caller owns *f; the selector
	// neither changes nor keeps it. OnAck returns the number of packets by which the congestion window must shrink.
	OnAck(now mono.Time, f *reorder.Feedback, rtt time.Duration, w Window) (shrink int)
	// Unused reports that there is no packet to send. It returns the number of packets by which the congestion window
	// must shrink.
	Unused() (shrink int)
	// Restart forgets the state of the paths, after a timeout.
	Restart()
	// OnTimeout must be called when Deadline has passed.
	OnTimeout(now mono.Time, w Window)
	// Deadline returns when OnTimeout is due, or mono.Never if no timer runs.
	Deadline() mono.Time
	// Footprint returns the number of bytes of state, counted as the scheme's paper counts them.
	Footprint() int
}

// Params are the parameters of a selector by name.
type Params map[string]float64

var kind = registry.New[Selector]("path", "path selection").
	Add("single", "IBTA annex A17.3.2", newSingle).
	Add("spray", "roced: round robin or random UDP source ports", newSpray).
	Add("mp-rdma", "Lu et al., NSDI 2018, 3.2", newMPRDMA).
	Add("mrc", "OCP MRC 1.0", newMRC)

// Register adds a selector of the calling program; see reorder.Register.
func Register(name string, make func(r *param.Reader) Selector) { kind.Add(name, registry.Own, make) }

// New makes the selector with that name; the empty name means single. The error names the parameter and its range.
func New(name string, p Params) (Selector, error) { return kind.New(cmp.Or(name, "single"), p) }

// Names returns the names of the selectors in alphabetical order.
func Names() []string { return kind.Names() }

// Source returns where the plug-in of that name is specified.
func Source(name string) string { return kind.Source(name) }

// Parameters returns the parameters of a selector in the order of reading, nil for an unknown selector.
func Parameters(name string) []param.Parameter { return kind.Parameters(name) }

// unclocked provides the clock methods of selectors without a clock.
type unclocked struct{}

func (unclocked) OnSent(mono.Time, Window)                                      {}
func (unclocked) OnAck(mono.Time, *reorder.Feedback, time.Duration, Window) int { return 0 }
func (unclocked) Unused() int                                                   { return 0 }
func (unclocked) Restart()                                                      {}
func (unclocked) OnTimeout(mono.Time, Window)                                   {}
func (unclocked) Deadline() mono.Time                                           { return mono.Never }
