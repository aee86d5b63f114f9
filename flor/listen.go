package flor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"roced.io/roced/verbs"
)

// Listener accepts connections.
type Listener struct {
	d       *Device
	cm      *verbs.CMListener
	made    chan *Conn
	ctx     context.Context
	cancel  context.CancelFunc
	pending sync.WaitGroup
}

const (
	// backlog limits the connections in setup and the connections that wait for Accept.
	backlog = 64
	// making is the timeout for a peer to confirm a connection.
	making = 10 * time.Second
	// consumerReject is the reason of a REJ by a program (IBTA vol.1 12.6.7.2).
	consumerReject = 28
	// maxRefusal is the length of the error text in the private data of a REJ.
	maxRefusal = 147
)

// Listen listens on an address of the NIC or, if it is unspecified, on all addresses. Port 0 selects a free port.
func (d *Device) Listen(at netip.AddrPort) (*Listener, error) {
	cm, err := d.cm.Listen(at, backlog)
	if err != nil {
		return nil, &Error{Op: "listen", Local: at, Err: err}
	}
	l := &Listener{d: d, cm: cm, made: make(chan *Conn, backlog)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.pending.Go(l.run)
	return l, nil
}

// Addr returns the address of the listener.
func (l *Listener) Addr() netip.AddrPort { return l.cm.Addr }

// Accept waits for a connection.
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	select {
	case c := <-l.made:
		return c, nil
	case <-l.ctx.Done():
		return nil, &Error{Op: "accept", Local: l.Addr(), Err: ErrClosed}
	case <-ctx.Done():
		return nil, &Error{Op: "accept", Local: l.Addr(), Err: ctx.Err()}
	}
}

// Close closes the listener and all connections that wait for Accept.
func (l *Listener) Close() {
	l.cancel()
	l.cm.Close()
	l.pending.Wait()
	for {
		select {
		case c := <-l.made:
			_ = c.Close() // never an error
		default:
			return
		}
	}
}

// run takes requests and answers a limited number at a time.
func (l *Listener) run() {
	places := make(chan struct{}, backlog)
	for {
		r, err := l.cm.Next(l.ctx)
		if l.ctx.Err() != nil {
			return
		}
		if err != nil {
			if l.d.ctx.Err() != nil || errors.Is(err, verbs.ErrDeviceFatal) {
				l.cancel()
				return
			}
			continue // the request has expired
		}
		select {
		case places <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		l.pending.Go(func() {
			defer func() { <-places }()
			l.answer(r)
		})
	}
}

// answer accepts a request, or refuses it with the reason.
func (l *Listener) answer(r *verbs.CMRequest) {
	c, err := l.accept(r)
	if err != nil {
		l.d.enter()
		l.d.ctr.Refused++
		l.d.leave()
		return
	}
	select {
	case l.made <- c:
	case <-l.ctx.Done():
		_ = c.Close() // never an error
	}
}

func (l *Listener) accept(r *verbs.CMRequest) (*Conn, error) {
	var theirs hello
	if err := theirs.parse(r.PrivateData); err != nil {
		return nil, refuse(r, err)
	}
	if len(l.made) == cap(l.made) {
		return nil, refuse(r, errors.New("too many connections wait"))
	}
	c, mine, err := l.d.prepare()
	if err != nil {
		return nil, refuse(r, err)
	}
	if err := mine.agrees(&theirs); err != nil {
		c.discard()
		return nil, refuse(r, err)
	}
	if err := c.join(r.Local, r.Remote, mine, &theirs); err != nil {
		c.giveUp()
		return nil, refuse(r, err)
	}
	ctx, cancel := context.WithTimeout(l.ctx, making)
	defer cancel()
	cm, err := r.Accept(ctx, c.pairs[0].q, verbs.CMParams{PrivateData: mine.append(nil), RetryCount: retryCount,
		Connect: func(_, _ netip.AddrPort, _ []byte) error { return nil }}) // the queue pairs are connected already
	if err != nil {
		c.giveUp()
		return nil, err
	}
	c.stands(cm)
	return c, nil
}

// refuse rejects a connection with the error as text.
func refuse(r *verbs.CMRequest, err error) error {
	text := err.Error()
	_ = r.Reject([]byte(text[:min(len(text), maxRefusal)])) // the request may be over
	return err
}

// refusal returns the error of a rejected connection, with the peer's text.
func refusal(private []byte, err error) error {
	text, _, _ := bytes.Cut(private, []byte{0})
	if len(text) == 0 {
		return err
	}
	return fmt.Errorf("%w: %q", err, text)
}
