package watch

import (
	"context"
	"fmt"
	"io"

	"roced/internal/flow"
	"roced/internal/pcapng"
	"roced/mono"
)

// Read analyses the capture file r, pcap or pcapng, until it ends or ctx does. The
// report holds what was read before an error.
func Read(ctx context.Context, r io.Reader, a *flow.Analyzer) error {
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
			off = len(f.Data) // too short to have a network header
		}
		a.Packet(mono.Time(f.Time), f.Data[off:])
	}
	return ctx.Err()
}
