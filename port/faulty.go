package port

import (
	"bytes"
	"errors"
	"time"

	"roced.io/roced/internal/base/fault"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// faultyRetry is the interval at which a Faulty retries to send frames that its port had no room for. Nothing polls the
// port for writability meanwhile.
const faultyRetry = 50 * time.Microsecond

// faultyBuffer is the size of a buffer for the longest super-frame.
const faultyBuffer = 1 << 17

// Faulty is a port with fault rules. Without rules it passes everything through. With rules it accepts single frames
// only, segments received super-frames, and applies the rules to each frame. It then also takes the frames of the NIC to
// itself, and returns them as received.
type Faulty struct {
	inner  Port
	obs    rocev2.Observer
	engine fault.Engine
	out    batch
	in     batch
	own    []byte // a frame to the NIC itself; empty if there is none
	failed uint64
	bufs   [1][]byte
	frame  rocev2.Frame
	retry  mono.Time
}

// batch is a frame or super-frame whose segments the rules are applied to one by one.
type batch struct {
	buf     []byte // the frame or super-frame
	unseen  bool   // the observer has not seen it
	segSize int
	next    int // segment
	count   int // of segments
	seg     []byte
	now     []byte // frame to pass on
	copies  int    // number of times to pass it on
}

// load sets the frame or super-frame. The batch refers to it.
func (b *batch) load(frame []byte, segSize int) {
	b.buf, b.segSize = frame, segSize
	b.next, b.count = 0, rocev2.Segments(frame, segSize)
}

// segment returns the next segment. The caller may change it.
func (b *batch) segment() ([]byte, bool) {
	if b.next >= b.count {
		return nil, false
	}
	b.seg = rocev2.Segment(b.seg[:0], b.buf, b.segSize, b.next)
	b.next++
	return b.seg, true
}

func (b *batch) empty() bool { return b.copies == 0 && b.next >= b.count }

// FaultStats counts the actions of the rules of a port.
type FaultStats struct {
	fault.Stats
	Rules []fault.RuleStats
	// SendFailed counts frames that the port refused after Send had returned success: the rules had delayed them, or
	// the link went down.
	SendFailed uint64
}

// NewFaulty wraps p. The observer may be nil. It receives every frame that a rule has changed, with a comment such as
// "fault: drop (name)". It also receives sent frames that the NIC has not shown (rocev2.Frame.Unseen), so it sees each
// sent frame once. It may see a received frame twice, because the NIC shows the frames that it gets.
func NewFaulty(p Port, obs rocev2.Observer) *Faulty {
	f := &Faulty{inner: p, obs: obs}
	f.frame.Bufs = f.bufs[:]
	return f
}

// SetObserver replaces the observer.
func (f *Faulty) SetObserver(obs rocev2.Observer) { f.obs = obs }

// SetRules replaces the rules and releases delayed frames. Without rules the port is transparent. The caller must tell
// the NIC that Offload has changed.
func (f *Faulty) SetRules(rules []fault.Rule) error {
	if err := f.engine.SetRules(rules); err != nil {
		return err
	}
	if len(rules) > 0 && f.in.buf == nil {
		f.in.buf = make([]byte, faultyBuffer)
	}
	return nil
}

// active reports whether frames cannot simply be passed through.
func (f *Faulty) active() bool {
	return f.engine.Active() || !f.out.empty() || !f.in.empty() || len(f.own) > 0
}

// Send implements Port. A frame that the rules have been applied to counts as sent, even if the port has no room for it
// now.
func (f *Faulty) Send(now mono.Time, fr *rocev2.Frame) error {
	if !f.active() && !fr.Unseen {
		return f.inner.Send(now, fr)
	}
	if err := f.flush(now); err != nil {
		return err
	}
	f.out.load(fr.AppendTo(f.out.buf[:0]), fr.SegSize)
	f.out.unseen = fr.Unseen
	if err := f.flush(now); errors.Is(err, ErrDown) {
		return err
	}
	return nil
}

// flush sends the waiting frames. After ErrAgain some of them still wait; after ErrDown they are lost.
func (f *Faulty) flush(now mono.Time) error {
	for {
		for ; f.out.copies > 0; f.out.copies-- {
			if err := f.sendOne(now, f.out.now); err != nil {
				return err
			}
		}
		if frame, ok := f.engine.Release(now, fault.Tx); ok {
			f.out.seg = append(f.out.seg[:0], frame...)
			f.out.now, f.out.copies = f.out.seg, 1
			continue
		}
		seg, ok := f.out.segment()
		if !ok {
			return nil
		}
		f.out.now, f.out.copies = f.decide(now, fault.Tx, seg)
	}
}

// sendOne sends a single frame. It counts an error other than ErrAgain, because the Send call of the frame may have
// returned already. ErrDown also discards the rest of the batch.
func (f *Faulty) sendOne(now mono.Time, b []byte) error {
	if toItself(b) {
		if len(f.own) > 0 {
			f.retry = now.Add(faultyRetry)
			return ErrAgain
		}
		f.own = append(f.own, b...)
		return nil
	}
	f.bufs[0] = b
	f.frame.Len = len(b)
	err := f.inner.Send(now, &f.frame)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrAgain):
		f.retry = now.Add(faultyRetry)
		return ErrAgain
	}
	f.failed++
	if errors.Is(err, ErrDown) {
		f.failed += uint64(f.out.copies - 1 + f.out.count - f.out.next)
		f.out.copies, f.out.next, f.out.count = 0, 0, 0
		return ErrDown
	}
	return nil
}

// toItself reports whether the sender of a frame is its receiver.
func toItself(frame []byte) bool {
	return len(frame) >= 12 && bytes.Equal(frame[:6], frame[6:12])
}

// decide applies the rules to a frame and shows it to the observer.
func (f *Faulty) decide(now mono.Time, d fault.Dir, frame []byte) ([]byte, int) {
	v := f.engine.Process(now, d, frame)
	dir, unseen := rocev2.Rx, false
	if d == fault.Tx {
		dir, unseen = rocev2.Tx, f.out.unseen
	}
	if f.obs != nil && (v.Comment != "" || unseen) {
		f.obs.Frame(now, dir, v.Frame, v.Comment)
	}
	return v.Frame, v.Copies
}

// Recv implements Port.
func (f *Faulty) Recv(now mono.Time, buf []byte) (n, segSize int, err error) {
	if !f.active() {
		return f.inner.Recv(now, buf)
	}
	f.flush(now)
	for {
		if f.in.copies > 0 {
			f.in.copies--
			return copy(buf, f.in.now), 0, nil
		}
		if frame, ok := f.engine.Release(now, fault.Rx); ok {
			return copy(buf, frame), 0, nil
		}
		if len(f.own) > 0 {
			f.in.seg, f.own = append(f.in.seg[:0], f.own...), f.own[:0]
			f.in.now, f.in.copies = f.decide(now, fault.Rx, f.in.seg)
			continue
		}
		seg, ok := f.in.segment()
		if !ok {
			raw := f.in.buf[:cap(f.in.buf)]
			n, segSize, err := f.inner.Recv(now, raw)
			if err != nil {
				return 0, 0, err
			}
			f.in.load(raw[:n], segSize)
			continue
		}
		f.in.now, f.in.copies = f.decide(now, fault.Rx, seg)
	}
}

// NextTimeout implements Port.
func (f *Faulty) NextTimeout() mono.Time {
	t := f.inner.NextTimeout()
	if !f.in.empty() || len(f.own) > 0 {
		return 0
	}
	if !f.out.empty() {
		return t.Min(f.retry)
	}
	return t.Min(f.engine.NextTimeout())
}

// FD implements Port.
func (f *Faulty) FD() int { return f.inner.FD() }

// Offload implements Port. With rules there are no super-frames, so that a rule acts on single frames.
func (f *Faulty) Offload() rocev2.Offload {
	if f.engine.Active() {
		return rocev2.Offload{Faults: true}
	}
	return f.inner.Offload()
}

// State implements Monitored. A port that is not Monitored is up.
func (f *Faulty) State() LinkState {
	if m, ok := f.inner.(Monitored); ok {
		return m.State()
	}
	return LinkState{Up: true}
}

// Poll implements Monitored.
func (f *Faulty) Poll(now mono.Time) {
	if m, ok := f.inner.(Monitored); ok {
		m.Poll(now)
	}
}

// Stats implements Monitored.
func (f *Faulty) Stats() Stats {
	if m, ok := f.inner.(Monitored); ok {
		return m.Stats()
	}
	return Stats{}
}

// FaultStats returns the counters of the rules.
func (f *Faulty) FaultStats() FaultStats {
	return FaultStats{Stats: f.engine.Stats(), Rules: f.engine.RuleStats(), SendFailed: f.failed}
}

// Close implements Port. Delayed frames are lost.
func (f *Faulty) Close() error { return f.inner.Close() }

var _ Monitored = (*Faulty)(nil)
