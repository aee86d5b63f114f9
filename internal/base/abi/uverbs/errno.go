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
	// ErrTooBig says that a request was longer than MaxMessage or carried more
	// than MaxFDs descriptors. The connection can go on.
	ErrTooBig = errors.New("uverbs: message too big")
)

// maxText bounds the sentence of a Refusal, in bytes.
const maxText = 1024

// Refusal is an answer that reports an error and says more about it.
type Refusal struct {
	Errno unix.Errno
	Text  string
}

// Error says both.
func (r *Refusal) Error() string { return r.Errno.Error() + ": " + r.Text }

// Unwrap returns the number.
func (r *Refusal) Unwrap() error { return r.Errno }

// Errno returns the error number that err stands for: what the answer to a command
// that failed with it carries. Zero stands for no error.
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
