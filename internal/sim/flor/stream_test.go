package flor

import (
	flor "roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
)

// Stream is an application that keeps some messages of one length under way from a host to another, as
// RPCs with short answers do.
type Stream struct {
	Bytes       int
	Count       int // in all
	Outstanding int // at a time: the paper's I/O depth

	Delivered int       // messages that have come
	Failed    int       // that were told of with an error
	Ended     mono.Time // when the last one came

	from  *Host
	conn  *flor.Conn
	data  flor.Buffer
	begun int
	free  []flor.Buffer // landing buffers
}

// Begin starts it on a connection of from.
func (s *Stream) Begin(from *Host, c *flor.Conn) error {
	s.from, s.conn = from, c
	s.data, _ = from.Memory(s.Bytes)
	for range s.Outstanding {
		if err := s.send(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) send() error {
	if s.begun == s.Count {
		return nil
	}
	s.begun++
	return s.from.Send(s.conn, uint64(s.begun), s.data)
}

// User returns a stream as the user of a host: the sending or the receiving one.
func (s *Stream) User(h *Host) flor.User { return &streamUser{s, h} }

type streamUser struct {
	*Stream
	h *Host
}

// Delivered implements flor.User.
func (u *streamUser) Delivered(now mono.Time, _ *flor.Conn, m flor.Message) {
	u.Stream.Delivered++
	u.Ended = now
	if m.Landing {
		u.free = append(u.free, m.Buffer)
	}
	u.h.Release(m)
}

// Told implements flor.User.
func (u *streamUser) Told(_ mono.Time, _ *flor.Conn, _ uint64, err error) {
	if err != nil {
		u.Failed++
		return
	}
	if err := u.send(); err != nil {
		u.Failed++
	}
}

// Landing implements flor.User.
func (u *streamUser) Landing(_ *flor.Conn, n int) (flor.Buffer, bool) {
	if last := len(u.free) - 1; last >= 0 {
		b := u.free[last]
		u.free = u.free[:last]
		return b, true
	}
	return u.h.Memory(n)
}

// Unused implements flor.User.
func (u *streamUser) Unused(_ *flor.Conn, b flor.Buffer) { u.free = append(u.free, b) }

// Closed implements flor.User.
func (u *streamUser) Closed(mono.Time, *flor.Conn, error) {}
