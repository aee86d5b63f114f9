package port

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// Limits of a Backlog.
const (
	refusedFor   = time.Millisecond      // after which a refused frame is lost
	refusedRetry = 50 * time.Microsecond // between the tries of a frame
	maxRefused   = 64                    // frames
	maxTries     = 8                     // refused frames of one pass: the queue is full
	maxLossy     = 16                    // flows
	lossyFor     = time.Second           // after the latest loss
)

// Backlog is a port that retries frames that the kernel has refused (ErrRefused). A full queue and a filter that drops a frame
// look the same. So a frame that is still refused after a millisecond is lost. Frames of other flows pass meanwhile, and
// frames of its flow wait behind it. After a loss, a refused frame of the flow is lost at once, until a frame passes.
type Backlog struct {
	Port
	frames []*refused // in the order of arrival
	spare  []*refused
	retry  mono.Time
	lossy  []flow
	marked mono.Time // time of the latest loss
	lost   uint64
}

// refused is a frame that waits.
type refused struct {
	frame link.Frame
	buf   []byte
	bufs  [1][]byte
	flow  flow
	since mono.Time
}

// flow identifies the receiver of a frame: the end of its IP address, and its queue pair. It is 0 for frames other than UDP.
type flow uint64

// flowOf returns the flow of a frame, whose headers are in the first buffer.
func flowOf(f *link.Frame) flow {
	b, body := f.Bufs[0], f.HdrLen
	if body == 0 {
		_, body, _, _ = inet.UDPBody(b)
	}
	const tail = 4
	at := body - inet.UDPLen - tail // of an IP header without options
	if at < 0 || len(b) < body+bth.BTHLen {
		return 0
	}
	return flow(binary.BigEndian.Uint32(b[at:]))<<32 | flow(binary.BigEndian.Uint32(b[body+4:])&uint32(bth.MaxQPN))
}

// NewBacklog returns a backlog before p.
func NewBacklog(p Port) *Backlog { return &Backlog{Port: p} }

// Send implements Port. It never returns ErrRefused.
func (b *Backlog) Send(now mono.Time, f *link.Frame) error {
	if len(b.frames)+len(b.lossy) == 0 {
		if err := b.Port.Send(now, f); err != ErrRefused && err != ErrRefusedPart {
			return err
		}
		return b.add(now, flowOf(f), f)
	}
	b.poll(now)
	to := flowOf(f)
	if waits(b.frames, to) {
		return b.add(now, to, f)
	}
	if err := b.try(now, to, now, f); err != ErrRefused {
		return err
	}
	return b.add(now, to, f)
}

// waits reports whether a frame of a flow waits.
func waits(frames []*refused, to flow) bool {
	return slices.ContainsFunc(frames, func(r *refused) bool { return r.flow == to })
}

// add copies a frame into the backlog.
func (b *Backlog) add(now mono.Time, to flow, f *link.Frame) error {
	if len(b.frames) == maxRefused {
		return ErrLater
	}
	if len(b.spare) == 0 {
		b.spare = append(b.spare, &refused{})
	}
	last := len(b.spare) - 1
	r := b.spare[last]
	b.spare = b.spare[:last]
	r.buf = f.AppendTo(r.buf[:0])
	r.bufs[0], r.frame, r.flow, r.since = r.buf, *f, to, now
	r.frame.Bufs = r.bufs[:]
	if len(b.frames) == 0 {
		b.retry = now.Add(refusedRetry)
	}
	b.frames = append(b.frames, r)
	return nil
}

// try sends a frame that waits since a time. It returns nil for a lost frame, and ErrRefused for a frame to retry.
func (b *Backlog) try(now mono.Time, to flow, since mono.Time, f *link.Frame) error {
	for {
		err := b.Port.Send(now, f)
		if err == nil {
			b.lossy = slices.DeleteFunc(b.lossy, func(l flow) bool { return l == to })
			return nil
		}
		if err != ErrRefused && err != ErrRefusedPart {
			return err
		}
		if now.Sub(since) < refusedFor && !slices.Contains(b.lossy, to) {
			return ErrRefused
		}
		b.lose(now, to)
		if err == ErrRefused || !f.SkipSegment() {
			return nil
		}
	}
}

// lose counts a lost frame.
func (b *Backlog) lose(now mono.Time, to flow) {
	b.lost++
	b.marked = now
	if slices.Contains(b.lossy, to) {
		return
	}
	if len(b.lossy) == maxLossy {
		b.lossy = append(b.lossy[:0], b.lossy[1:]...)
	}
	b.lossy = append(b.lossy, to)
}

// poll retries the frames when they are due.
func (b *Backlog) poll(now mono.Time) {
	if len(b.lossy) > 0 && now.Sub(b.marked) > lossyFor {
		b.lossy = b.lossy[:0]
	}
	if len(b.frames) == 0 || now < b.retry {
		return
	}
	b.retry = now.Add(refusedRetry)
	kept, tries := b.frames[:0], 0
	for _, r := range b.frames {
		if tries == maxTries || waits(kept, r.flow) || !b.done(now, r, &tries) {
			kept = append(kept, r)
		} else {
			b.spare = append(b.spare, r)
		}
	}
	b.frames = kept
}

// done retries a frame and reports whether it does not wait any more.
func (b *Backlog) done(now mono.Time, r *refused, tries *int) bool {
	switch err := b.try(now, r.flow, r.since, &r.frame); {
	case err == ErrRefused:
		*tries++
		return false
	case errors.Is(err, ErrAgain): // no frame passes
		*tries, r.since = maxTries, now
		return false
	case err == ErrDown:
		b.lost++
	}
	return true
}

// Recv implements Port.
func (b *Backlog) Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error) {
	if len(b.frames) > 0 {
		b.poll(now)
	}
	return b.Port.Recv(now, buf)
}

// NextTimeout implements Port.
func (b *Backlog) NextTimeout() mono.Time {
	if len(b.frames) == 0 {
		return b.Port.NextTimeout()
	}
	return b.Port.NextTimeout().Min(b.retry)
}

// State implements Monitored. A port that is not Monitored is up.
func (b *Backlog) State() link.State {
	if m, ok := b.Port.(Monitored); ok {
		return m.State()
	}
	return link.State{Up: true}
}

// Poll implements Monitored.
func (b *Backlog) Poll(now mono.Time) {
	if m, ok := b.Port.(Monitored); ok {
		m.Poll(now)
	}
}

// Stats implements Monitored.
func (b *Backlog) Stats() (s Stats) {
	if m, ok := b.Port.(Monitored); ok {
		s = m.Stats()
	}
	s.SendDropped += b.lost
	return s
}

var _ Monitored = (*Backlog)(nil)
