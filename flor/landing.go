package flor

import (
	"roced.io/roced/flor/engine"
	"roced.io/roced/verbs"
)

// landings is the memory for messages that come by WRITE, in blocks of powers of two. Each block has a memory window for
// peers, which is closed before its message is delivered, and has another key for the next one: no WRITE that is late can
// find it.
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
	mr     *verbs.MR
	window *verbs.MW // what a peer writes to
	keys   int       // that the window has had
	class  int
	c      *Conn  // that has it
	opens  bool   // what the NIC has been asked for last; else it closes
	asked  bool   // and has not said that it is done
	then   func() // once it is closed
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
			b.mr, err = l.d.pd.RegMR(b.buf, 0, 1<<k, verbs.AccessLocalWrite|verbs.AccessMWBind)
		}
		if err == nil {
			err = b.renew(l.d.pd)
		}
		l.d.enter()
		defer l.d.leave()
		if err != nil {
			l.fail(b)
			return
		}
		l.byAddr[b.buf.Addr()] = b
		l.open(b)
	})
}

// keysOfWindow is how many keys a window can have, one after the other: they differ in eight bits.
const keysOfWindow = 256

// renew gives a block a window with other keys.
func (b *block) renew(pd *verbs.PD) (err error) {
	if b.window != nil {
		err = b.window.Dealloc()
	}
	if err == nil {
		b.window, err = pd.AllocMW(verbs.MWType1)
		b.keys = 0
	}
	return err
}

// open gives a block, which is about to be ready, a key that it has not had.
func (l *landings) open(b *block) {
	switch {
	case l.d.lost:
		l.fail(b)
	case b.keys < keysOfWindow:
		b.keys++
		l.d.keys.ask(b, true)
	default:
		l.d.worker.do(func() {
			err := b.renew(l.d.pd)
			l.d.enter()
			defer l.d.leave()
			if err != nil {
				l.fail(b)
				return
			}
			l.open(b)
		})
	}
}

// fail drops a block that was about to be ready.
func (l *landings) fail(b *block) {
	l.coming[b.class]--
	l.drop(b)
}

// give takes a block that is open and nobody needs, and tells those who wait.
func (l *landings) give(b *block) {
	l.coming[b.class]--
	l.byKey[b.window.RKey()] = b
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
			delete(l.byKey, b.window.RKey())
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
		if b.window != nil {
			_ = b.window.Dealloc()
		}
		if b.mr != nil {
			_ = b.mr.Dereg()
		}
		if b.buf != nil {
			_ = b.buf.Free()
		}
	})
}

// Expose implements engine.NIC: the block is open.
func (n *nic) Expose(b engine.Buffer) (addr uint64, key uint32) {
	return b.Addr, n.landing.byAddr[b.Addr].window.RKey()
}

// Revoke implements engine.NIC. It takes effect later; what depends on it waits (block.after).
func (n *nic) Revoke(key uint32) {
	b := n.landing.byKey[key]
	delete(n.landing.byKey, key)
	n.keys.ask(b, false)
}

// after has f run when no peer can write to the block any more.
func (b *block) after(f func()) {
	if b.asked {
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
	b.after(func() { l.open(b) })
}
