// Package simtest simulates an incast, so that the author of a plug-in can test it
// in Go: register the plug-in, then call Run. docs/guides/extending.md explains
// how; examples/congestion is complete.
//
// A simulation is deterministic: the same Incast gives the same Result on every
// machine.
package simtest

import (
	"fmt"
	"math"
	"time"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim"
	"roced.io/roced/internal/sim/engine"
	"roced.io/roced/internal/sim/fabric"
	"roced.io/roced/internal/sim/workload"
	"roced.io/roced/qp/profile"
)

// Module is a plug-in and its parameters, as scenarios name them. The zero value is
// the default of the transport profile.
type Module struct {
	Name   string
	Params map[string]float64
}

// Incast is a simulation: each sender writes one message to the same host, all at
// time zero. All hosts are connected to one switch.
type Incast struct {
	Senders int           // default 8
	Bytes   uint32        // of each message; default 1,000,000
	Rate    uint64        // of each link in bits per second; default 100e9
	Delay   time.Duration // propagation delay of each link; default 1 us
	Buffer  int64         // of the switch in bytes; it drops packets beyond it; default 16 MiB
	// MarkMin and MarkMax enable ECN marking: the switch marks packets with a
	// probability that grows from 0 at a queue of MarkMin bytes to 1 at one of
	// MarkMax bytes. If MarkMax is 0, it marks none.
	MarkMin, MarkMax int64
	Seed             uint64 // of all random numbers

	Profile    string // transport profile, such as rc or irn; default irn
	Congestion Module // congestion control
	Recovery   Module // loss recovery of the sender
}

// Flow is the message of one sender.
type Flow struct {
	Sender int           // from 1 to Incast.Senders
	Time   time.Duration // until the sender has received the last acknowledgement
}

// Result is the outcome of a simulation.
type Result struct {
	Flows         []Flow        // in the order of completion
	Time          time.Duration // of the whole simulation
	LongestQueue  int64         // of a port of the switch in bytes
	Marked        uint64        // packets that the switch has marked
	Dropped       uint64        // packets that the switch had no room for
	Retransmitted uint64        // packets
}

// Run simulates an incast. It returns an error if a module or a parameter is
// unknown, a parameter is out of range, or a message has not completed.
func Run(c Incast) (*Result, error) {
	def(&c.Senders, 8)
	def(&c.Bytes, 1_000_000)
	def(&c.Rate, uint64(100e9))
	def(&c.Delay, time.Microsecond)
	def(&c.Buffer, 16<<20)
	def(&c.Profile, "irn")
	if c.Senders < 1 || c.Delay < 0 || c.Delay > math.MaxInt64/time.Duration(engine.Nanosecond) || c.Buffer < 0 {
		return nil, fmt.Errorf("simtest: %d senders, links of %v, a buffer of %d bytes: must be positive", c.Senders, c.Delay, c.Buffer)
	}
	hosts := c.Senders + 1
	sw := fabric.SwitchConfig{Buffer: fabric.BufferConfig{Bytes: quantity.Bytes(c.Buffer)}}
	if c.MarkMax > 0 {
		sw.ECN = fabric.ECNConfig{Min: quantity.Bytes(c.MarkMin), Max: quantity.Bytes(c.MarkMax), Probability: 1}
	}
	s, err := sim.New(sim.Config{
		Seed:    c.Seed,
		Graph:   fabric.Star(fabric.Wires{HostRate: quantity.Rate(c.Rate), Delay: engine.Time(c.Delay) * engine.Nanosecond}, hosts),
		Switch:  func(_, _ int) fabric.SwitchConfig { return sw },
		Profile: c.Profile,
		Spec:    profile.Spec{Congestion: profile.Part(c.Congestion), Recovery: profile.Part(c.Recovery)},
		Apps:    []workload.App{&workload.OpenLoop{Next: workload.List(workload.Incast(hosts, 0, c.Senders, c.Bytes, 0))}},
	})
	if err != nil {
		return nil, err
	}
	r, err := s.Run()
	if err != nil {
		return nil, err
	}
	out := &Result{Time: r.Ended.Duration(), LongestQueue: r.Peak, Marked: r.Marked, Retransmitted: r.Retransmitted}
	for _, n := range r.Drops {
		out.Dropped += n
	}
	for _, f := range r.Flows {
		out.Flows = append(out.Flows, Flow{Sender: f.Src, Time: f.FCT.Duration()})
	}
	if r.Failed > 0 || len(out.Flows) != c.Senders {
		return out, fmt.Errorf("simtest: %d of %d messages completed", len(out.Flows)-r.Failed, c.Senders)
	}
	return out, nil
}

func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
