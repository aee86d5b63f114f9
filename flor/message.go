package flor

import (
	"context"
	"sync/atomic"
	"unsafe"

	"roced.io/roced/flor/engine"
)

// Message is a received message or a message to send. Sending copies Data unless it lies in memory of
// Device.NewMessage. A message is not safe for concurrent use.
type Message struct {
	// Data may be shortened at both ends. Do not access Data of a received message after Release.
	Data []byte

	memory *memory // owner of the memory; nil: not registered
	d      *Device // owner of a received message
	lkey   uint32
	base   uint64
	room   int
	free   func()
	over   atomic.Bool // released, or sent

	from    *Conn
	call    uint32
	request bool // the sender waits for a reply
}

// Release frees the memory of a message. The caller of an unanswered request gets ErrUnanswered. Do not release a message
// after sending it. A second Release does nothing.
func (m *Message) Release() {
	if !m.over.CompareAndSwap(false, true) {
		return
	}
	m.release()
}

func (m *Message) release() {
	if m.request {
		m.request = false
		m.from.unanswered(m.call)
	}
	if m.free != nil {
		m.free()
	}
}

// IsRequest reports whether the message requires a Reply.
func (m *Message) IsRequest() bool { return m.request }

// Reply sends the reply to a request, like Send. The request keeps its memory. A request may be its own reply.
func (m *Message) Reply(ctx context.Context, answer *Message) error {
	if !m.request {
		answer.Release()
		return ErrNoRequest
	}
	m.request = false
	return m.from.send(ctx, "reply", makeTag(tagResponse, m.call), answer)
}

// PostReply sends the reply to a request, like Conn.Post.
func (m *Message) PostReply(ctx context.Context, answer *Message, done func(error)) error {
	if !m.request {
		answer.Release()
		return ErrNoRequest
	}
	m.request = false
	return m.from.post(ctx, "reply", makeTag(tagResponse, m.call), answer, op{done: done})
}

// registered returns the message in registered memory of d, copied if necessary.
func (m *Message) registered(ctx context.Context, d *Device) (*Message, error) {
	if m.over.Load() {
		return nil, ErrReleased
	}
	if len(m.Data) == 0 {
		return m, nil
	}
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data))))
	if (m.d == d || m.memory == &d.send) && at >= m.base && at+uint64(len(m.Data)) <= m.base+uint64(m.room) {
		return m, nil
	}
	n, err := d.NewMessage(ctx, len(m.Data))
	if err != nil {
		return nil, err
	}
	copy(n.Data, m.Data)
	m.Release()
	return n, nil
}

// buffer returns the message as a buffer of the engine.
func (m *Message) buffer() engine.Buffer {
	if len(m.Data) == 0 {
		return engine.Buffer{}
	}
	return engine.Buffer{Data: m.Data, Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))), Key: m.lkey}
}
