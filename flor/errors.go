package flor

import (
	"errors"
	"fmt"
	"net/netip"

	"roced.io/roced/flor/engine"
)

var (
	// ErrClosed: this side has closed the connection, its Device or its Listener.
	ErrClosed = engine.ErrClosed
	// ErrPeerClosed: the peer has closed the connection or has ended.
	ErrPeerClosed = errors.New("flor: closed by the peer")
	// ErrSilent: the peer has not acknowledged within Config.Engine.GiveUp.
	ErrSilent = engine.ErrSilent
	// ErrTooLong: the message is longer than Device.MaxMessage.
	ErrTooLong = engine.ErrTooLong
	// ErrUnanswered: the peer has released the request without a reply.
	ErrUnanswered = errors.New("flor: the peer released the request without an answer")
	// ErrNoRequest: the message is not a request, or it has a reply already.
	ErrNoRequest = errors.New("flor: not a request, or already answered")
	// ErrProtocol: the peer violates the protocol.
	ErrProtocol = errors.New("flor: protocol violation")
	// ErrReleased: the message has been sent or released already.
	ErrReleased = errors.New("flor: the message has been released")
)

// Error is the error of a connection or of its setup.
type Error struct {
	Op            string // for example "call"
	Local, Remote netip.AddrPort
	Err           error
}

// Error returns the connection and the cause as text.
func (e *Error) Error() string {
	if !e.Local.IsValid() {
		return fmt.Sprintf("flor %s %v: %v", e.Op, e.Remote, e.Err)
	}
	return fmt.Sprintf("flor %s %v-%v: %v", e.Op, e.Local, e.Remote, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
