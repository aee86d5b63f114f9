package verbs

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"roced.io/roced/internal/base/abi/uverbs"
)

// CompChannel is a completion channel (ibv_comp_channel). Armed completion queues
// report there that they hold a completion.
type CompChannel struct {
	ctx *Context
	id  uint32 // at the daemon
	// turn is held by the goroutine that reads from conn. The others wait until it
	// reads an event for them or releases turn.
	turn chan struct{}
	conn *os.File
	buf  [uverbs.CompEventLen]byte

	mu     sync.Mutex
	closed bool
}

// CreateCompChannel creates a completion channel.
func (c *Context) CreateCompChannel() (*CompChannel, error) {
	const verb = "create_comp_channel"
	r, a, err := roundTrip[uverbs.CreateCompChannelResp](c, verb, uverbs.CmdCreateCompChannel, uverbs.CreateCompChannel{})
	if err != nil {
		return nil, err
	}
	defer a.close()
	conn, err := eventFile(a.take(uverbs.FDNumber, 0))
	if err != nil {
		return nil, fail(verb, "", err)
	}
	ch := &CompChannel{ctx: c, id: r.FD, conn: conn, turn: make(chan struct{}, 1)}
	if err := c.hold(ch); err != nil {
		return nil, fail(verb, "", err)
	}
	return ch, nil
}

// Close closes the channel. Its completion queues remain usable by Poll.
func (ch *CompChannel) Close() error {
	ch.ctx.drop(ch)
	return nil
}

func (ch *CompChannel) release() {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.closed {
		ch.closed = true
		_ = ch.conn.Close()
	}
}

// Next waits for an event and returns its completion queue (ibv_get_cq_event). The
// queue must be armed again before it reports another event. CQ.Wait also reads from
// the channel: use one or the other.
func (ch *CompChannel) Next(ctx context.Context) (*CQ, error) {
	const verb = "get_cq_event"
	select {
	case ch.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fail(verb, "", ctx.Err())
	}
	defer func() { <-ch.turn }()
	return ch.read(ctx, verb)
}

// await waits for an event for cq, which any goroutine may have read.
func (ch *CompChannel) await(ctx context.Context, verb string, cq *CQ) error {
	select {
	case <-cq.event:
		return nil
	case <-ctx.Done():
		return fail(verb, "", ctx.Err())
	case ch.turn <- struct{}{}:
	}
	defer func() { <-ch.turn }()
	for {
		select {
		case <-cq.event:
			return nil
		default:
		}
		got, err := ch.read(ctx, verb)
		if err != nil || got == cq {
			return err
		}
		select {
		case got.event <- struct{}{}:
		default: // an event is already queued
		}
	}
}

// read reads events until one belongs to an existing completion queue. The caller
// holds turn.
func (ch *CompChannel) read(ctx context.Context, verb string) (*CQ, error) {
	if ctx.Done() != nil {
		cancelled := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = ch.conn.SetReadDeadline(time.Unix(1, 0))
			close(cancelled)
		})
		defer func() {
			if !stop() {
				<-cancelled
				_ = ch.conn.SetReadDeadline(time.Time{})
			}
		}()
	}
	for {
		n, err := ch.conn.Read(ch.buf[:])
		if err != nil {
			return nil, fail(verb, "", ch.explain(ctx, err))
		}
		e, err := uverbs.Decode[uverbs.CompEvent](ch.buf[:n])
		if err != nil {
			return nil, fail(verb, "event", ErrProtocol)
		}
		if cq, ok := ch.ctx.user(e.CQHandle).(*CQ); ok {
			cq.armed.Store(notArmed)
			return cq, nil
		}
	}
}

// explain returns the cause of a failed read.
func (ch *CompChannel) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
		return ctx.Err()
	case ch.ctx.Err() != nil:
		return ch.ctx.Err()
	case errors.Is(err, os.ErrClosed):
		return ErrClosed
	}
	ch.ctx.end(ErrDeviceFatal) // the daemon has closed its end
	return ch.ctx.Err()
}
