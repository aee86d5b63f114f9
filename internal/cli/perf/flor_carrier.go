package perf

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"roced/flor"
	"roced/flor/engine"
)

// florNIC carries calls by Flor.
type florNIC struct {
	dev    *flor.Device
	verify bool
}

func openFlor(o *florOptions) (carrier, error) {
	cfg := flor.Config{RunDir: o.RunDir, Device: o.Device,
		Engine: engine.Config{Hardware: o.Connection == "rc", AckWQEs: o.AckWQEs}}
	if o.Window > 0 {
		cfg.Engine.Congestion, cfg.Engine.CongestionWith = "static", map[string]float64{"window_bytes": float64(o.Window)}
	}
	dev, err := flor.Open(cfg)
	if err != nil {
		return nil, err
	}
	return &florNIC{dev, o.Verify}, nil
}

func (n *florNIC) close() error  { return n.dev.Close() }
func (n *florNIC) counters() any { return n.dev.Counters() }

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

// answer answers a call.
func (n *florNIC) answer(ctx context.Context, c *flor.Conn) error {
	request, err := c.Recv(ctx)
	if err != nil {
		return err
	}
	defer request.Release()
	if n.verify {
		return answerVerified(ctx, c, request)
	}
	answer, err := c.NewMessage(ctx, answerBytes)
	if err != nil {
		return err
	}
	return request.PostReply(ctx, answer, nil)
}

func (n *florNIC) dial(ctx context.Context, to netip.AddrPort, _, _ int) (caller, error) {
	c, err := n.dev.Dial(ctx, to)
	if err != nil {
		return nil, err
	}
	return florCaller{c, n.verify}, nil
}

type florCaller struct {
	*flor.Conn
	verify bool
}

func (c florCaller) close() error { return c.Close() }

var errAnswer = errors.New("the answer is not of the length that it must have")

func (c florCaller) call(ctx context.Context, size int) error {
	if c.verify {
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
	if len(answer.Data) != answerBytes {
		return errAnswer
	}
	return nil
}
