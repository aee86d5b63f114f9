package watch

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flow"
	"roced.io/roced/internal/observe/pcapng"
)

// Recording is a Tap on the live capture of a NIC, which the daemon ends after ctx.
type Recording struct {
	ctx   context.Context
	ended chan struct{} // closed at the end of the capture
	err   error         // of the capture, valid after ended

	mu     sync.Mutex
	turn   *sync.Cond     // take or closed has changed
	take   *flow.Analyzer // of Read, or nil
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
		_, p.err = dissect.Read(r, p.frame)
	}()
	return p
}

// frame passes a frame to Read. Between calls of Read the capture waits.
func (p *Recording) frame(_ int, f *pcapng.Frame, packet *dissect.Packet) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.take == nil && !p.closed {
		p.turn.Wait()
	}
	if p.closed {
		return io.ErrClosedPipe
	}
	p.lost += f.Lost
	packet.Analyse(p.take, f)
	return nil
}

// set replaces the Analyzer that takes frames.
func (p *Recording) set(take *flow.Analyzer, closed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take, p.closed = take, closed
	p.turn.Broadcast()
}

// Read implements Tap. After ctx it also passes the frames that the daemon has not sent yet.
func (p *Recording) Read(deadline time.Time, a *flow.Analyzer) error {
	p.set(a, false)
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
