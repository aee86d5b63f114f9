package perf

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"roced.io/roced/flor"
	"roced.io/roced/flor/engine"
)

// answerBytes is the length of an answer without --echo and --verify.
const answerBytes = 8

// florNIC makes and answers calls on a NIC.
type florNIC struct {
	dev          *flor.Device
	verify, echo bool

	mu  sync.Mutex
	rtt *hdrhistogram.Histogram
}

func openFlor(o *florOptions) (*florNIC, error) {
	n := &florNIC{verify: o.Verify, echo: o.Echo, rtt: newHistogram()}
	cfg := flor.Config{RunDir: o.RunDir, Device: o.Device, SharedAcks: o.SharedAcks,
		Engine: engine.Config{Hardware: o.Connection == "rc", AckWQEs: o.AckWQEs, Measured: n.measured}}
	if o.Window > 0 {
		cfg.Engine.Congestion, cfg.Engine.CongestionWith = "static", map[string]float64{"window_bytes": float64(o.Window)}
	}
	var err error
	if n.dev, err = flor.Open(cfg); err != nil {
		return nil, err
	}
	return n, nil
}

// measured records a round-trip time.
func (n *florNIC) measured(_ *engine.Conn, rtt time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.rtt.RecordValue(min(rtt.Nanoseconds(), int64(time.Minute))) // the value is in range
}

func (n *florNIC) roundTrips() *Latency {
	n.mu.Lock()
	defer n.mu.Unlock()
	return summary(n.rtt)
}

func (n *florNIC) close() error { return n.dev.Close() }

// serve answers calls until ctx ends.
func (n *florNIC) serve(ctx context.Context, at netip.AddrPort, ready func()) error {
	l, err := n.dev.Listen(at)
	if err != nil {
		return err
	}
	defer l.Close()
	ready()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		c, err := l.Accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		group.Go(func() {
			defer c.Close()
			for n.answer(ctx, c) == nil {
			}
		})
	}
}

// answer answers one call.
func (n *florNIC) answer(ctx context.Context, c *flor.Conn) error {
	request, err := c.Recv(ctx)
	if err != nil {
		return err
	}
	defer request.Release()
	switch {
	case n.verify:
		return answerVerified(ctx, c, request)
	case n.echo:
		return request.PostReply(ctx, request, nil)
	}
	answer, err := c.NewMessage(ctx, answerBytes)
	if err != nil {
		return err
	}
	return request.PostReply(ctx, answer, nil)
}

// dial opens a connection.
func (n *florNIC) dial(ctx context.Context, to netip.AddrPort) (*florCaller, error) {
	c, err := n.dev.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	return &florCaller{c, n}, nil
}

// florCaller is a connection.
type florCaller struct {
	*flor.Conn
	n *florNIC
}

var errAnswer = errors.New("the answer has the wrong length: start the server with the same --echo and --verify")

// call sends a request of size bytes and waits for the answer.
func (c *florCaller) call(ctx context.Context, size int) error {
	if c.n.verify {
		return verified(ctx, c.Conn, size)
	}
	m, err := c.NewMessage(ctx, size)
	if err != nil {
		return err
	}
	answer, err := c.Call(ctx, m)
	if err != nil {
		return err
	}
	defer answer.Release()
	want := answerBytes
	if c.n.echo {
		want = size
	}
	if len(answer.Data) != want {
		return errAnswer
	}
	return nil
}
