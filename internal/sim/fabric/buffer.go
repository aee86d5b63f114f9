package fabric

// BufferConfig describes the memory that the ports of a switch share, with dynamic thresholds
// (Choudhury and Hahne, ToN 1998). What is zero has a default.
type BufferConfig struct {
	Bytes    int64 // in all
	Lossless uint8 // classes with priority flow control, a bit each
	// Of lossless classes, by port and class where a packet came in.
	Headroom     int64   // of a port's class: for what still comes once it has been told to stop
	Reserve      int64   // of a port's class: what it has for itself
	Shared       int64   // what thresholds divide; default: what headrooms and reserves leave
	PauseAlpha   float64 // it stops when it has more than this part of what is free; default 1/16
	ResumeOffset int64   // it goes on when it has so much less; default 3 KiB
	// Of the other classes, by port and class where a packet leaves.
	EgressAlpha float64 // share of what is free that a queue may have; default 1
	// Input is what a port where packets came in may have of each class, as switches with queues at
	// their inputs have it; zero: no such limit.
	Input int64
}

// buffer is the accounting of a switch's memory. Lossless classes are admitted where they come
// in, the others where they leave.
type buffer struct {
	cfg                 BufferConfig
	pauseAlpha, egAlpha int64 // of 1024, so that every machine computes the same
	bytes               int64 // used in all
	shared              int64 // used of cfg.Shared by lossless classes
}

// stock is what lies in a switch of what came by a port in a lossless class.
type stock struct {
	bytes    int64 // without those in the headroom
	headroom int64
	stopped  bool // the sender has been told to stop
}

func (b *buffer) init(c BufferConfig, ports int) {
	if c.PauseAlpha == 0 {
		c.PauseAlpha = 1.0 / 16
	}
	if c.EgressAlpha == 0 {
		c.EgressAlpha = 1
	}
	if c.ResumeOffset == 0 {
		c.ResumeOffset = 3 << 10
	}
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

// threshold is how many bytes beyond its reserve a class of a port may have before it stops.
func (b *buffer) threshold() int64 { return (b.cfg.Shared - b.shared) * b.pauseAlpha >> 10 }

// beyond is what s has of the shared memory.
func (b *buffer) beyond(s *stock) int64 { return max(s.bytes-b.cfg.Reserve, 0) }

// admitEgress takes n bytes of a class that may be lost into a queue of queued bytes; in is where they
// came in.
func (b *buffer) admitEgress(in *stock, n, queued int64) bool {
	free := b.cfg.Bytes - b.bytes
	if n > free || queued+n > free*b.egAlpha>>10 || b.cfg.Input > 0 && in.bytes+n > b.cfg.Input {
		return false
	}
	b.bytes += n
	in.bytes += n
	return true
}

// admitIngress takes n bytes of a lossless class. Its threshold only tells the sender to stop:
// what still comes is taken from what is shared as long as there is some, then from the headroom.
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

// leaveEgress gives back n bytes.
func (b *buffer) leaveEgress(in *stock, n int64) {
	b.bytes -= n
	in.bytes -= n
}

// leaveIngress gives back n bytes, those of the headroom first.
func (b *buffer) leaveIngress(s *stock, n int64) {
	b.bytes -= n
	part := min(s.headroom, n)
	s.headroom -= part
	before := b.beyond(s)
	s.bytes -= n - part
	b.shared -= before - b.beyond(s)
}

// stops reports whether the sender of s must be told to stop, which it has not been yet.
func (b *buffer) stops(s *stock) bool {
	return !s.stopped && (s.headroom > 0 || b.beyond(s) > b.threshold())
}

// resumes reports whether it may go on.
func (b *buffer) resumes(s *stock) bool {
	if !s.stopped || s.headroom > 0 {
		return false
	}
	used := b.beyond(s)
	return used == 0 || used+b.cfg.ResumeOffset <= b.threshold()
}
