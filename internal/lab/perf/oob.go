package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/host"
	"roced.io/roced/verbs"
)

// version is the version of the out-of-band protocol: JSON objects over a stream.
const version = 1

// hello is the first message of each side.
type hello struct {
	Version int              `json:"version"`
	Params  *Params          `json:"params,omitempty"` // only from the client
	QPs     []verbs.ConnInfo `json:"qps,omitempty"`
	Addr    uint64           `json:"addr,omitempty"` // address of the region
	RKey    uint32           `json:"rkey,omitempty"`
	Error   string           `json:"error,omitempty"`
}

// note is any later message.
type note struct {
	Kind     string  `json:"kind"` // ready, round, check, checked, done, result, error
	Round    int     `json:"round,omitempty"`
	Messages uint64  `json:"messages,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
	Error    string  `json:"error,omitempty"`
}

var (
	// errPeer marks errors that the peer reports.
	errPeer = errors.New("the other side reports")
	// errGone means that the peer closed the connection or died.
	errGone = errors.New("the other side closed the connection")
)

// handshake limits the time until both sides are connected.
const handshake = 30 * time.Second

// oob is the out-of-band connection between the two sides.
type oob struct {
	c net.Conn
	*verbs.Bootstrap
	// ctx ends when the peer ends or reports an error; its cause is that error. The end of ctx closes the connection,
	// so that neither side waits forever.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// notes receives the peer's notes after a call of watch. It is closed at the end of the connection.
	notes chan note
}

// newOOB takes ownership of a connection until ctx ends.
func newOOB(ctx context.Context, c net.Conn) *oob {
	o := &oob{c: c, Bootstrap: verbs.NewBootstrap(c), notes: make(chan note, 8)}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(o.ctx, func() { c.Close() })
	return o
}

// close closes the connection. Data that is already sent still arrives.
func (o *oob) close() { o.cancel(net.ErrClosed) }

// meetUntil sets the deadline for the exchange of hellos.
func (o *oob) meetUntil(t time.Time) error { return o.c.SetDeadline(t) }

func (o *oob) send(v any) error {
	if err := o.Send(v); err != nil {
		return o.explain(err)
	}
	return nil
}

// receive receives a hello. It must not be called after watch.
func (o *oob) receive(h *hello) error {
	if err := o.Receive(h); err != nil {
		return o.explain(err)
	}
	if h.Error != "" {
		return fmt.Errorf("%w: %s", errPeer, h.Error)
	}
	return nil
}

// explain returns the cause of a failed connection: the end of this side, a timeout, or the end of the peer.
func (o *oob) explain(err error) error {
	switch {
	case o.ctx.Err() != nil:
		return context.Cause(o.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no message from the other side for %v", handshake)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errGone
	}
	return fmt.Errorf("%w: %w", errGone, err)
}

// watch starts to read notes. The end of the peer, or an error that it reports, ends ctx. That aborts every wait of
// this side.
func (o *oob) watch() {
	go func() {
		defer close(o.notes)
		for {
			var n note
			if err := o.Receive(&n); err != nil {
				o.cancel(o.explain(err))
				return
			}
			if n.Error != "" {
				o.cancel(fmt.Errorf("%w: %s", errPeer, n.Error))
				return
			}
			select {
			case o.notes <- n:
			case <-o.ctx.Done():
				return
			}
		}
	}()
}

// expect waits for a note of this kind.
func (o *oob) expect(kind string) (note, error) {
	n, ok := <-o.notes
	return o.check(n, ok, kind)
}

// poll is the non-blocking form of expect. It reports whether a note has arrived.
func (o *oob) poll(kind string) (n note, got bool, err error) {
	select {
	case n, ok := <-o.notes:
		n, err := o.check(n, ok, kind)
		return n, err == nil, err
	default:
		return note{}, false, nil
	}
}

func (o *oob) check(n note, ok bool, kind string) (note, error) {
	if !ok {
		return n, context.Cause(o.ctx)
	}
	if n.Kind != kind {
		return n, fmt.Errorf("out-of-band connection: %q instead of %q", n.Kind, kind)
	}
	return n, nil
}

// sync is a barrier: it blocks until both sides have called it.
func (o *oob) sync() error {
	if err := o.send(note{Kind: "ready"}); err != nil {
		return err
	}
	_, err := o.expect("ready")
	return err
}

// dial connects to the server.
func dial(ctx context.Context, o *Options) (*oob, error) {
	network, addr := "tcp", net.JoinHostPort(o.Host, strconv.Itoa(o.Port))
	if path, ok := strings.CutPrefix(o.OOB, "unix:"); ok {
		network, addr = "unix", path
	}
	var d net.Dialer
	for deadline := time.Now().Add(binding); ; time.Sleep(time.Millisecond) {
		c, err := d.DialContext(ctx, network, addr)
		if err == nil {
			return newOOB(ctx, c), nil
		}
		if network != "unix" || !errors.Is(err, unix.ECONNREFUSED) || time.Now().After(deadline) {
			return nil, unmet(err)
		}
	}
}

// unmet adds advice to the error if no server listens.
func unmet(err error) error {
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: first start roceperf there, with the same test and without a host", err)
	}
	return err
}

// binding is the maximum time between a server's bind and its listen. Scripts wait for the socket file, which bind
// creates.
const binding = 200 * time.Millisecond

// listen listens for clients. It replaces the socket of a dead server.
func listen(o *Options) (net.Listener, error) {
	path, ok := strings.CutPrefix(o.OOB, "unix:")
	if !ok {
		return host.Listen(net.JoinHostPort("", strconv.Itoa(o.Port)))
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return nil, fmt.Errorf("%s is in use", path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSocket != 0 {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	return net.Listen("unix", path)
}
