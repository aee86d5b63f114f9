package flor

import (
	"context"
	"sync/atomic"
	"unsafe"

	"roced.io/roced/flor/engine"
)

// Message is one that has come, or is to be sent. Of the latter, those of Device.NewMessage lie in memory that the NIC reads;
// what Data refers to otherwise is copied. A message is for one goroutine at a time.
type Message struct {
	// Data may be made shorter, from both ends. The memory of what has come must not be used after Release.
	Data []byte

	memory *memory // whose lkey is; nil: not registered
	d      *Device // the same, for what has come
	lkey   uint32
	base   uint64
	room   int
	free   func()
	over   atomic.Bool // released, or sent

	from    *Conn
	call    uint32
	request bool // to be answered
}

// Release gives the memory of a message back. Of a request that has not been answered, the caller is told. What has been
// sent must not be released; Release of what has been released does nothing.
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

// IsRequest reports whether the message is to be answered by Reply.
func (m *Message) IsRequest() bool { return m.request }

// Reply answers a request, as Send does; the request's memory stays as it is. It may be answered by itself, for an echo.
func (m *Message) Reply(ctx context.Context, answer *Message) error {
	if !m.request {
		answer.Release()
		return ErrNoRequest
	}
	m.request = false
	return m.from.send(ctx, "reply", makeTag(tagResponse, m.call), answer)
}

// PostReply is Reply as Conn.Post does it.
func (m *Message) PostReply(ctx context.Context, answer *Message, done func(error)) error {
	if !m.request {
		answer.Release()
		return ErrNoRequest
	}
	m.request = false
	return m.from.post(ctx, "reply", makeTag(tagResponse, m.call), answer, op{done: done})
}

// registered returns the message as d's NIC knows it, copied if it has to be.
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

// buffer is the message to the engine.
func (m *Message) buffer() engine.Buffer {
	if len(m.Data) == 0 {
		return engine.Buffer{}
	}
	return engine.Buffer{Data: m.Data, Addr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.Data)))), Key: m.lkey}
}
