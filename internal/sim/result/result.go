// Package result is what a simulation has found: how long messages took, and what the network
// did meanwhile. It is written as JSON, CSV and pictures; package
// roced/sim/parquet writes the tables as Parquet.
package result

import (
	"math"
	"slices"

	"roced.io/roced/internal/cpushare"
	"roced.io/roced/internal/sim/engine"
)

// Flow is a message that has completed. The tags name the columns of its table.
type Flow struct {
	ID       int         `json:"id" parquet:"id"`
	Src      int         `json:"src" parquet:"src"`
	Dst      int         `json:"dst" parquet:"dst"`
	Bytes    uint32      `json:"bytes" parquet:"bytes"`
	Start    engine.Time `json:"start_ps" parquet:"start_ps"`
	FCT      engine.Time `json:"fct_ps" parquet:"fct_ps"`
	Ideal    engine.Time `json:"ideal_ps" parquet:"ideal_ps"` // in an empty network
	Slowdown float64     `json:"slowdown" parquet:"slowdown"`
}

// Sample is what the network looked like at an instant.
type Sample struct {
	At           engine.Time `json:"at_ps" parquet:"at_ps"`
	Queued       int64       `json:"queued_bytes" parquet:"queued_bytes"` // in all switches
	LongestQueue int64       `json:"longest_queue_bytes" parquet:"longest_queue_bytes"`
	Pauses       uint64      `json:"pauses" parquet:"pauses"`           // PFC frames since the last sample
	Paused       engine.Time `json:"paused_ps" parquet:"paused_ps"`     // of all links together since then
	Goodput      float64     `json:"goodput_bps" parquet:"goodput_bps"` // payload that got into memory since then
	PausedLinks  int         `json:"paused_links" parquet:"paused_links"`
	PauseTrees   int         `json:"pause_trees" parquet:"pause_trees"`           // links that are paused for no other one, the roots
	PauseDepth   int         `json:"pause_tree_depth" parquet:"pause_tree_depth"` // paused links one behind the other, at most
}

// Queue is how much waited before a link at an instant.
type Queue struct {
	At    engine.Time `json:"at_ps" parquet:"at_ps"`
	Link  string      `json:"link" parquet:"link"`
	Bytes int64       `json:"bytes" parquet:"bytes"`
}

// Port is what one direction of a link has done, and the queue before it.
type Port struct {
	Link    string      `json:"link" parquet:"link"`
	Packets uint64      `json:"packets" parquet:"packets"`
	Bytes   uint64      `json:"bytes" parquet:"bytes"`
	Lost    uint64      `json:"lost" parquet:"lost"`
	Peak    int64       `json:"peak_queue_bytes" parquet:"peak_queue_bytes"`
	Marked  uint64      `json:"marked" parquet:"marked"`
	Pauses  uint64      `json:"pauses" parquet:"pauses"`       // PFC frames that told it to stop
	Paused  engine.Time `json:"paused_ps" parquet:"paused_ps"` // how long it was stopped
}

// Inside is what transports did.
type Inside struct {
	Packets       uint64       `json:"packets"`             // of requests that came
	Ahead         float64      `json:"ahead_of_gap"`        // part of their payload that came ahead of a gap
	Degree        Distribution `json:"out_of_order_degree"` // how far ahead of the expected packet, in packets
	StateMost     int          `json:"state_bytes_most"`    // of a connection, to track that
	StateMean     float64      `json:"state_bytes_mean"`
	HostStateMost int          `json:"host_state_bytes_most"` // of all connections to a host
	RTT           Distribution `json:"rtt_us"`                // as senders measure it
	RTTError      Distribution `json:"rtt_error_us"`          // how far that is from the truth, one way or the other
}

// Result is all of that.
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
	Stray         uint64            `json:"stray_packets"` // for queue pairs that had been closed
	Marked        uint64            `json:"marked_packets"`
	Retransmitted uint64            `json:"retransmitted_packets"`
	Duplicates    uint64            `json:"duplicate_packets"` // that their receivers had already, so that they were sent again in vain
	Timeouts      uint64            `json:"timeouts"`
	Pauses        uint64            `json:"pauses"`
	Paused        engine.Time       `json:"paused_ps"` // of all links together
	Peak          int64             `json:"peak_queue_bytes"`
	CPU           []cpushare.Share  `json:"cpu,omitempty"` // where time went, if that was asked for

	Inside *Inside `json:"inside,omitempty"` // if that was asked for

	Flows   []Flow   `json:"-"`
	Samples []Sample `json:"-"`
	Queues  []Queue  `json:"-"` // of the links that were asked for, at the instants of Samples
	Ports   []Port   `json:"-"`
}

// Distribution describes many values.
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

// Bucket are the messages of a range of sizes.
type Bucket struct {
	From     uint32       `json:"from_bytes"` // above it
	To       uint32       `json:"to_bytes"`   // up to it
	Slowdown Distribution `json:"slowdown"`
	FCT      Distribution `json:"fct_us"`
}

// limits are the ends of buckets, in bytes.
var limits = []uint32{1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6, 3e6, 1e7, 1e8, math.MaxUint32}

// Buckets returns the messages by their sizes, without buckets that are empty.
func (r *Result) Buckets() (out []Bucket) {
	from := uint32(0)
	for i, to := range limits {
		if b := r.bucket(from, to, i == 0); b.Slowdown.Count > 0 {
			out = append(out, b)
		}
		from = to
	}
	return out
}

// All returns all messages as one bucket.
func (r *Result) All() Bucket { return r.bucket(0, math.MaxUint32, true) }

func (r *Result) bucket(from, to uint32, first bool) Bucket {
	var slow, fct []float64
	for i := range r.Flows {
		if f := &r.Flows[i]; (f.Bytes > from || first) && f.Bytes <= to {
			slow = append(slow, f.Slowdown)
			fct = append(fct, float64(f.FCT)/float64(engine.Microsecond))
		}
	}
	return Bucket{from, to, Describe(slow), Describe(fct)}
}

// Goodput is the payload of all messages over the time until the last of them ended, in bits per
// second.
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

// Jain is Jain's index of fairness of what messages got by the second: 1 if all got the same.
func (r *Result) Jain() float64 {
	sum, squares := 0.0, 0.0
	for i := range r.Flows {
		x := float64(r.Flows[i].Bytes) / r.Flows[i].FCT.Seconds()
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(r.Flows)) * squares)
}
