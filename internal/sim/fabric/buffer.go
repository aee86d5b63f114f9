package fabric

import "cmp"

// BufferConfig describes the memory that the ports of a switch share, with dynamic thresholds (Choudhury and Hahne,
// ToN 1998). Zero fields have defaults.
type BufferConfig struct {
	Bytes    int64 // total
	Lossless uint8 // bit mask of the classes with priority flow control
	// For lossless classes, per ingress port and class.
	Headroom     int64   // for packets that arrive after a pause was sent
	Reserve      int64   // guaranteed bytes
	Shared       int64   // shared by thresholds; default: Bytes without all headrooms and reserves
	PauseAlpha   float64 // pause above this part of the free shared bytes; default 1/16
	ResumeOffset int64   // resume this much below the threshold; default 3 KiB
	// For the other classes, per egress port and class.
	EgressAlpha float64 // part of the free bytes that a queue may use; default 1
	// Input limits the bytes of a class per ingress port, as in switches with input queues; zero: no limit.
	Input int64
}

// buffer accounts for a switch's memory. Lossless classes are admitted at their ingress port, the others at their
// egress port.
type buffer struct {
	cfg                 BufferConfig
	pauseAlpha, egAlpha int64 // in 1/1024, so that all machines compute the same
	bytes               int64 // in use
	shared              int64 // of cfg.Shared, in use by lossless classes
}

// stock counts the buffered bytes of an ingress port and class.
type stock struct {
	bytes    int64 // without the headroom
	headroom int64
	stopped  bool // the sender is paused
}

func (b *buffer) init(c BufferConfig, ports int) {
	c.PauseAlpha = cmp.Or(c.PauseAlpha, 1.0/16)
	c.EgressAlpha = cmp.Or(c.EgressAlpha, 1)
	c.ResumeOffset = cmp.Or(c.ResumeOffset, 3<<10)
	if c.Shared == 0 {
		classes := int64(0)
		for m := c.Lossless; m != 0; m &= m - 1 {
			classes++
		}
		c.Shared = c.Bytes - classes*int64(ports)*(c.Headroom+c.Reserve)
	}
	*b = buffer{cfg: c, pauseAlpha: int64(c.PauseAlpha * 1024), egAlpha: int64(c.EgressAlpha * 1024)}
}

func (b *buffer) lossless(class uint8) bool { return b.cfg.Lossless>>class&1 != 0 }

// threshold returns the number of bytes beyond its reserve at which a class of a port is paused.
func (b *buffer) threshold() int64 { return (b.cfg.Shared - b.shared) * b.pauseAlpha >> 10 }

// beyond returns the shared bytes of s.
func (b *buffer) beyond(s *stock) int64 { return max(s.bytes-b.cfg.Reserve, 0) }

// admitEgress admits n bytes of a lossy class to a queue of queued bytes; in is their ingress port.
func (b *buffer) admitEgress(in *stock, n, queued int64) bool {
	free := b.cfg.Bytes - b.bytes
	if n > free || queued+n > free*b.egAlpha>>10 || b.cfg.Input > 0 && in.bytes+n > b.cfg.Input {
		return false
	}
	b.bytes += n
	in.bytes += n
	return true
}

// admitIngress admits n bytes of a lossless class. The threshold only pauses the sender: further packets use the
// shared bytes while there are some, then the headroom.
func (b *buffer) admitIngress(s *stock, n int64) bool {
	before := b.beyond(s)
	more := max(s.bytes+n-b.cfg.Reserve, 0) - before
	switch exhausted := more > b.cfg.Shared-b.shared; {
	case b.bytes+n > b.cfg.Bytes, exhausted && s.headroom+n > b.cfg.Headroom:
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
	return used == 0 || used+b.cfg.ResumeOffset <= b.threshold()
}
