package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
)

// Replay analyses the capture r, pcap or pcapng, until r or ctx ends. It calls show with a final report, even after a
// read error. Unless every is 0, Replay also calls show at this interval of capture time.
func Replay(ctx context.Context, r io.Reader, rep *Reporter, a *flow.Analyzer, every time.Duration, show func(*Report) error) error {
	var last, next time.Time
	err := read(ctx, r, func(f *pcapng.Frame, ip []byte) (err error) {
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
		analyse(a, f, ip)
		return err
	})
	if err != nil && last.IsZero() {
		return err // not a capture file
	}
	return errors.Join(show(rep.Report(last, a, 0)), err)
}

// analyse passes the packet of a frame to a. Only frames with tunnels or IPv6 extension headers need a dissection.
func analyse(a *flow.Analyzer, f *pcapng.Frame, ip []byte) {
	now := mono.Time(f.Time)
	if _, plain := bth.ReadDatagram(bth.EtherType(ip), ip); !plain {
		if p, err := dissect.Frame(f); err == nil && p.RoCE {
			a.Datagram(now, &p.Datagram, p.IP, p.ICRC == nil)
			return
		}
	}
	a.Packet(now, ip)
}

// read calls take with each frame of a capture and its IP packet.
func read(ctx context.Context, r io.Reader, take func(f *pcapng.Frame, ip []byte) error) error {
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
		if err != nil && n == 1 {
			return fmt.Errorf("packet %d: %w", n, err)
		}
		if etherType == 0 {
			off = len(f.Data) // too short for a network header, or of a link type that is not supported
		}
		if err := take(&f, f.Data[off:]); err != nil {
			return err
		}
	}
	return nil // live captures end with an interrupt
}
