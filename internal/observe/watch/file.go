package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
)

// Replay analyses the capture r, pcap or pcapng, until r or ctx ends. It calls show with a final report, even after a
// read error. Unless every is 0, Replay also calls show at this interval of capture time.
func Replay(ctx context.Context, r io.Reader, rep *Reporter, a *flow.Analyzer, every time.Duration, show func(*Report) error) error {
	var last, next time.Time
	err := read(ctx, r, a, func(at time.Time) error {
		last = at
		if next.IsZero() {
			next = at.Add(every)
		}
		if every == 0 || at.Before(next) {
			return nil
		}
		report := rep.Report(next, a, 0)
		if next = next.Add(every); next.Before(at) {
			next = at.Add(every) // skip intervals without packets
		}
		return show(report)
	})
	if err != nil && last.IsZero() {
		return err // not a capture file
	}
	return errors.Join(show(rep.Report(last, a, 0)), err)
}

// read analyses the packets of a capture. It calls before with the time of each packet, before the analysis.
func read(ctx context.Context, r io.Reader, a *flow.Analyzer, before func(at time.Time) error) error {
	rd, err := pcapng.NewReader(r)
	if err != nil {
		return err
	}
	var f pcapng.Frame
	var vlan []uint16
	for n := 1; ctx.Err() == nil; n++ {
		if err := rd.Next(&f); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		vlan = vlan[:0]
		off, etherType, err := f.Link.Network(f.Data, &vlan)
		if err != nil {
			return fmt.Errorf("packet %d: %w", n, err)
		}
		if etherType == 0 {
			off = len(f.Data) // too short for a network header
		}
		if err := before(time.Unix(0, f.Time).UTC()); err != nil {
			return err
		}
		a.Packet(mono.Time(f.Time), f.Data[off:])
	}
	return nil // live captures end with an interrupt
}
