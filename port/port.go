// Package port defines the links of a NIC.
//
// The folders tap, port/packet, port/unix, port/udp and port/xdp hold the kinds of links, and port/planes a link on several
// of them. This package holds their common interface, their common parts, and fault injection for all of them.
//
// No promise: this package may change between releases.
package port

import (
	"errors"
	"fmt"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/port/link"
)

// ErrAgain means that a link has no frame to receive or no room to send.
var ErrAgain = errors.New("link: would block")

// ErrLater is the ErrAgain of a link that has room after its NextTimeout. Its descriptor does not tell.
var ErrLater = fmt.Errorf("%w until a timer", ErrAgain)

// ErrAgain of one frame, for which the kernel has no buffer (ENOBUFS, ENOMEM): a queue is full, or a filter drops the frame. A
// Backlog handles them. After ErrRefusedPart, Frame.Begun datagrams of a super-frame have been sent, and the next one has been refused.
var (
	ErrRefused     = fmt.Errorf("%w: no buffer for the frame", ErrAgain)
	ErrRefusedPart = fmt.Errorf("%w: no buffer for a part of the frame", ErrAgain)
)

// ErrDown means that a link is down or does not exist. The link may come back.
var ErrDown = errors.New("link: down")

// errClosed is the state of a closed port.
var errClosed = errors.New("link: closed")

// Port is a link. One goroutine uses it. No call blocks.
type Port interface {
	// Send transmits a frame or super-frame. The port keeps no reference to it. After ErrAgain nothing but the first
	// Frame.Begun datagrams has been sent; the caller waits until FD is writable or until NextTimeout.
	Send(now mono.Time, f *link.Frame) error
	// Recv returns one frame or super-frame, starting at the Ethernet header. It is in buf or in memory of the port,
	// where it stays until the next call of Recv or Poll. segSize is as in link.Frame. After ErrAgain the caller
	// waits until FD is readable.
	Recv(now mono.Time, buf []byte) (frame []byte, segSize int, err error)
	// NextTimeout returns the time by which the caller must call Recv although FD is not ready, such as the
	// release of a frame that a fault rule delays. It is mono.Never if there is no such time.
	NextTimeout() mono.Time
	// FD returns the descriptor to poll, -1 while the link is down.
	FD() int
	// Offload returns the super-frames that Send accepts now.
	Offload() link.Offload
	// Close releases the link.
	Close() error
}

// Monitored is a Port that reports its state. All ports of this module are Monitored. A port updates its state
// whenever Recv is called at or after NextTimeout. A caller that learns of a change earlier, for example from
// netlink, calls Poll.
type Monitored interface {
	Port
	State() link.State
	// Poll checks the link now. It detects changes of the link state and of the MTU, and it reopens a link that
	// has vanished. It makes system calls but does not block.
	Poll(now mono.Time)
	Stats() Stats
}

// Stats counts the errors of a port.
type Stats struct {
	SendDropped uint64 // frames that the kernel refused
	RecvDropped uint64 // received frames that were unusable
	Overruns    uint64 // received frames that the kernel, or the queue from other NICs of a switch, dropped for lack of space
	Refused     uint64 // ICMP errors received in response to frames
	Again       uint64 // sends deferred for lack of room
	Lost        uint64 // times that the link vanished
	Reopened    uint64 // times that the link came back
}

// Add adds the counters of another port.
func (s *Stats) Add(o Stats) {
	s.SendDropped += o.SendDropped
	s.RecvDropped += o.RecvDropped
	s.Overruns += o.Overruns
	s.Refused += o.Refused
	s.Again += o.Again
	s.Lost += o.Lost
	s.Reopened += o.Reopened
}
