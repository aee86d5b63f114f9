package server

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/rocev2"
)

var native = binary.NativeEndian

// request is a command on its way through the server, with its answer.
type request struct {
	uverbs.Request
	core     any // response structure, nil for none
	provider any // the provider's part of it
	answer   uverbs.Answer
}

// decode fills v, a pointer to a structure of fixed size, from the command.
func (q *request) decode(v any) error {
	if err := uverbs.DecodeInto(q.Body, v); err != nil {
		return unix.EINVAL
	}
	return nil
}

// source is what follows the command, a RegMR or ReregMR, about where its memory is.
func (q *request) source(command any) (src uverbs.MRSource, err error) {
	if rest := q.Body[binary.Size(command):]; len(rest) > 0 {
		return uverbs.Decode[uverbs.MRSource](rest)
	}
	return src, nil
}

// toMap is what follows the source of a command if its kind is SourceMap.
func (q *request) toMap(command any) (in uverbs.MapMemory, err error) {
	return uverbs.Decode[uverbs.MapMemory](q.Body[binary.Size(command)+uverbs.Size[uverbs.MRSource]():])
}

// attach adds a descriptor to the answer; it is closed when it has been sent.
func (q *request) attach(f uverbs.FD) { q.answer.FDs = append(q.answer.FDs, f) }

// finish makes the answer of what the command has left.
func (q *request) finish(err error) {
	if err == nil && q.core != nil {
		q.answer.Body, err = q.Reply(q.core, q.provider)
	}
	if err != nil {
		q.closeFDs()
		q.answer = uverbs.Answer{Err: errnoOf(err)}
		if a := (*advice)(nil); errors.As(err, &a) {
			q.answer.Body = []byte(a.text)
		}
	}
}

func (q *request) closeFDs() {
	for _, f := range q.answer.FDs {
		unix.Close(f.FD)
	}
	q.answer.FDs = nil
}

// errnoOf translates an error into the number that a kernel would answer.
func errnoOf(err error) unix.Errno {
	switch {
	case errors.Is(err, rocev2.ErrNoMem), errors.Is(err, rocev2.ErrNeighbours), errors.Is(err, rocev2.ErrLimit):
		return unix.ENOMEM
	case errors.Is(err, rocev2.ErrBusy):
		return unix.EBUSY
	case errors.Is(err, rocev2.ErrAccess):
		return unix.EACCES
	case errors.Is(err, rocev2.ErrNoRoute):
		return unix.ENETUNREACH
	case errors.Is(err, shard.ErrClosed):
		return unix.EIO
	}
	if errno := uverbs.Errno(err); errno != unix.EIO {
		return errno
	}
	return unix.EINVAL // what the NIC and the transport refuse
}
