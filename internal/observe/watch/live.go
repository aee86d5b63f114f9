package watch

import (
	"context"
	"time"

	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/plugin/mono"
)

// Tap is a source of live packets: an interface or the capture of a NIC.
type Tap interface {
	// Read passes packets to an Analyzer. It returns when no packets are left and deadline has passed.
	Read(deadline time.Time, a *flow.Analyzer) error
	// Lost returns the number of packets that the tap dropped.
	Lost() (uint64, error)
	// Check returns an error if the tap can no longer receive packets.
	Check() error
}

// Source is an interface: bpf/watch.Socket.
type Source interface {
	// Read passes RoCEv2 packets to f, as Tap.Read.
	Read(deadline time.Time, f func(now mono.Time, ip []byte)) error
	// Others returns how many other packets have passed, by reason.
	Others() (map[string]uint64, error)
	Lost() (uint64, error)
	Check() error
}

// live is the Tap of an interface.
type live struct{ Source }

// Live returns the Tap of an interface.
func Live(s Source) Tap { return live{s} }

// Read implements Tap.
func (l live) Read(deadline time.Time, a *flow.Analyzer) error {
	if err := l.Source.Read(deadline, a.Packet); err != nil {
		return err
	}
	others, err := l.Others()
	before := a.Totals().Others
	for reason, n := range others {
		if n > before[reason] {
			a.Other(reason, n-before[reason])
		}
	}
	return err
}

// Follow analyses the packets of t and calls show at each interval. It returns after count reports. When ctx
// ends, a final report covers all packets until then.
func Follow(ctx context.Context, t Tap, r *Reporter, a *flow.Analyzer, every time.Duration, count int, show func(*Report) error) error {
	next := time.Now().Add(every)
	for n := 1; ; n++ {
		if err := readUntil(ctx, t, a, next); err != nil {
			return err
		}
		lost, err := t.Lost()
		if err != nil {
			return err
		}
		if err := show(r.Report(time.Now(), a, lost)); err != nil {
			return err
		}
		if ctx.Err() != nil || n == count {
			return nil
		}
		if err := t.Check(); err != nil {
			return err
		}
		next = next.Add(every)
		if now := time.Now(); next.Before(now) {
			next = now.Add(every)
		}
	}
}

// readInterval limits the delay until an interrupt takes effect, and the delay of the analysis. It determines the size
// that the ring buffer needs.
const readInterval = 20 * time.Millisecond

// readUntil analyses packets until end. If ctx ends first, it analyses the packets that have already passed.
func readUntil(ctx context.Context, t Tap, a *flow.Analyzer, end time.Time) error {
	for {
		ended := ctx.Err() != nil
		now := time.Now()
		deadline := now.Add(readInterval)
		if ended {
			deadline = now
		} else if deadline.After(end) {
			deadline = end
		}
		if err := t.Read(deadline, a); err != nil {
			return err
		}
		if ended || !time.Now().Before(end) {
			return nil
		}
	}
}
