package flor

import (
	"testing"
	"time"

	"roced.io/roced/flor/engine"
	"roced.io/roced/internal/lab"
	"roced.io/roced/verbs"
)

// ready waits for a free open block for n bytes.
func (d *Device) ready(t *testing.T, n int) {
	t.Helper()
	lab.Eventually(t, 10*time.Second, "a block is ready", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.landing.ready[classOf(n)]) > 0
	})
}

// TestKeysAreUsedOnce: a block never reuses a key, although windows have 256 keys each.
func TestKeysAreUsedOnce(t *testing.T) {
	const n = 1 << 20
	e := newEnds(t, Config{Landing: 2 * n}) // two blocks at most
	d, c := e.dev[1], e.conn[1]
	seen := map[uint32]bool{}
	for len(seen) < 3*keysOfWindow {
		d.enter()
		var key uint32
		b := d.landing.take(c, n)
		if b != nil {
			_, key = (*nic)(d).Expose(engine.Buffer{Addr: b.buf.Addr()})
			(*nic)(d).Revoke(key)
			d.landing.leave(b)
		}
		d.leave()
		if seen[key] {
			t.Fatalf("key %#x, after %d others, has been used", key, len(seen))
		}
		if b != nil {
			seen[key] = true
		}
	}
	e.over()
}

// TestClosedBeforeDelivery: a message by WRITE is delivered only after the NIC has closed its memory.
func TestClosedBeforeDelivery(t *testing.T) {
	e := newEnds(t, Config{})
	ctx := timeout(t)
	const n = 64 << 10
	d := e.dev[1]
	lab.Must(t, e.conn[0].Send(ctx, e.message(0, n)))
	m, err := e.conn[1].Recv(ctx)
	lab.Must(t, err)
	m.Release()
	d.ready(t, n)
	lab.Must(t, d.keys.q.Modify(verbs.QPAttr{State: verbs.QPSQD}, verbs.AttrState)) // the queue pair starts no work request
	before := d.Counters().Messages
	lab.Must(t, e.conn[0].Send(ctx, e.message(0, n)))
	lab.Eventually(t, 10*time.Second, "the message comes", func() bool { return d.Counters().Messages > before })
	if len(e.conn[1].inbox) > 0 {
		t.Error("delivered, but open")
	}
	lab.Must(t, d.keys.q.Modify(verbs.QPAttr{State: verbs.QPRTS}, verbs.AttrState))
	m, err = e.conn[1].Recv(ctx)
	lab.Must(t, err)
	m.Release()
	e.over()
}
