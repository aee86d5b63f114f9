package fabric

import (
	"cmp"
	"math"
	"math/bits"

	"roced.io/roced/internal/base/quantity"
	"roced.io/roced/internal/sim/engine"
)

// BufferConfig describes the memory that the ports of a switch share, with dynamic thresholds (Choudhury and Hahne,
// ToN 1998). Zero fields have defaults.
type BufferConfig struct {
	Bytes quantity.Bytes `yaml:"buffer"` // total
	// For lossy classes, per egress port and class.
	EgressAlpha float64 `yaml:"egress_alpha"` // part of the free bytes that a queue may use; default 1
	// Input limits the bytes of a lossy class per ingress port, as in switches with input queues; zero: no limit.
	Input quantity.Bytes
}

// PFCConfig describes priority flow control for lossless classes, per ingress port and class. Zero fields have defaults.
type PFCConfig struct {
	Lossless     uint8          `yaml:"-"` // bit mask of the classes
	Apart        bool           `yaml:"-"` // lossy classes leave all headrooms and reserves free
	Headroom     quantity.Bytes // for packets that arrive after a pause was sent
	Reserve      quantity.Bytes // guaranteed
	Shared       quantity.Bytes // shared by thresholds; default: the buffer without all headrooms and reserves
	Alpha        float64        // pause above this part of the free shared bytes; default 1/16
	ResumeOffset quantity.Bytes `yaml:"resume_offset"` // resume this much below the threshold; default 3 KiB
	Pause        engine.Time    // duration in a PFC frame; default 5 us
}

// buffer accounts for a switch's memory. Lossless classes are admitted at their ingress port, the others at their
// egress port.
type buffer struct {
	lossy               BufferConfig
	pfc                 PFCConfig
	pauseAlpha, egAlpha int64 // in 1/1024, so that all machines compute the same
	bytes               int64 // in use
	shared              int64 // of pfc.Shared, in use by lossless classes
	used                int64 // in use by lossy classes
	common              int64 // limit of shared and used bytes
}

// stock counts the buffered bytes of an ingress port and class.
type stock struct {
	bytes    int64 // without the headroom
	headroom int64
	stopped  bool // the sender is paused
}

// Reserved returns the bytes that a switch with so many ports keeps for lossless classes.
func (c *PFCConfig) Reserved(ports int) quantity.Bytes {
	return quantity.Bytes(bits.OnesCount8(c.Lossless)*ports) * (c.Headroom + c.Reserve)
}

func (b *buffer) init(c BufferConfig, p PFCConfig, ports int) {
	p.Alpha = cmp.Or(p.Alpha, 1.0/16)
	c.EgressAlpha = cmp.Or(c.EgressAlpha, 1)
	p.ResumeOffset = cmp.Or(p.ResumeOffset, 3<<10)
	free := c.Bytes - p.Reserved(ports)
	p.Shared = cmp.Or(p.Shared, free)
	*b = buffer{lossy: c, pfc: p, pauseAlpha: int64(p.Alpha * 1024), egAlpha: int64(c.EgressAlpha * 1024), common: math.MaxInt64}
	if p.Apart {
		b.common = int64(free)
	}
}

func (b *buffer) lossless(class uint8) bool { return b.pfc.Lossless>>class&1 != 0 }

// threshold returns the number of bytes beyond its reserve at which a class of a port is paused.
func (b *buffer) threshold() int64 { return (int64(b.pfc.Shared) - b.shared) * b.pauseAlpha >> 10 }

// beyond returns the shared bytes of s.
func (b *buffer) beyond(s *stock) int64 { return max(s.bytes-int64(b.pfc.Reserve), 0) }

// admitEgress admits n bytes of a lossy class to a queue of queued bytes; in is their ingress port.
func (b *buffer) admitEgress(in *stock, n, queued int64) bool {
	free, input := min(int64(b.lossy.Bytes)-b.bytes, b.common-b.shared-b.used), int64(b.lossy.Input)
	if n > free || queued+n > free*b.egAlpha>>10 || input > 0 && in.bytes+n > input {
		return false
	}
	b.bytes += n
	b.used += n
	in.bytes += n
	return true
}

// admitIngress admits n bytes of a lossless class. The threshold only pauses the sender: further packets use the
// shared bytes while there are some, then the headroom.
func (b *buffer) admitIngress(s *stock, n int64) bool {
	before := b.beyond(s)
	more := max(s.bytes+n-int64(b.pfc.Reserve), 0) - before
	switch exhausted := more > min(int64(b.pfc.Shared), b.common-b.used)-b.shared; {
	case b.bytes+n > int64(b.lossy.Bytes), exhausted && s.headroom+n > int64(b.pfc.Headroom):
		return false
	case exhausted:
		s.headroom += n
	default:
		s.bytes += n
		b.shared += more
	}
	b.bytes += n
	return true
}

// leaveEgress releases n bytes.
func (b *buffer) leaveEgress(in *stock, n int64) {
	b.bytes -= n
	b.used -= n
	in.bytes -= n
}

// leaveIngress releases n bytes, first those of the headroom.
func (b *buffer) leaveIngress(s *stock, n int64) {
	b.bytes -= n
	part := min(s.headroom, n)
	s.headroom -= part
	before := b.beyond(s)
	s.bytes -= n - part
	b.shared -= before - b.beyond(s)
}

// stops reports whether the sender of s must be paused now.
func (b *buffer) stops(s *stock) bool {
	return !s.stopped && (s.headroom > 0 || b.beyond(s) > b.threshold())
}

// resumes reports whether the sender of s may resume now.
func (b *buffer) resumes(s *stock) bool {
	if !s.stopped || s.headroom > 0 {
		return false
	}
	used := b.beyond(s)
	return used == 0 || used+int64(b.pfc.ResumeOffset) <= b.threshold()
}
