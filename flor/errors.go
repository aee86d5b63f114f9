package flor

import (
	"errors"
	"fmt"
	"net/netip"

	"roced.io/roced/flor/engine"
)

var (
	// ErrClosed says that this side has closed the connection, or what it belongs to.
	ErrClosed = engine.ErrClosed
	// ErrPeerClosed says that the peer has closed the connection, or is gone.
	ErrPeerClosed = errors.New("flor: closed by the peer")
	// ErrSilent says that the peer has acknowledged nothing for too long.
	ErrSilent = engine.ErrSilent
	// ErrTooLong says that a message is longer than Device.MaxMessage.
	ErrTooLong = engine.ErrTooLong
	// ErrUnanswered says that the peer has released a request without an answer.
	ErrUnanswered = errors.New("flor: the peer gives no answer")
	// ErrNoRequest says that only a request can be answered, once.
	ErrNoRequest = errors.New("flor: no request, or answered before")
	// ErrProtocol says that the peer does what it must not.
	ErrProtocol = errors.New("flor: protocol")
	// ErrReleased says that a message has been sent or released before.
	ErrReleased = errors.New("flor: the message has been released")
)

// Error is an error of a connection, or of making one.
type Error struct {
	Op            string // such as call
	Local, Remote netip.AddrPort
	Err           error
}

// Error says which connection it is about, and why.
func (e *Error) Error() string {
	if !e.Local.IsValid() {
		return fmt.Sprintf("flor %s %v: %v", e.Op, e.Remote, e.Err)
	}
	return fmt.Sprintf("flor %s %v-%v: %v", e.Op, e.Local, e.Remote, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
