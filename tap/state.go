package tap

import (
	"time"

	"roced.io/roced/plugin/mono"
)

// LinkState is what is known of a link. It is as fresh as the last Poll.
type LinkState struct {
	Up  bool  // frames can be sent and received
	MTU int   // largest IP packet in bytes; 0 while it is not known or not limited
	Err error // why the link is not up
}

// Monitored is a Port whose state can be watched. All ports of this package are.
// A port looks after itself whenever Recv is called at or after NextTimeout; who
// hears of a change earlier, as from netlink, calls Poll.
type Monitored interface {
	Port
	State() LinkState
	// Poll looks at the link now: it notices that the link has gone up or down,
	// has changed its MTU or has vanished, and it tries to bring a vanished one
	// back. It makes system calls, but does not wait for anything.
	Poll(now mono.Time)
	Stats() Stats
}

// Stats counts what went wrong on a port.
type Stats struct {
	SendDropped uint64 // frames that the kernel refused
	RecvDropped uint64 // frames received that were unusable
	Overruns    uint64 // frames that the kernel had no room for until they were received
	Refused     uint64 // ICMP errors that frames were answered with
	Again       uint64 // sends put off because there was no room
	Lost        uint64 // times that the link vanished
	Reopened    uint64 // times that it came back
}

// Times of the care for a link.
const (
	pollInterval = time.Second            // look at a link that is up
	minBackoff   = 100 * time.Millisecond // between attempts to bring it back
	maxBackoff   = 2 * time.Second
	openInterval = 5 * time.Millisecond // look whether an attempt has ended
)

// backoff spaces out the attempts to bring a link back.
type backoff struct{ wait time.Duration }

// after returns when the next attempt is due; each is twice as far as the one
// before, up to a limit.
func (b *backoff) after(now mono.Time) mono.Time {
	b.wait = min(max(2*b.wait, minBackoff), maxBackoff)
	return now.Add(b.wait)
}

func (b *backoff) reset() { b.wait = 0 }
