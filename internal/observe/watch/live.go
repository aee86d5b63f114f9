package watch

import (
	"context"
	"time"

	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/plugin/mono"
)

// Tap is where packets pass: bpf/watch.Socket.
type Tap interface {
	// Read passes packets to f until there is none left and deadline has passed.
	Read(deadline time.Time, f func(now mono.Time, ip []byte)) error
	// Lost counts the packets that passed unseen.
	Lost() (uint64, error)
	// Check reports whether there is still something to be seen.
	Check() error
}

// Follow analyses the packets of t and gives a report to show each interval, count of
// them or until ctx ends; a last one then holds everything that passed before.
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

// patience is how long an interruption may wait to be noticed, and packets to be
// analysed. It bounds how much the ring buffer must hold.
const patience = 20 * time.Millisecond

// readUntil analyses what passes until end, or until ctx ends and what has passed is
// analysed.
func readUntil(ctx context.Context, t Tap, a *flow.Analyzer, end time.Time) error {
	for {
		ended := ctx.Err() != nil
		now := time.Now()
		deadline := now.Add(patience)
		if ended {
			deadline = now
		} else if deadline.After(end) {
			deadline = end
		}
		if err := t.Read(deadline, a.Packet); err != nil {
			return err
		}
		if ended || !time.Now().Before(end) {
			return nil
		}
	}
}
