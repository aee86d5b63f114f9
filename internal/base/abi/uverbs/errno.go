package uverbs

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Errors of the framing.
var (
	// ErrProtocol: the received message is not a response.
	ErrProtocol = errors.New("uverbs: protocol violation")
	// ErrTooBig: a request was longer than MaxMessage or carried more than MaxFDs descriptors. The connection remains
	// usable.
	ErrTooBig = errors.New("uverbs: message too big")
)

// maxText is the maximum length of a Refusal's text in bytes.
const maxText = 1024

// Refusal is an error answer with a description.
type Refusal struct {
	Errno unix.Errno
	Text  string
}

// Error returns the error number and the description as text.
func (r *Refusal) Error() string { return r.Errno.Error() + ": " + r.Text }

// Unwrap returns the error number.
func (r *Refusal) Unwrap() error { return r.Errno }

// Errno returns the error number of err, as sent in the answer to a failed command. Zero means no error.
func Errno(err error) unix.Errno {
	var e unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e
	case errors.Is(err, fs.ErrPermission):
		return unix.EPERM
	case errors.Is(err, fs.ErrNotExist):
		return unix.ENOENT
	case errors.Is(err, ErrTooBig):
		return unix.EMSGSIZE
	}
	return unix.EIO
}
