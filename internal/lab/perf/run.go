package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/output"
)

// Client runs the tests of o against a server and prints their results.
func Client(ctx context.Context, o *Options, out, diag io.Writer) error {
	sizes, err := o.sizes()
	if err != nil {
		return err
	}
	for i, size := range sizes {
		p := o.Params
		p.Size = size
		p.CQMod = cmp.Or(p.CQMod, defaultCQMod(p.TxDepth, size))
		r, err := runClient(ctx, o, p, diag)
		if err != nil {
			return err
		}
		if err := r.Print(out, o.JSON, i == 0); err != nil {
			return err
		}
	}
	return nil
}

// sizes returns the message sizes to measure.
func (o *Options) sizes() ([]int, error) {
	if !o.All || o.op() == "atomic" {
		return []int{o.Size}, nil
	}
	last := sweepTo(&o.Params)
	if o.Connection == "ud" {
		mtu, err := portMTU(o)
		if err != nil {
			return nil, err
		}
		last = min(last, mtu)
	}
	var sizes []int
	for n := min(2, last); n <= last; n *= 2 {
		sizes = append(sizes, n)
	}
	return sizes, nil
}

// portMTU returns the maximum datagram size of a device.
func portMTU(o *Options) (int, error) {
	dev, err := openDevice(o)
	if err != nil {
		return 0, err
	}
	defer dev.Close()
	port, err := dev.QueryPort(1)
	return port.ActiveMTU.Bytes(), err
}

// sweepTo returns the largest size of a sweep.
func sweepTo(p *Params) int {
	switch {
	case p.Connection == "ud" && p.MTU != 0:
		return p.MTU
	case p.Connection == "ud":
		return 4096
	}
	return 8 << 20
}

func runClient(ctx context.Context, o *Options, p Params, diag io.Writer) (*Result, error) {
	c, err := dial(ctx, o)
	if err != nil {
		return nil, err
	}
	defer c.close()
	s, err := open(o, p, c, true)
	defer s.close()
	if err != nil {
		return nil, s.report(err)
	}
	r, err := s.clientTest(newProgress(o, &p, diag))
	return r, s.report(err)
}

// clientTest connects to the server and runs the test.
func (s *side) clientTest(meter func(uint64)) (*Result, error) {
	if err := s.oob.meetUntil(time.Now().Add(handshake)); err != nil {
		return nil, err
	}
	if err := s.introduce(&s.Params); err != nil {
		return nil, err
	}
	var h hello
	if err := s.oob.receive(&h); err != nil {
		return nil, err
	}
	if err := s.meet(h); err != nil {
		return nil, err
	}
	return s.run(meter)
}

// Serve serves one client, or any number with Forever.
func Serve(ctx context.Context, o *Options, out, diag io.Writer) error {
	dev, err := openDevice(o) // report device errors before the wait for a client
	if err != nil {
		return err
	}
	dev.Close()
	ln, err := listen(o)
	if err != nil {
		return err
	}
	defer ln.Close()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for first := true; first || o.Forever || o.All; first = false {
		c, err := accept(ctx, ln, o.All && !first && !o.Forever)
		if err != nil || c == nil {
			return err
		}
		r, err := serveOne(ctx, o, newOOB(ctx, c), diag)
		switch {
		case err != nil && o.Forever && ctx.Err() == nil:
			fmt.Fprintln(diag, "roceperf:", err)
		case err != nil:
			return err
		case r != nil:
			if err := r.Print(out, o.JSON, first); err != nil {
				return err
			}
		}
	}
	return nil
}

// accept waits for a client. In a sweep clients follow each other closely; a timeout then ends the sweep.
func accept(ctx context.Context, ln net.Listener, follows bool) (net.Conn, error) {
	if d, ok := ln.(interface{ SetDeadline(time.Time) error }); ok && follows {
		if err := d.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return nil, err
		}
	}
	c, err := ln.Accept()
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case follows && errors.Is(err, os.ErrDeadlineExceeded):
		return nil, nil
	}
	return nil, err
}

func serveOne(ctx context.Context, o *Options, c *oob, diag io.Writer) (*Result, error) {
	defer c.close()
	if err := c.meetUntil(time.Now().Add(handshake)); err != nil {
		return nil, err
	}
	var h hello
	if err := c.receive(&h); err != nil {
		return nil, err
	}
	p, err := agree(o, &h)
	if err != nil {
		return nil, refuse(c, err)
	}
	s, err := open(o, *p, c, false)
	defer s.close()
	if err != nil {
		return nil, refuse(c, err)
	}
	if err := s.introduce(nil); err != nil {
		return nil, err
	}
	if err := s.meet(h); err != nil {
		return nil, s.report(err)
	}
	r, err := s.run(newProgress(o, p, diag))
	return r, s.report(err)
}

// refuse reports the reason for a refusal to the client.
func refuse(c *oob, err error) error {
	return errors.Join(err, c.send(hello{Version: version, Error: err.Error()}))
}

// agree checks the client's parameters.
func agree(o *Options, h *hello) (*Params, error) {
	switch {
	case h.Version != version:
		return nil, fmt.Errorf("the client uses protocol version %d, the server %d: use the same roceperf on both sides", h.Version, version)
	case h.Params == nil:
		return nil, errors.New("the client names no test")
	case h.Params.Test != o.Test:
		return nil, fmt.Errorf("the client runs %s, but the server was started for %s", h.Params.Test, o.Test)
	}
	return h.Params, h.Params.Validate()
}

// run runs the test after both sides are connected. The server of a latency test has no result.
func (s *side) run(meter func(uint64)) (r *Result, err error) {
	if err := s.oob.meetUntil(time.Time{}); err != nil {
		return nil, err
	}
	s.oob.watch()
	s.meter = meter
	before := cpuTime()
	start := time.Now()
	switch {
	case s.latency():
		r, err = s.latencyTest()
	case s.Verify:
		r, err = s.verify()
	default:
		r, err = s.bandwidth()
	}
	if err != nil || r == nil {
		return nil, err
	}
	r.CPUPercent = 100 * (cpuTime() - before).Seconds() / time.Since(start).Seconds()
	r.Test, r.Connection, r.Size, r.QPs, r.MTU = s.Test, s.Connection, s.Size, s.QPs, s.mtu
	if r.Latency == nil {
		r.Gbps = r.MessagesPerSecond * float64(r.Size) * 8 / 1e9
	}
	return r, nil
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// newProgress returns a function that prints progress at intervals during a test. It returns nil if diag is not a
// terminal or with --quiet.
func newProgress(o *Options, p *Params, diag io.Writer) func(uint64) {
	f := output.Terminal(diag)
	if f == nil || o.Quiet {
		return nil
	}
	start := time.Now()
	last, before := start, uint64(0)
	return func(n uint64) {
		now := time.Now()
		if d := now.Sub(last); d > 500*time.Millisecond {
			rate := float64(n-before) / d.Seconds()
			fmt.Fprintf(f, "\r%s: %5.1f s, %d messages, %.0f/s, %.2f Gb/s \x1b[K\r", p.Test, now.Sub(start).Seconds(),
				n, rate, rate*float64(p.Size)*8/1e9)
			last, before = now, n
		}
	}
}
