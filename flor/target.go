package flor

import (
	"roced.io/roced/flor/engine"
	"roced.io/roced/verbs"
)

// landings is the memory for incoming messages by WRITE, in power-of-two blocks. Each block has a memory window for
// peers. The window is closed before the message is delivered, and the next message gets a new key. Therefore a late
// WRITE cannot reach the block.
type landings struct {
	d      *Device
	used   int
	held   int                    // bytes held by connections
	ready  [maxClass + 1][]*block // free blocks with a key, by class
	coming [maxClass + 1]int      // number of blocks being opened, by class
	byAddr map[uint64]*block
	byKey  map[uint32]*block
	hungry map[*Conn]struct{} // connections waiting for a block
}

// block is the memory of one message.
type block struct {
	buf    *verbs.Buffer
	mr     *verbs.MR
	window *verbs.MW // the target of the peer's WRITEs
	keys   int       // keys used so far
	class  int
	c      *Conn  // owner
	opens  bool   // the last request opens the block; otherwise it closes it
	asked  bool   // the last request is not done
	then   func() // runs when the block is closed
}

func (l *landings) init(d *Device) {
	l.d, l.byAddr, l.byKey, l.hungry = d, map[uint64]*block{}, map[uint32]*block{}, map[*Conn]struct{}{}
}

// take returns a block for n bytes to a connection. If there is none now, it returns nil and notifies the connection
// later.
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

// allows reports whether a connection may hold n more bytes. A connection may hold at most as much as remains free for
// the others.
func (l *landings) allows(c *Conn, n int) bool {
	return c.landed+n <= l.d.cfg.Landing-l.held-n
}

// maxComing is the maximum number of blocks per class that are being opened at a time.
const maxComing = 4

// more creates a block if there is room, or if reclaim can make room.
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

// keysOfWindow is the number of keys that a window can have in turn: they differ in eight bits.
const keysOfWindow = 256

// renew replaces the window of a block, for new keys.
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

// open gives a block a new, unused key.
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

// fail drops a block that could not be opened.
func (l *landings) fail(b *block) {
	l.coming[b.class]--
	l.drop(b)
}

// give returns an open, unused block and notifies the waiting connections.
func (l *landings) give(b *block) {
	l.coming[b.class]--
	l.byKey[b.window.RKey()] = b
	l.ready[b.class] = append(l.ready[b.class], b)
	for c := range l.hungry {
		delete(l.hungry, c)
		c.e.Resume(l.d.now())
	}
}

// reclaim frees one unused block.
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
	l.d.worker.do(func() { // failures end with the device
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

// Revoke implements engine.NIC. It takes effect later; dependent steps wait in block.after.
func (n *nic) Revoke(key uint32) {
	b := n.landing.byKey[key]
	delete(n.landing.byKey, key)
	n.keys.ask(b, false)
}

// after runs f when peers cannot write to the block any more.
func (b *block) after(f func()) {
	if b.asked {
		b.then = f
	} else {
		f()
	}
}

// leave returns a block of a connection; the block gets a new key. The old key is revoked or about to be.
func (l *landings) leave(b *block) {
	b.c.landed -= 1 << b.class
	l.held -= 1 << b.class
	b.c = nil
	l.coming[b.class]++
	b.after(func() { l.open(b) })
}
