package verbs

import (
	"errors"
	"fmt"
)

// Errors that callers may want to tell apart; use errors.Is. Errors of the daemon
// are unix.Errno.
var (
	// ErrQueueFull says that a work queue has no room. What has completed makes
	// room, once the daemon has seen to it.
	ErrQueueFull = errors.New("queue is full")
	// ErrDeviceFatal says that the daemon has gone. Close is all that can be done.
	ErrDeviceFatal = errors.New("device fatal: the daemon is gone")
	// ErrClosed says that the context or the object has been closed.
	ErrClosed = errors.New("closed")
	// ErrProtocol says that the daemon does not speak our protocol.
	ErrProtocol = errors.New("protocol violation")
	// ErrNoDevice says that there is no such device.
	ErrNoDevice = errors.New("no such device")
	// ErrNoChannel says that a completion queue has no completion channel.
	ErrNoChannel = errors.New("completion queue has no channel")
	// ErrCQOverrun says that a completion queue was full when there was another
	// completion; it is of no more use.
	ErrCQOverrun = errors.New("completion queue has overflowed")
	// ErrTooManySGEs, ErrInline and ErrTooLong say what is wrong with a work
	// request; ErrState that the state of the queue pair does not permit posting.
	ErrTooManySGEs = errors.New("too many SGEs")
	ErrInline      = errors.New("inline data too long, or beside SGEs")
	ErrTooLong     = errors.New("message too long")
	ErrState       = errors.New("queue pair is not in a state to post to")
	// ErrRange says that a range is not inside its memory.
	ErrRange = errors.New("range is not inside the memory")
)

// Error is an error of a verb.
type Error struct {
	Verb   string // such as create_qp
	Detail string // what it was about, may be empty
	Err    error
}

// Error describes the error.
func (e *Error) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("verbs: %s: %v", e.Verb, e.Err)
	}
	return fmt.Sprintf("verbs: %s: %s: %v", e.Verb, e.Detail, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func fail(verb, detail string, err error) error {
	return &Error{Verb: verb, Detail: detail, Err: err}
}

// explain adds a detail to an error of a verb.
func explain(err error, detail string) error {
	var e *Error
	if errors.As(err, &e) && e.Detail == "" {
		e.Detail = detail
	}
	return err
}

// CompletionError is the error that a completion reports.
type CompletionError struct {
	WRID   uint64
	QPN    uint32
	Status Status
}

// Error describes the error.
func (e *CompletionError) Error() string {
	return fmt.Sprintf("verbs: work request %d of queue pair %d: %v", e.WRID, e.QPN, e.Status)
}
