package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// Bootstrap exchanges the parameters of queue pairs between two programs over a stream connection, for instance of TCP,
// before they can use RDMA. Programs that have a connection manager at both ends use CM instead.
//
// A message is a JSON value. Bootstrap reads ahead: the program must read all data of the connection with Receive.
type Bootstrap struct {
	conn net.Conn
	enc  *json.Encoder
	dec  *json.Decoder
}

// NewBootstrap returns a Bootstrap over conn. The caller keeps ownership of conn: it
// sets deadlines for Send and Receive and closes conn.
func NewBootstrap(conn net.Conn) *Bootstrap {
	return &Bootstrap{conn: conn, enc: json.NewEncoder(conn), dec: json.NewDecoder(conn)}
}

// Send sends a message: v as JSON.
func (b *Bootstrap) Send(v any) error { return b.enc.Encode(v) }

// Receive waits for the next message and stores it in v. At the end of the
// connection it returns io.EOF.
func (b *Bootstrap) Receive(v any) error { return b.dec.Decode(v) }

// bootstrapMessage is a message of Connect.
type bootstrapMessage struct {
	Info  *ConnInfo `json:"info,omitempty"`
	Ready bool      `json:"ready,omitempty"`
	Error string    `json:"error,omitempty"`
}

// Connect connects q, in the RESET state, to the queue pair that the peer passes to Connect, and returns its address.
// Connect calls prepare in the INIT state, to post the receives for the peer's first messages; prepare may be nil. When
// Connect returns, both queue pairs are in the RTS state.
//
// Each side sends its ConnInfo, then {"ready":true} when its queue pair is in the RTS state, or {"error":"..."}. The
// connection must buffer a message, as TCP does. If ctx ends, the connection is of no further use.
func (b *Bootstrap) Connect(ctx context.Context, q *QP, p ConnParams, prepare func() error) (remote ConnInfo, err error) {
	stop := context.AfterFunc(ctx, func() { _ = b.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if remote, err = b.connect(q, p, prepare); err != nil {
		err = fail("bootstrap", "", errors.Join(ctx.Err(), err))
	}
	return remote, err
}

func (b *Bootstrap) connect(q *QP, p ConnParams, prepare func() error) (remote ConnInfo, err error) {
	local, err := q.Info(p)
	if err != nil {
		return remote, b.report(err)
	}
	theirs, err := b.swap(bootstrapMessage{Info: &local})
	if err != nil {
		return remote, err
	}
	if theirs.Info == nil {
		return remote, b.report(fmt.Errorf("the answer lacks the queue pair's address: %w", ErrProtocol))
	}
	remote = *theirs.Info
	err = q.ToInit(p)
	if err == nil && prepare != nil {
		err = prepare()
	}
	if err == nil {
		err = errors.Join(q.ToRTR(remote, p), q.ToRTS(p))
	}
	if err != nil {
		return remote, b.report(err)
	}
	_, err = b.swap(bootstrapMessage{Ready: true})
	return remote, err
}

// swap sends a message and receives one.
func (b *Bootstrap) swap(m bootstrapMessage) (theirs bootstrapMessage, err error) {
	if err = b.Send(m); err == nil {
		err = b.Receive(&theirs)
	}
	if err == nil && theirs.Error != "" {
		err = fmt.Errorf("the peer reports: %s", theirs.Error)
	}
	return theirs, err
}

// report sends an error to the peer and returns it.
func (b *Bootstrap) report(err error) error {
	_ = b.Send(bootstrapMessage{Error: err.Error()}) // err matters more
	return err
}
