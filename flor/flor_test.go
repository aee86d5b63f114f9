package flor

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"roced.io/roced/internal/lab"
)

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// ends is a pair of connected NICs, one on each of two hosts.
type ends struct {
	t    testing.TB
	w    *lab.Within
	dev  [2]*Device
	l    *Listener
	conn [2]*Conn
}

func newEnds(t testing.TB, cfg Config) *ends {
	t.Helper()
	e := &ends{t: t, w: lab.NewWithin(t, "flor")}
	for i, name := range []string{"rxe_a", "rxe_b"} {
		c := cfg
		c.RunDir, c.Device = e.w.RunDir, name
		var err error
		e.dev[i], err = Open(c)
		lab.Must(t, err)
		t.Cleanup(func() {
			if err := e.dev[i].Close(); err != nil {
				t.Error(err)
			}
		})
	}
	var err error
	e.l, err = e.dev[1].Listen(netip.MustParseAddrPort("198.18.0.2:7471"))
	lab.Must(t, err)
	t.Cleanup(e.l.Close)
	e.conn[0], e.conn[1] = e.connect()
	return e
}

func (e *ends) connect() (a, b *Conn) {
	e.t.Helper()
	a, err := e.dev[0].Dial(timeout(e.t), e.l.Addr())
	lab.Must(e.t, err)
	b, err = e.l.Accept(timeout(e.t))
	lab.Must(e.t, err)
	return a, b
}

// TestEcho: messages of all sizes go to the peer and back without a copy.
func TestEcho(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	for _, n := range []int{0, 5, 1000, 32 << 10, 33 << 10, 100000, 1 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var server sync.WaitGroup
			defer server.Wait()
			server.Go(func() {
				m, err := e.conn[1].Recv(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if err := m.Reply(ctx, m); err != nil {
					t.Error(err)
				}
			})
			m, err := e.conn[0].NewMessage(ctx, n)
			lab.Must(t, err)
			for i := range m.Data {
				m.Data[i] = byte(i * 7)
			}
			want := bytes.Clone(m.Data)
			r, err := e.conn[0].Call(ctx, m)
			lab.Must(t, err)
			if !bytes.Equal(r.Data, want) {
				t.Errorf("other bytes")
			}
			r.Release()
		})
	}
}
