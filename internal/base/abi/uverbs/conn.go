package uverbs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/rundir"
)

// Kinds of descriptors in a response.
const (
	FDNumber  = 1 // its number goes to byte Arg of the response
	FDMemory  = 2 // memory of an extension
	FDEventfd = 3 // an eventfd of an extension
)

// MaxFDs is the number of descriptors that a message can carry.
const MaxFDs = 4

// AnswerLen is the length of an answer's header.
const AnswerLen = 80

// FD is a descriptor of an answer.
type FD struct {
	FD   int
	Kind uint32
	Arg  uint64
	Size uint32 // bytes of memory
}

// Answer is the answer to a request.
type Answer struct {
	Err  error  // sent as its Errno
	Body []byte // after an error, its description; may be empty
	FDs  []FD
}

// answerHdr is the fixed part of an answer.
type answerHdr struct {
	Ret int32
	Len uint32
	NFD uint32
	_   uint32
	FD  [MaxFDs]struct {
		Arg  uint64
		Kind uint32
		Size uint32
	}
}

// Conn is one end of a connection: a client uses Call, a server ReadRequest and
// WriteAnswer.
type Conn struct {
	uc   *net.UnixConn
	gate *Gate // nil: the peer is trusted

	mu   sync.Mutex
	last chan struct{} // closed when the last command sent has its answer; nil if there is none

	// Buffers for receiving, used by the server or by the caller waiting for the response.
	buf []byte
	oob []byte
}

// NewConn creates a Conn of a SOCK_SEQPACKET socket, which it then owns.
func NewConn(uc *net.UnixConn) *Conn {
	return &Conn{uc: uc, buf: make([]byte, MaxMessage+1), oob: make([]byte, unix.CmsgSpace(4*MaxFDs))}
}

// Dial connects to the socket of a device in a trusted run directory (package rundir).
func Dial(path string) (*Conn, error) {
	dir := filepath.Dir(path)
	if err := rundir.Check(dir); err != nil {
		return nil, err
	}
	uc, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	if err := rundir.CheckPeer(dir, uc); err != nil {
		uc.Close()
		return nil, err
	}
	return NewConn(uc), nil
}

// Close closes the connection and aborts Call and ReadRequest.
func (c *Conn) Close() error { return c.uc.Close() }

// Call sends a command with descriptors and waits for the answer. The caller keeps ownership of fds, and owns the
// descriptors of the answer. An error answer is returned as its unix.Errno, or as a Refusal if it has a description.
// After any other error the connection is unusable. Several callers may have commands in flight: the answers have the
// order of the commands.
func (c *Conn) Call(cmd []byte, fds []int) (resp []byte, got []FD, err error) {
	before, answered, err := c.ask(cmd, fds)
	if err != nil {
		return nil, nil, err
	}
	if before != nil {
		<-before
	}
	defer close(answered)
	msg, rights, err := c.receive()
	if err != nil {
		return nil, nil, err
	}
	resp, got, err = parseAnswer(msg, rights)
	if err != nil {
		CloseFDs(rights)
		return nil, nil, err
	}
	return append([]byte(nil), resp...), got, nil
}

// ask sends a command. Its answer arrives after before is closed; the caller then closes answered.
func (c *Conn) ask(cmd []byte, fds []int) (before, answered chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.send(cmd, fds); err != nil {
		return nil, nil, err
	}
	before, answered = c.last, make(chan struct{})
	c.last = answered
	return before, answered, nil
}

// ReadRequest waits for a request; its slices are valid until the next call. The caller drops its descriptors (Drop). After an
// error for which Recoverable is true the server may continue, with an answer that reports the error.
func (c *Conn) ReadRequest() (Request, error) {
	msg, fds, err := c.receive()
	if err != nil {
		return Request{}, err
	}
	r, err := ParseRequest(msg)
	if err != nil {
		c.Drop(fds)
		return Request{}, &requestError{err}
	}
	r.FDs = fds
	return r, nil
}

// ReadMessage waits for a request that is not a command of uverbs; its slice is valid until the next call. Otherwise it
// is like ReadRequest.
func (c *Conn) ReadMessage() (msg []byte, fds []int, err error) { return c.receive() }

// requestError is the error of a bad request on a good connection.
type requestError struct{ error }

func (e *requestError) Unwrap() error { return e.error }

// Recoverable reports whether an error of ReadRequest concerns only that request.
func Recoverable(err error) bool {
	var e *requestError
	return errors.As(err, &e)
}

// WriteAnswer sends an answer. The caller keeps ownership of its descriptors.
func (c *Conn) WriteAnswer(a Answer) error {
	h := answerHdr{Ret: -int32(Errno(a.Err))}
	if h.Ret != 0 {
		text := a.Body[:min(len(a.Body), maxText)]
		h.Len = uint32(len(text))
		return c.send(append(Append(nil, h), text...), nil)
	}
	if len(a.FDs) > MaxFDs {
		return ErrTooBig
	}
	h.Len, h.NFD = uint32(len(a.Body)), uint32(len(a.FDs))
	var fds []int
	for i, f := range a.FDs {
		h.FD[i].Arg, h.FD[i].Kind, h.FD[i].Size = f.Arg, f.Kind, f.Size
		fds = append(fds, f.FD)
	}
	return c.send(append(Append(nil, h), a.Body...), fds)
}

// send sends one datagram.
func (c *Conn) send(msg []byte, fds []int) error {
	if len(msg) > MaxMessage || len(fds) > MaxFDs {
		return ErrTooBig
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err := c.uc.WriteMsgUnix(msg, oob, nil)
	return err
}

// receive receives one datagram. Its descriptors are close-on-exec, as package net requests. receive closes them on
// every error.
func (c *Conn) receive() ([]byte, []int, error) {
	n, oobn, flags, err := c.read()
	fds, rerr := rights(c.oob[:oobn])
	may := c.charge(fds)
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case n > MaxMessage || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = &requestError{ErrTooBig}
	case rerr != nil:
		err = &requestError{rerr}
	case !may:
		err = &requestError{unix.EMFILE}
	default:
		return c.buf[:n], fds, nil
	}
	c.Drop(fds)
	return nil, nil, err
}

// rights returns the descriptors in a control message, including those before an error.
func rights(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		if msgs[i].Header.Level != unix.SOL_SOCKET || msgs[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		got, perr := unix.ParseUnixRights(&msgs[i])
		err = errors.Join(err, perr)
		fds = append(fds, got...)
	}
	return fds, err
}

// CloseFDs closes descriptors.
func CloseFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // Linux always releases the number
	}
}

// parseAnswer decodes an answer. After an error the caller owns the descriptors.
func parseAnswer(msg []byte, fds []int) ([]byte, []FD, error) {
	var h answerHdr
	if err := DecodeInto(msg, &h); err != nil {
		return nil, nil, fmt.Errorf("%w: answer of %d bytes", ErrProtocol, len(msg))
	}
	if errno := unix.Errno(-int64(h.Ret)); h.Ret < 0 {
		if text := msg[AnswerLen:]; len(text) > 0 && int64(h.Len) == int64(len(text)) {
			return nil, nil, &Refusal{errno, string(text)}
		}
		return nil, nil, errno
	}
	resp := msg[AnswerLen:]
	if h.Ret != 0 || int64(h.Len) != int64(len(resp)) || int64(h.NFD) != int64(len(fds)) {
		return nil, nil, fmt.Errorf("%w: answer with status %d announces %d bytes and %d descriptors, but has %d and %d",
			ErrProtocol, h.Ret, h.Len, h.NFD, len(resp), len(fds))
	}
	got := make([]FD, len(fds))
	for i, fd := range fds {
		f := &h.FD[i]
		if f.Kind < FDNumber || f.Kind > FDEventfd ||
			f.Kind == FDNumber && (len(resp) < 4 || f.Arg > uint64(len(resp)-4)) {
			return nil, nil, fmt.Errorf("%w: descriptor of kind %d, argument %d", ErrProtocol, f.Kind, f.Arg)
		}
		got[i] = FD{FD: fd, Kind: f.Kind, Arg: f.Arg, Size: f.Size}
	}
	return resp, got, nil
}
