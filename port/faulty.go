package port

import (
	"bytes"
	"errors"
	"time"

	"roced.io/roced/internal/base/fault"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// faultyRetry is the interval at which a Faulty retries to send frames that its port had no room for. Nothing polls the
// port for writability meanwhile.
const faultyRetry = 50 * time.Microsecond

// Faulty is a port with fault rules. Without rules it passes everything through. With rules it accepts single frames
// only, segments received super-frames, and applies the rules to each frame. It then also takes the frames of the NIC to
// itself, and returns them as received. Frames to another NIC of a switch go to the inbox of that NIC's Faulty, which may
// belong to another goroutine.
type Faulty struct {
	inner  *Backlog
	obs    link.Observer
	engine fault.Engine
	out    batch
	in     batch
	across func(frame []byte) any
	owner  any    // of the NIC; nil without a switch
	wake   func() // ends the sleep of the owner
	inbox  inbox
	spare  []byte // for the next frame to an inbox
	used   []byte // of the latest frame of the inbox
	bare   bool   // the latest frame of Recv has no ICRCs
	sealed []byte // scratch space of link.Seal
	turn   int    // of the inbox and the link
	failed uint64
	bufs   [1][]byte
	frame  link.Frame
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
	b.next, b.count = 0, link.Segments(frame, segSize)
}

// segment returns the next segment. The caller may change it.
func (b *batch) segment() ([]byte, bool) {
	if b.next >= b.count {
		return nil, false
	}
	b.seg = link.Segment(b.seg[:0], b.buf, b.segSize, b.next)
	b.next++
	return b.seg, true
}

func (b *batch) empty() bool { return b.copies == 0 && b.next >= b.count }

// FaultStats counts the actions of the rules of a port.
type FaultStats struct {
	fault.Stats
	Rules []fault.RuleStats
	// SendFailed counts frames that the port refused after Send had returned success: the rules had delayed them, or
	// the link went down. It also counts frames of other NICs of the switch while the link is down.
	SendFailed uint64
}

// NewFaulty wraps p. The observer may be nil. It receives every frame that a rule has changed, with a comment such as
// "fault: drop (name)". It also receives sent frames that the NIC has not shown (link.Frame.Unseen), so it sees each
// sent frame once. It may see a received frame twice, because the NIC shows the frames that it gets.
func NewFaulty(p Port, obs link.Observer) *Faulty {
	f := &Faulty{inner: NewBacklog(p), obs: obs}
	f.frame.Bufs = f.bufs[:]
	return f
}

// SetObserver replaces the observer.
func (f *Faulty) SetObserver(obs link.Observer) { f.obs = obs }

// SetRules replaces the rules and releases delayed frames. Without rules the port is transparent. The caller must tell
// the NIC that Offload has changed.
func (f *Faulty) SetRules(rules []fault.Rule) error {
	if err := f.engine.SetRules(rules); err != nil {
		return err
	}
	return nil
}

// SetSwitch joins the port to a switch. across returns the *Faulty of the other NIC that a frame goes to, nil if the frame
// takes the link (rocev2.NIC.Across). NICs with the same owner belong to one goroutine. Ports of other owners call wake
// after a frame to this one.
func (f *Faulty) SetSwitch(across func(frame []byte) any, owner any, wake func()) {
	f.across, f.owner, f.wake = across, owner, wake
}

// active reports whether frames cannot simply be passed through.
func (f *Faulty) active() bool {
	return f.engine.Active() || !f.out.empty() || !f.in.empty()
}

// Send implements Port. A frame that the rules have been applied to counts as sent, even if the port has no room for it
// now.
func (f *Faulty) Send(now mono.Time, fr *link.Frame) error {
	if fr.Unsealed || !f.active() && !fr.Unseen {
		if to, ok := fr.Across.(*Faulty); ok {
			return f.pass(to, fr)
		}
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
	f.bufs[0] = b
	f.frame.Len = len(b)
	if to := f.receiver(b); to != nil {
		err := f.pass(to, &f.frame)
		if err != nil {
			f.retry = now.Add(faultyRetry)
		}
		return err
	}
	err := f.inner.Send(now, &f.frame)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrAgain):
		f.retry = now.Add(faultyRetry)
		return err
	}
	f.failed++
	if errors.Is(err, ErrDown) {
		f.failed += uint64(f.out.copies - 1 + f.out.count - f.out.next)
		f.out.copies, f.out.next, f.out.count = 0, 0, 0
		return ErrDown
	}
	return nil
}

// receiver returns the port that gets a frame in memory, nil if the link does.
func (f *Faulty) receiver(b []byte) *Faulty {
	if f.across != nil {
		if to, ok := f.across(b).(*Faulty); ok {
			return to
		}
	}
	if toItself(b) {
		return f
	}
	return nil
}

// pass puts a copy of a frame into the inbox of to. A frame without room waits, or is lost if another goroutine empties
// the inbox.
func (f *Faulty) pass(to *Faulty, fr *link.Frame) (err error) {
	l, ok := letter{segSize: fr.SegSize, unsealed: fr.Unsealed}, true
	if !fr.Unsealed {
		l.frame = fr.AppendTo(f.spare[:0])
	} else if l.frame, ok = fr.Copy(f.spare[:0]); !ok { // with an ICRC, it would be wrong
		f.spare = l.frame
		f.failed++
		return nil
	}
	f.spare, ok = to.inbox.put(l)
	switch {
	case to == f || to.owner == f.owner:
		if !ok {
			err = ErrAgain
		}
	case ok:
		to.wake()
	default:
		to.inbox.lost.Add(1)
	}
	return err
}

// toItself reports whether the sender of a frame is its receiver.
func toItself(frame []byte) bool {
	return len(frame) >= 12 && bytes.Equal(frame[:6], frame[6:12])
}

// decide applies the rules to a frame and shows it to the observer.
func (f *Faulty) decide(now mono.Time, d fault.Dir, frame []byte) ([]byte, int) {
	v := f.engine.Process(now, d, frame)
	dir, unseen := link.Rx, false
	if d == fault.Tx {
		dir, unseen = link.Tx, f.out.unseen
	}
	if f.obs != nil && (v.Comment != "" || unseen) {
		f.obs.Frame(now, dir, v.Frame, v.Comment)
	}
	return v.Frame, v.Copies
}

// Recv implements Port.
func (f *Faulty) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	f.bare = false
	if !f.active() {
		return f.take(now, buf)
	}
	f.flush(now)
	for {
		if f.in.copies > 0 {
			f.in.copies--
			return f.in.now, 0, nil
		}
		if frame, ok := f.engine.Release(now, fault.Rx); ok {
			return frame, 0, nil
		}
		seg, ok := f.in.segment()
		if !ok {
			frame, segSize, err := f.take(now, buf)
			if err != nil {
				return nil, 0, err
			}
			f.in.load(append(f.in.buf[:0], frame...), segSize)
			if f.bare {
				f.sealed, f.bare = link.Seal(f.in.buf, segSize, f.sealed), false
			}
			continue
		}
		f.in.now, f.in.copies = f.decide(now, fault.Rx, seg)
	}
}

const (
	// inboxTurns is the number of frames of the inbox before the link has a turn.
	inboxTurns = 8
	// maxDrops bounds the frames of the inbox that one call drops.
	maxDrops = 1024
)

// take receives a frame from the inbox or from the link. Neither starves the other.
func (f *Faulty) take(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if f.turn++; f.turn%inboxTurns != 0 {
		if frame, segSize, ok := f.open(); ok {
			return frame, segSize, nil
		}
	}
	frame, segSize, err = f.inner.Recv(now, buf)
	if err != nil {
		if frame, segSize, ok := f.open(); ok {
			return frame, segSize, nil
		}
	}
	return frame, segSize, err
}

// open receives a frame from the inbox. A port whose link is down gets only frames of its NIC to itself.
func (f *Faulty) open() (frame []byte, segSize int, ok bool) {
	for range maxDrops {
		if f.inbox.empty() {
			break
		}
		l := f.inbox.take(f.used)
		f.bare = l.unsealed
		if f.used = l.frame; f.State().Up || toItself(l.frame) {
			return l.frame, l.segSize, true
		}
		f.failed++
	}
	f.bare = false
	return nil, 0, false
}

// Unsealed reports whether the latest frame of Recv has no ICRCs: another NIC of the switch has sent it.
func (f *Faulty) Unsealed() bool { return f.bare }

// NextTimeout implements Port.
func (f *Faulty) NextTimeout() mono.Time {
	t := f.inner.NextTimeout()
	if !f.in.empty() || !f.inbox.empty() {
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
func (f *Faulty) Offload() link.Offload {
	if f.engine.Active() {
		return link.Offload{Faults: true}
	}
	o := f.inner.Offload()
	o.Unsealed = f.across != nil
	return o
}

// State implements Monitored. A port that is not Monitored is up.
func (f *Faulty) State() link.State { return f.inner.State() }

// Poll implements Monitored.
func (f *Faulty) Poll(now mono.Time) { f.inner.Poll(now) }

// Stats implements Monitored.
func (f *Faulty) Stats() Stats {
	s := f.inner.Stats()
	s.Overruns += f.inbox.lost.Load()
	return s
}

// FaultStats returns the counters of the rules.
func (f *Faulty) FaultStats() FaultStats {
	return FaultStats{Stats: f.engine.Stats(), Rules: f.engine.RuleStats(), SendFailed: f.failed}
}

// Close implements Port. Delayed frames are lost.
func (f *Faulty) Close() error { return f.inner.Close() }

var _ Monitored = (*Faulty)(nil)
