// Package result has the results of a simulation: the duration of messages, and the counters of the network. It
// writes them as JSON, CSV and pictures.
package result

import (
	"math"
	"slices"

	"roced.io/roced/internal/base/cpushare"
	"roced.io/roced/internal/sim/engine"
)

// Flow is a completed message. The tags name the columns of its table.
type Flow struct {
	ID       int         `json:"id"`
	Src      int         `json:"src"`
	Dst      int         `json:"dst"`
	Bytes    uint32      `json:"bytes"`
	Start    engine.Time `json:"start_ps"`
	FCT      engine.Time `json:"fct_ps"`
	Ideal    engine.Time `json:"ideal_ps"` // in an empty network
	Slowdown float64     `json:"slowdown"`
	Class    uint8       `json:"class"` // traffic class
	Port     uint16      `json:"-"`     // destination port in the flow list; 0: none
}

// Sample is the state of the network at an instant.
type Sample struct {
	At           engine.Time `json:"at_ps"`
	Queued       int64       `json:"queued_bytes"` // in all switches
	LongestQueue int64       `json:"longest_queue_bytes"`
	Pauses       uint64      `json:"pauses"`      // PFC frames since the previous sample
	Paused       engine.Time `json:"paused_ps"`   // sum over all links, since then
	Goodput      float64     `json:"goodput_bps"` // received payload since then
	PausedLinks  int         `json:"paused_links"`
	PauseTrees   int         `json:"pause_trees"`      // paused links that depend on no other one: roots
	PauseDepth   int         `json:"pause_tree_depth"` // longest chain of paused links
}

// Queue is the length of the queue before a link at an instant.
type Queue struct {
	At    engine.Time `json:"at_ps"`
	Link  string      `json:"link"`
	Bytes int64       `json:"bytes"`
}

// Port has the counters of one direction of a link, and of the queue before it.
type Port struct {
	Link    string      `json:"link"`
	Packets uint64      `json:"packets"`
	Bytes   uint64      `json:"bytes"`
	Lost    uint64      `json:"lost"`
	Peak    int64       `json:"peak_queue_bytes"`
	Marked  uint64      `json:"marked"`
	Pauses  uint64      `json:"pauses"`    // received PFC frames that paused it
	Paused  engine.Time `json:"paused_ps"` // how long it was paused
}

// Collective is a completed collective operation.
type Collective struct {
	Workload string      `json:"workload"` // kind
	Job      int         `json:"job"`      // number of the collective
	Ranks    int         `json:"ranks"`
	Bytes    uint64      `json:"bytes"` // of a rank's vector
	Start    engine.Time `json:"start_ps"`
	Took     engine.Time `json:"took_ps"` // until it has ended at all ranks
	Bus      float64     `json:"bus_bps"` // bus bandwidth as nccl-tests defines it
}

// Inside describes the internal state of transports.
type Inside struct {
	Packets       uint64       `json:"packets"`             // of requests, received
	Ahead         float64      `json:"ahead_of_gap"`        // part of their payload that arrived ahead of a gap
	Degree        Distribution `json:"out_of_order_degree"` // distance from the expected packet, in packets
	StateMost     int          `json:"state_bytes_most"`    // tracking state of a connection
	StateMean     float64      `json:"state_bytes_mean"`
	HostStateMost int          `json:"host_state_bytes_most"` // of all connections of a host
	RTT           Distribution `json:"rtt_us"`                // as measured by senders
	RTTError      Distribution `json:"rtt_error_us"`          // absolute difference from the true value
}

// Result is the result of a simulation.
type Result struct {
	Name    string      `json:"name"`
	Profile string      `json:"profile"`
	Seed    uint64      `json:"seed"`
	Ended   engine.Time `json:"ended_ps"`

	Unfinished    int               `json:"unfinished"`
	Failed        int               `json:"failed"`
	Transmissions uint64            `json:"link_transmissions"`
	Events        uint64            `json:"events"`
	Drops         map[string]uint64 `json:"drops"`
	Stray         uint64            `json:"stray_packets"`         // for closed queue pairs
	Late          int               `json:"late_closes,omitempty"` // see Config.Processors
	Marked        uint64            `json:"marked_packets"`
	Retransmitted uint64            `json:"retransmitted_packets"`
	Duplicates    uint64            `json:"duplicate_packets"` // packets retransmitted needlessly
	Timeouts      uint64            `json:"timeouts"`
	Pauses        uint64            `json:"pauses"`
	Paused        engine.Time       `json:"paused_ps"` // sum over all links
	Peak          int64             `json:"peak_queue_bytes"`
	CPU           []cpushare.Share  `json:"cpu,omitempty"` // with --profile

	Classes []Class `json:"classes,omitempty"` // if messages have others than class 0

	Deadlock *Deadlock `json:"deadlock,omitempty"` // the first one of flow control

	Inside *Inside `json:"inside,omitempty"` // with Config.Inside

	Collectives []Collective `json:"collectives,omitempty"`

	Flows   []Flow   `json:"-"`
	Samples []Sample `json:"-"`
	Queues  []Queue  `json:"-"` // of Config.Queues, at the instants of Samples
	Ports   []Port   `json:"-"`
	HostIDs []int    `json:"-"` // IDs of hosts in the topology file; nil: their numbers
}

// Class describes the packets of a traffic class.
type Class struct {
	Class    uint8        `json:"class"`
	Messages int          `json:"messages"`
	Bytes    uint64       `json:"bytes"` // of the messages
	FCT      Distribution `json:"fct_us"`
	Slowdown Distribution `json:"slowdown"`
	Lost     uint64       `json:"lost_packets"`
	Pauses   uint64       `json:"pauses"` // PFC frames
}

// OfClass returns the messages of a class.
func (r *Result) OfClass(class uint8) Class {
	c := Class{Class: class}
	b := r.bucket(func(f *Flow) bool { return f.Class == class })
	c.Messages, c.FCT, c.Slowdown = b.Slowdown.Count, b.FCT, b.Slowdown
	for i := range r.Flows {
		if r.Flows[i].Class == class {
			c.Bytes += uint64(r.Flows[i].Bytes)
		}
	}
	return c
}

// Deadlock is a cycle of links that flow control has stopped permanently. Each waits for the next one, the last for the first.
type Deadlock struct {
	Class uint8       `json:"class"`
	Since engine.Time `json:"since_ps"`
	Links []string    `json:"links"`
}

// HostID returns the ID of a host in files of other simulators.
func (r *Result) HostID(host int) int {
	if r.HostIDs == nil {
		return host
	}
	return r.HostIDs[host]
}

// Distribution describes a set of values.
type Distribution struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99.9"`
	Max   float64 `json:"max"`
}

// Describe returns the distribution of values.
func Describe(values []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	v := slices.Clone(values)
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	at := func(p float64) float64 { return v[max(int(math.Ceil(p*float64(len(v))))-1, 0)] }
	return Distribution{len(v), sum / float64(len(v)), at(0.5), at(0.95), at(0.99), at(0.999), v[len(v)-1]}
}

// Bucket describes the messages of a range of sizes.
type Bucket struct {
	From     uint32       `json:"from_bytes"` // exclusive
	To       uint32       `json:"to_bytes"`   // inclusive
	Slowdown Distribution `json:"slowdown"`
	FCT      Distribution `json:"fct_us"`
}

// limits are the upper ends of buckets, in bytes.
var limits = []uint32{1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 1e8, math.MaxUint32}

// Buckets returns the messages by size, without empty buckets.
func (r *Result) Buckets() (out []Bucket) {
	from := uint32(0)
	for i, to := range limits {
		first := i == 0
		if b := r.bucket(func(f *Flow) bool { return (f.Bytes > from || first) && f.Bytes <= to }); b.Slowdown.Count > 0 {
			b.From, b.To = from, to
			out = append(out, b)
		}
		from = to
	}
	return out
}

// All returns all messages in one bucket.
func (r *Result) All() Bucket { return r.bucket(func(*Flow) bool { return true }) }

// bucket returns the messages that in selects, without limits of their sizes.
func (r *Result) bucket(in func(*Flow) bool) Bucket {
	var slow, fct []float64
	for i := range r.Flows {
		if f := &r.Flows[i]; in(f) {
			slow = append(slow, f.Slowdown)
			fct = append(fct, float64(f.FCT)/float64(engine.Microsecond))
		}
	}
	return Bucket{0, math.MaxUint32, Describe(slow), Describe(fct)}
}

// Goodput is the payload of all messages divided by the time until the last of them ended, in bits per second.
func (r *Result) Goodput() float64 {
	bytes, first, last := 0.0, engine.Never, engine.Time(0)
	for i := range r.Flows {
		f := &r.Flows[i]
		bytes += float64(f.Bytes)
		first, last = min(first, f.Start), max(last, f.Start+f.FCT)
	}
	if last <= first {
		return 0
	}
	return bytes * 8 / (last - first).Seconds()
}

// Jain returns Jain's fairness index of the messages' rates: 1 if all are equal.
func (r *Result) Jain() float64 {
	sum, squares := 0.0, 0.0
	for i := range r.Flows {
		x := float64(r.Flows[i].Bytes) / r.Flows[i].FCT.Seconds()
		sum += x
		squares += float64(x * x)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(r.Flows)) * squares)
}
