package flor

import (
	"roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
)

// user implements the engine's User on a Device. The caller of its methods holds the Device's lock.
type user Device

var _ engine.User = (*user)(nil)

// Delivered implements engine.User.
func (u *user) Delivered(_ mono.Time, k *engine.Conn, m engine.Message) {
	d, c := (*Device)(u), k.Ctx.(*Conn)
	if !m.Landing {
		c.arrived(d.pooled(m), m.Tag)
		return
	}
	b := d.landing.byAddr[m.Buffer.Addr]
	msg := &Message{Data: m.Data, d: d, lkey: b.mr.LKey(), base: b.buf.Addr(), room: 1 << b.class,
		free: func() {
			d.enter()
			defer d.leave()
			d.landing.leave(b)
		}}
	c.revoking++
	b.after(func() {
		c.arrived(msg, m.Tag)
		if c.revoking--; c.revoking == 0 && c.over {
			c.ended()
		}
	})
}

// pooled returns a message that lies in the pool. If the application holds half of the pool, pooled copies the message,
// so that the pool keeps room for peers.
func (d *Device) pooled(m engine.Message) *Message {
	if len(m.Data) == 0 {
		d.eng.Release(m)
		return &Message{}
	}
	if d.lent >= d.cfg.Pool/2 {
		d.ctr.Copied++
		c := &Message{Data: append([]byte(nil), m.Data...)}
		d.eng.Release(m)
		return c
	}
	d.lent++
	b := &d.cfg.Engine.Pool[0]
	return &Message{Data: m.Data, d: d, lkey: b.Key, base: d.pool.Addr(), room: len(d.pool.Bytes()),
		free: func() {
			d.enter()
			defer d.leave()
			d.lent--
			d.eng.Release(m)
		}}
}

// arrived dispatches a received message by its tag.
func (c *Conn) arrived(m *Message, tag uint32) {
	kind, v := splitTag(tag)
	switch kind {
	case tagMessage, tagRequest:
		if c.deaf {
			break
		}
		m.from, m.call, m.request = c, v, kind == tagRequest
		select {
		case c.inbox <- m:
			return
		default:
		}
		m.request = false
		c.violation() // the inbox had no room, and the peer knew
	case tagResponse, tagUnanswered:
		k := c.calls[v]
		if k == nil {
			c.violation()
			break
		}
		delete(c.calls, v)
		c.rest()
		if k.abandoned {
			break
		}
		if kind == tagUnanswered {
			k.result <- result{err: ErrUnanswered}
			break
		}
		k.result <- result{m: m}
		return
	case tagCredit:
		if c.credit += int(v); c.credit > c.peerInbox {
			c.violation()
		}
		c.wake()
	default:
		c.violation()
	}
	c.d.calls = append(c.d.calls, m.Release)
}

// violation ends the connection after the peer has violated the protocol.
func (c *Conn) violation() {
	if c.err == nil && c.e.Err() == nil {
		c.d.ctr.Violations++
		c.e.Fail(c.d.now(), ErrProtocol)
	}
}

// Told implements engine.User.
func (u *user) Told(_ mono.Time, k *engine.Conn, id uint64, err error) {
	c := k.Ctx.(*Conn)
	o := c.ops[id]
	c.ops[id] = op{}
	c.free = append(c.free, uint32(id))
	if o.ours {
		c.told = c.told && !o.credit
		c.settleDebts()
	} else {
		c.under--
		c.wake()
	}
	if o.m != nil {
		u.calls = append(u.calls, o.m.release)
	}
	switch {
	case o.wait != nil:
		o.wait <- err
	case o.done != nil:
		done := o.done
		u.calls = append(u.calls, func() { done(err) })
	}
	c.rest()
}

// Landing implements engine.User.
func (u *user) Landing(k *engine.Conn, n int) (engine.Buffer, bool) {
	b := u.landing.take(k.Ctx.(*Conn), n)
	if b == nil {
		return engine.Buffer{}, false
	}
	return engine.Buffer{Data: b.buf.Bytes()[:n], Addr: b.buf.Addr(), Key: b.mr.LKey()}, true
}

// Unused implements engine.User.
func (u *user) Unused(_ *engine.Conn, b engine.Buffer) {
	u.landing.leave(u.landing.byAddr[b.Addr])
}

// Closed implements engine.User.
func (u *user) Closed(_ mono.Time, k *engine.Conn, err error) {
	c := k.Ctx.(*Conn)
	if c.err, c.over = err, true; c.revoking == 0 {
		c.ended()
	}
}

// ended reports the end of the connection to all waiting callers, after all received messages.
func (c *Conn) ended() {
	d, err := c.d, c.err
	for n, call := range c.calls {
		delete(c.calls, n)
		call.result <- result{err: err}
	}
	c.wake()
	c.rest()
	delete(d.conns, c)
	delete(d.landing.hungry, c)
	d.forsake(c.peer)
	close(c.done)
	c.watching()
	if c.cm != nil {
		d.worker.do(c.hangUp)
	}
}

// hangUp ends the rdma_cm connection, which notifies the peer.
func (c *Conn) hangUp() {
	_ = c.cm.Disconnect() // it may be over
	c.cm.Close()
}
