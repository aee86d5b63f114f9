// Package tap holds the links of a NIC: TAP devices and AF_PACKET sockets with UDP segmentation
// offload and AF_UNIX datagram sockets that carry one Ethernet frame each.
package tap

import (
	"errors"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/rocev2"
)

// ErrAgain says that a link has nothing to receive or no room to send.
var ErrAgain = errors.New("link: would block")

// ErrDown says that a link is down or gone; it may come back.
var ErrDown = errors.New("link: down")

// Port is a link. It is used by one goroutine; no call blocks.
type Port interface {
	// Send transmits a frame or super-frame. It has been copied when Send
	// returns. ErrAgain: not sent, wait until FD is writable.
	Send(now mono.Time, f *rocev2.Frame) error
	// Recv reads one frame or super-frame into buf, from the Ethernet header
	// on. segSize is as in rocev2.Frame. ErrAgain: nothing there, wait on FD.
	Recv(now mono.Time, buf []byte) (n, segSize int, err error)
	// NextTimeout is when the port wants to be called without FD being ready
	// (frames held back by a fault rule); mono.Never if not at all.
	NextTimeout() mono.Time
	// FD is the descriptor to poll, -1 while the link is gone.
	FD() int
	// Offload is what Send takes now.
	Offload() rocev2.Offload
	// Close releases the link.
	Close() error
}
