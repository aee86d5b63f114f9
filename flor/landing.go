package flor

import (
	"roced/flor/engine"
	"roced/verbs"
)

// landings is the memory for messages that come by WRITE, in blocks of powers of two. Each block has a key of its own for
// peers, which is revoked before its message is delivered, and another one before the next message: no WRITE
// that is late can find it.
type landings struct {
	d      *Device
	used   int
	held   int                    // that connections have
	ready  [maxClass + 1][]*block // that nobody has, with a key
	coming [maxClass + 1]int      // that are about to be ready
	byAddr map[uint64]*block
	byKey  map[uint32]*block
	hungry map[*Conn]struct{} // that have been told to wait
}

// block is memory for a message.
type block struct {
	buf    *verbs.Buffer
	local  *verbs.MR // for what is sent from it
	remote *verbs.MR // for the peer; nil while it has no key
	class  int
	c      *Conn // that has it
	// revoking is set from Revoke until the NIC has done so, and then what waits for that.
	revoking bool
	then     func()
}

func (l *landings) init(d *Device) {
	l.d, l.byAddr, l.byKey, l.hungry = d, map[uint64]*block{}, map[uint32]*block{}, map[*Conn]struct{}{}
}

// take returns a block for n bytes to a connection, nil if there is none now: then it is going to be told.
func (l *landings) take(c *Conn, n int) *block {
	k := classOf(n)
	if !l.allows(c, 1<<k) {
		l.hungry[c] = struct{}{}
		return nil
	}
	if last := len(l.ready[k]) - 1; last >= 0 {
		b := l.ready[k][last]
		l.ready[k] = l.ready[k][:last]
		b.c = c
		c.landed += 1 << k
		l.held += 1 << k
		return b
	}
	l.hungry[c] = struct{}{}
	if l.coming[k] < maxComing {
		l.more(k)
	}
	return nil
}

// allows reports whether a connection may have n bytes more. However much is held, and by however many connections, as
// much as one of them has is left for others.
func (l *landings) allows(c *Conn, n int) bool {
	return c.landed+n <= l.d.cfg.Landing-l.held-n
}

// maxComing is how many blocks of a size may be about to be ready when another one is begun.
const maxComing = 4

// more makes a block, if there is room or can be made.
func (l *landings) more(k int) {
	for l.used+1<<k > l.d.cfg.Landing {
		if !l.reclaim() {
			return
		}
	}
	l.used += 1 << k
	l.coming[k]++
	b := &block{class: k}
	l.d.worker.do(func() {
		var err error
		if b.buf, err = l.d.ctx.AllocBuffer(1 << k); err == nil {
			b.local, err = l.d.pd.RegMR(b.buf, 0, 1<<k, verbs.AccessLocalWrite)
		}
		if err == nil {
			err = b.rekey(l.d.pd)
		}
		l.d.enter()
		defer l.d.leave()
		l.coming[k]--
		if err != nil {
			l.drop(b)
			return
		}
		l.byAddr[b.buf.Addr()] = b
		l.give(b)
	})
}

// rekey registers the block for a peer.
func (b *block) rekey(pd *verbs.PD) (err error) {
	b.remote, err = pd.RegMR(b.buf, 0, 1<<b.class, verbs.AccessLocalWrite|verbs.AccessRemoteWrite)
	return err
}

// give takes a block that has a key and nobody needs, and tells those who wait.
func (l *landings) give(b *block) {
	l.byKey[b.remote.RKey()] = b
	l.ready[b.class] = append(l.ready[b.class], b)
	for c := range l.hungry {
		delete(l.hungry, c)
		c.e.Resume(l.d.now())
	}
}

// reclaim gives a block back that nobody uses.
func (l *landings) reclaim() bool {
	for k := range l.ready {
		if last := len(l.ready[k]) - 1; last >= 0 {
			b := l.ready[k][last]
			l.ready[k] = l.ready[k][:last]
			delete(l.byKey, b.remote.RKey())
			l.drop(b)
			return true
		}
	}
	return false
}

// drop frees a block.
func (l *landings) drop(b *block) {
	l.used -= 1 << b.class
	if b.buf != nil {
		delete(l.byAddr, b.buf.Addr())
	}
	l.d.worker.do(func() { // what fails, ends with the device
		for _, mr := range []*verbs.MR{b.remote, b.local} {
			if mr != nil {
				_ = mr.Dereg()
			}
		}
		if b.buf != nil {
			_ = b.buf.Free()
		}
	})
}

// Expose implements engine.NIC: the block has its key.
func (n *nic) Expose(b engine.Buffer) (addr uint64, key uint32) {
	return b.Addr, n.landing.byAddr[b.Addr].remote.RKey()
}

// Revoke implements engine.NIC. It takes effect later; what depends on it waits (block.after).
func (n *nic) Revoke(key uint32) {
	d := (*Device)(n)
	b := d.landing.byKey[key]
	delete(d.landing.byKey, key)
	b.revoking = true
	d.worker.do(func() {
		_ = b.remote.Dereg() // if it fails, the device is gone
		d.enter()
		defer d.leave()
		b.remote, b.revoking = nil, false
		if then := b.then; then != nil {
			b.then = nil
			then()
		}
	})
}

// after has f run when no peer can write to the block any more.
func (b *block) after(f func()) {
	if b.revoking {
		b.then = f
	} else {
		f()
	}
}

// leave takes a block back, which gets another key. Its key has been revoked, or is about to be.
func (l *landings) leave(b *block) {
	b.c.landed -= 1 << b.class
	l.held -= 1 << b.class
	b.c = nil
	l.coming[b.class]++
	b.after(func() {
		l.d.worker.do(func() {
			err := b.rekey(l.d.pd)
			l.d.enter()
			defer l.d.leave()
			l.coming[b.class]--
			if err != nil {
				l.drop(b)
				return
			}
			l.give(b)
		})
	})
}
