package server

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/shm"
	"roced.io/roced/internal/base/abi/uverbs"
	"roced.io/roced/internal/daemon/shard"
	"roced.io/roced/rocev2"
	"roced.io/roced/rocev2/stack"
)

var native = binary.NativeEndian

// request is a command in progress, with its answer.
type request struct {
	uverbs.Request
	core     any // response structure, nil for none
	provider any // the provider's part of the response
	answer   uverbs.Answer
}

// decode parses the command into v, a pointer to a structure of fixed size.
func (q *request) decode(v any) error {
	if err := uverbs.DecodeInto(q.Body, v); err != nil {
		return unix.EINVAL
	}
	return nil
}

// source is the location of memory to register.
type source struct {
	uverbs.MRSource
	file uverbs.FileSource // SourceFile
	fds  []int             // of the command
}

// source returns the description of the memory that follows the command, a RegMR or ReregMR.
func (q *request) source(command any) (src source, err error) {
	rest := q.Body[binary.Size(command):]
	if len(rest) == 0 {
		return src, nil
	}
	if src.MRSource, err = uverbs.Decode[uverbs.MRSource](rest); err == nil && src.Kind == uverbs.SourceFile {
		src.fds = q.FDs
		src.file, err = uverbs.Decode[uverbs.FileSource](rest[uverbs.Size[uverbs.MRSource]():])
	}
	return src, err
}

// toMap returns the MapMemory that follows the source if its kind is SourceMap.
func (q *request) toMap(command any) (in uverbs.MapMemory, err error) {
	return uverbs.Decode[uverbs.MapMemory](q.Body[binary.Size(command)+uverbs.Size[uverbs.MRSource]():])
}

// moreParts returns the parts that follow a MapMemory.
func (q *request) moreParts() ([]shm.Part, error) {
	rest := q.Body[uverbs.Size[uverbs.MapMemory]():]
	size := uverbs.Size[shm.Part]()
	if len(rest)%size != 0 {
		return nil, unix.EINVAL
	}
	parts := make([]shm.Part, len(rest)/size)
	for i := range parts {
		if err := uverbs.DecodeInto(rest[i*size:], &parts[i]); err != nil {
			return nil, unix.EINVAL
		}
	}
	return parts, nil
}

// attach adds a descriptor to the answer. It is closed after transmission.
func (q *request) attach(f uverbs.FD) { q.answer.FDs = append(q.answer.FDs, f) }

// finish makes the answer from the result of the command.
func (q *request) finish(err error) {
	if err == nil && q.core != nil {
		q.answer.Body, err = q.Reply(q.core, q.provider)
	}
	if err != nil {
		q.closeFDs()
		q.answer = uverbs.Answer{Err: errnoOf(err)}
		if errors.As(err, new(*advice)) || errors.Is(err, stack.ErrGIDIndex) || errors.Is(err, stack.ErrFamily) {
			q.answer.Body = []byte(err.Error())
		}
	}
}

func (q *request) closeFDs() {
	for _, f := range q.answer.FDs {
		unix.Close(f.FD)
	}
	q.answer.FDs = nil
}

// errnoOf converts an error to the errno that the kernel would return.
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
	return unix.EINVAL // rejected by the NIC or the transport
}
