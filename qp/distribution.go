package qp

import (
	"math/bits"
	"time"
)

// Bounds are the upper bounds of a histogram's classes. Each is at least twice the one before it, so that one comparison
// finds the class.
type Bounds struct {
	Upper []uint64
	first [65]uint8 // by length in bits: the class of the smallest number of that length
}

func newBounds(upper ...uint64) *Bounds {
	b := &Bounds{Upper: upper}
	for n := range b.first {
		least := uint64(0)
		if n > 0 {
			least = 1 << (n - 1)
		}
		for int(b.first[n]) < len(upper) && upper[b.first[n]] < least {
			b.first[n]++
		}
	}
	return b
}

// Times are bounds in nanoseconds, from 1 us to 10 s; Degrees are in packets.
var (
	Times = newBounds(1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7, 5e7,
		1e8, 2e8, 5e8, 1e9, 2e9, 5e9, 1e10)
	Degrees = newBounds(0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
)

// Histogram counts values by classes.
type Histogram struct {
	Bounds *Bounds
	Counts []uint64 // one more than there are bounds
	Sum    uint64   // of the values
}

func newHistogram(b *Bounds) Histogram {
	return Histogram{Bounds: b, Counts: make([]uint64, len(b.Upper)+1)}
}

func (h *Histogram) add(v uint64) {
	i := int(h.Bounds.first[bits.Len64(v)])
	if i < len(h.Bounds.Upper) && v > h.Bounds.Upper[i] {
		i++
	}
	h.Counts[i]++
	h.Sum += v
}

// Clone returns a deep copy.
func (h *Histogram) Clone() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: append([]uint64(nil), h.Counts...), Sum: h.Sum}
}

// Operation is the operation of a message.
type Operation uint8

// Operations.
const (
	OpSend Operation = iota
	OpWrite
	OpRead
	OpAtomic
	OpFlush
	numOperations
)

// String returns the name of the operation.
func (o Operation) String() string {
	return [...]string{"send", "write", "read", "atomic", "flush"}[o]
}

// operations maps completions to operations.
var operations = [...]Operation{
	WCSend: OpSend, WCWrite: OpWrite, WCRead: OpRead, WCCmpSwap: OpAtomic, WCFetchAdd: OpAtomic, WCFlush: OpFlush, WCAtomicWrite: OpAtomic,
}

// Distributions are histograms of times and out-of-order degrees of the connected queue pairs of a NIC.
type Distributions struct {
	// Latency is the time of RC messages from the first packet to the completion, in ns, by Operation.
	Latency [numOperations]Histogram
	RTT     Histogram // round-trip times measured by senders, in ns
	Degree  Histogram // distance of received packets from the expected one, in packets
}

// NewDistributions returns empty histograms.
func NewDistributions() *Distributions {
	d := &Distributions{RTT: newHistogram(Times), Degree: newHistogram(Degrees)}
	for i := range d.Latency {
		d.Latency[i] = newHistogram(Times)
	}
	return d
}

// Clone returns a deep copy.
func (d *Distributions) Clone() *Distributions {
	c := &Distributions{RTT: d.RTT.Clone(), Degree: d.Degree.Clone()}
	for i := range d.Latency {
		c.Latency[i] = d.Latency[i].Clone()
	}
	return c
}

func (d *Distributions) message(op WROpcode, took time.Duration) {
	d.Latency[operations[workOps[op].completion]].add(uint64(took))
}
