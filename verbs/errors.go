package verbs

import (
	"errors"
	"fmt"
)

// Errors for errors.Is. Errors of the daemon are a unix.Errno.
var (
	// ErrQueueFull: the work queue has no room. The daemon makes room after
	// completions.
	ErrQueueFull = errors.New("queue is full")
	// ErrDeviceFatal: the daemon has ended. Only Close is useful.
	ErrDeviceFatal = errors.New("device fatal: the daemon is gone")
	// ErrClosed: the context or the object has been closed.
	ErrClosed = errors.New("closed")
	// ErrProtocol: the daemon violates the protocol or has another version.
	ErrProtocol = errors.New("protocol violation")
	// ErrNoDevice: no device has this name.
	ErrNoDevice = errors.New("no such device")
	// ErrNoChannel: the completion queue has no completion channel.
	ErrNoChannel = errors.New("completion queue has no channel")
	// ErrCQOverrun: the completion queue was full when another completion arrived.
	// It is unusable from then on.
	ErrCQOverrun = errors.New("completion queue has overflowed")
	// Errors of posting. ErrState: the state of the queue pair does not permit it.
	ErrTooManySGEs = errors.New("too many SGEs")
	ErrInline      = errors.New("inline data too long, or beside SGEs")
	ErrTooLong     = errors.New("message too long")
	ErrState       = errors.New("queue pair is in a state that does not permit posting")
	// ErrRange: a range is not inside its memory.
	ErrRange = errors.New("range is not inside the memory")
)

// Error is the error of a verb.
type Error struct {
	Verb   string // for example create_qp
	Detail string // the subject; may be empty
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

// CompletionError is the error of WC.Err.
type CompletionError struct {
	WRID   uint64
	QPN    uint32
	Status Status
}

// Error describes the error.
func (e *CompletionError) Error() string {
	return fmt.Sprintf("verbs: work request %d of queue pair %d: %v", e.WRID, e.QPN, e.Status)
}
