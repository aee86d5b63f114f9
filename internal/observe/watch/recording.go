package watch

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"roced.io/roced/internal/observe/pcapng"
	"roced.io/roced/plugin/mono"
)

// Recording is a Tap on the live capture of a NIC, which the daemon ends after ctx.
type Recording struct {
	ctx   context.Context
	ended chan struct{} // closed at the end of the capture
	err   error         // of the capture, valid after ended

	mu     sync.Mutex
	turn   *sync.Cond // take or closed has changed
	take   func(now mono.Time, ip []byte)
	closed bool
	lost   uint64
}

var _ Tap = (*Recording)(nil)

// Record reads the capture r until its end.
func Record(ctx context.Context, r io.Reader) *Recording {
	p := &Recording{ctx: ctx, ended: make(chan struct{})}
	p.turn = sync.NewCond(&p.mu)
	go func() {
		defer close(p.ended)
		p.err = read(context.WithoutCancel(ctx), r, p.frame)
	}()
	return p
}

// frame passes a frame to Read. Between calls of Read the capture waits.
func (p *Recording) frame(f *pcapng.Frame, ip []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.take == nil && !p.closed {
		p.turn.Wait()
	}
	if p.closed {
		return io.ErrClosedPipe
	}
	p.lost += f.Lost
	p.take(mono.Time(f.Time), ip)
	return nil
}

// set replaces the function that takes frames.
func (p *Recording) set(take func(now mono.Time, ip []byte), closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take, p.closed = take, closed
	p.turn.Broadcast()
}

// Read implements Tap. After ctx it also passes the frames that the daemon has not sent yet.
func (p *Recording) Read(deadline time.Time, f func(now mono.Time, ip []byte)) error {
	p.set(f, false)
	defer p.set(nil, false)
	var late <-chan time.Time
	if p.ctx.Err() == nil {
		late = time.After(time.Until(deadline))
	}
	select {
	case <-p.ended:
		time.Sleep(time.Until(deadline))
		return p.err
	case <-late:
		return nil
	}
}

// Lost implements Tap.
func (p *Recording) Lost() (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost, nil
}

// Check implements Tap.
func (p *Recording) Check() error {
	select {
	case <-p.ended:
		return errors.New("the capture has ended: the daemon or its NIC is gone")
	default:
		return nil
	}
}

// Close ends the reading. Close the capture first.
func (p *Recording) Close() {
	p.set(nil, true)
	<-p.ended
}
