package flor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"roced.io/roced/flor/engine"
	"roced.io/roced/internal/lab"
)

// message returns a message of n bytes.
func (e *ends) message(i, n int) *Message {
	e.t.Helper()
	m, err := e.conn[i].NewMessage(timeout(e.t), n)
	lab.Must(e.t, err)
	return m
}

// over closes both ends and checks that no resources are left.
func (e *ends) over() {
	e.t.Helper()
	lab.Must(e.t, e.conn[0].Close())
	lab.Must(e.t, e.conn[1].Close())
	e.nothingLeft(e.t.(*testing.T))
}

// TestBackPressure: a sender blocks when the peer's inbox is full, and continues when the peer receives a message.
func TestBackPressure(t *testing.T) {
	e := newEnds(t, Config{Inbox: 4})
	ctx := timeout(t)
	for range 4 {
		lab.Must(t, e.conn[0].Send(ctx, e.message(0, 10)))
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := e.conn[0].Send(short, e.message(0, 10)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the fifth: %v", err)
	}
	more := make(chan error, 1)
	go func() {
		for range 20 {
			if err := e.conn[0].Send(ctx, &Message{Data: []byte("from somewhere")}); err != nil {
				more <- err
				return
			}
		}
		more <- nil
	}()
	for range 24 {
		m, err := e.conn[1].Recv(ctx)
		lab.Must(t, err)
		m.Release()
	}
	lab.Must(t, <-more)
	e.over()
}

// TestMemoryWaits: a request for more memory than is free blocks, for any message size.
func TestMemoryWaits(t *testing.T) {
	e := newEnds(t, Config{Memory: 2 << 20, Landing: 2 << 20})
	ctx := timeout(t)
	a, b := e.message(0, 1<<20), e.message(0, 700<<10)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if _, err := e.conn[0].NewMessage(short, 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a third message: %v", err)
	}
	a.Release()
	b.Release()
	e.message(0, 5).Release()
	var receiver sync.WaitGroup
	receiver.Go(func() {
		for range 20 {
			m, err := e.conn[1].Recv(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			m.Release()
		}
	})
	for range 20 {
		lab.Must(t, e.conn[0].Send(ctx, e.message(0, 1<<20)))
	}
	receiver.Wait()
	e.over()
}

// TestCalls covers late replies and missing replies.
func TestCalls(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := e.conn[0].Call(short, e.message(0, 10))
	var which *Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &which) || which.Remote != e.l.Addr() || !strings.Contains(err.Error(), "call 198.18.0.1:") {
		t.Errorf("no answer: %v", err)
	}
	late, err := e.conn[1].Recv(ctx)
	lab.Must(t, err)
	lab.Must(t, late.Reply(ctx, late))
	if err := late.Reply(ctx, e.message(1, 1)); !errors.Is(err, ErrNoRequest) {
		t.Errorf("a second answer: %v", err)
	}
	go func() {
		m, err := e.conn[1].Recv(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		m.Release()
	}()
	if _, err := e.conn[0].Call(ctx, e.message(0, 10)); !errors.Is(err, ErrUnanswered) {
		t.Errorf("released: %v", err)
	}
	m := e.message(0, 10)
	m.Release()
	if err := e.conn[0].Send(ctx, m); !errors.Is(err, ErrReleased) {
		t.Errorf("released before: %v", err)
	}
	if _, err := e.conn[0].NewMessage(ctx, e.dev[0].MaxMessage()+1); !errors.Is(err, ErrTooLong) {
		t.Errorf("too long: %v", err)
	}
	e.over()
	if err := e.conn[0].Send(ctx, &Message{}); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if _, err := e.dev[0].Dial(ctx, netip.MustParseAddrPort("198.18.0.2:9")); err == nil || !strings.Contains(err.Error(), "198.18.0.2:9") {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestShutdown: posted messages arrive before the end, and the peer sees an orderly shutdown.
func TestShutdown(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	for range 20 {
		lab.Must(t, e.conn[0].Post(ctx, e.message(0, 50<<10), func(err error) {
			if err != nil {
				t.Error(err)
			}
		}))
	}
	lab.Must(t, e.conn[0].Shutdown(ctx))
	for range 20 {
		m, err := e.conn[1].Recv(ctx)
		lab.Must(t, err)
		m.Release()
	}
	if _, err := e.conn[1].Recv(ctx); !errors.Is(err, ErrPeerClosed) {
		t.Errorf("after the last one: %v", err)
	}
	e.over()
}

// TestViolation: a peer that exceeds its credit loses its connection, and the device counts a violation.
func TestViolation(t *testing.T) {
	e := newEnds(t, Config{Inbox: 4})
	ctx := timeout(t)
	c := e.conn[0]
	c.d.mu.Lock()
	c.credit = 100
	c.d.mu.Unlock()
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		err = c.Send(ctx, e.message(0, 10))
	}
	<-e.conn[1].Done()
	if n := e.dev[1].Counters().Violations; err == nil || n != 1 || !errors.Is(e.conn[1].Err(), ErrProtocol) {
		t.Errorf("%v; %d violations, %v", err, n, e.conn[1].Err())
	}
	e.over()
}

// TestLateWrite: the network delays a WRITE until its message has arrived and its memory is reused. The late WRITE
// changes nothing (Flor 5).
func TestLateWrite(t *testing.T) {
	// Each chunk is one packet: UC accepts such a packet regardless of the packets before it.
	e := newEnds(t, Config{Engine: engine.Config{Congestion: "static", CongestionWith: map[string]float64{"window_bytes": 1 << 10}}})
	for late := 1500 * time.Millisecond; !e.lateWrite(t, late); late *= 2 { // until the message is faster
	}
	e.over()
}

// lateWrite sends a message one of whose WRITEs is late. It returns false if the message was later.
func (e *ends) lateWrite(t *testing.T, late time.Duration) bool {
	ctx := timeout(t)
	e.rules("rxe_a", fmt.Sprintf("tx delay %dms op=write count=1", late.Milliseconds()))
	m := e.message(0, 64<<10)
	content(1, m.Data)
	begun := time.Now()
	lab.Must(t, e.conn[0].Send(ctx, m))
	r, err := e.conn[1].Recv(ctx)
	lab.Must(t, err)
	defer r.Release()
	if _, err := checked(r.Data); err != nil {
		t.Fatal(err)
	}
	clear(r.Data)
	before := received(t, e.dev[1])
	if time.Since(begun) > late {
		return false
	}
	lab.Eventually(t, late+lab.Limit, "the late frame comes", func() bool { return received(t, e.dev[1]) > before && time.Since(begun) > 2*late })
	for i, x := range r.Data {
		if x != 0 {
			t.Fatalf("byte %d has changed", i)
		}
	}
	return true
}

// received returns the number of packets that a NIC has received.
func received(t testing.TB, d *Device) uint64 {
	stats, err := d.ctx.Stats()
	lab.Must(t, err)
	for _, s := range stats {
		if s.Name == "rcvd_pkts" {
			return s.Value
		}
	}
	t.Fatal("no such counter")
	return 0
}
