package watch

import (
	"context"
	"errors"
	"io"
	"time"

	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
)

// Replay analyses the capture r, pcap or pcapng, until r or ctx ends. It calls show with a final report, even after a
// read error. Unless every is 0, Replay also calls show at this interval of capture time.
func Replay(ctx context.Context, r io.Reader, rep *Reporter, a *flow.Analyzer, every time.Duration, show func(*Report) error) (err error) {
	var last, next time.Time
	rep.cut, err = dissect.Read(r, func(_ int, f *pcapng.Frame, p *dissect.Packet) (err error) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		at := time.Unix(0, f.Time).UTC()
		last = at
		if next.IsZero() {
			next = at.Add(every)
		}
		if every > 0 && !at.Before(next) {
			err = show(rep.Report(next, a, 0))
			if next = next.Add(every); next.Before(at) {
				next = at.Add(every) // skip intervals without packets
			}
		}
		p.Analyse(a, f)
		return err
	})
	if ctx.Err() != nil {
		err = nil // live captures end with an interrupt
	}
	if err != nil && last.IsZero() {
		return err // not a capture file
	}
	return errors.Join(show(rep.Report(last, a, 0)), err)
}
