package flor

import (
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// keys opens and closes blocks of memory for peers. Work requests bind a memory window to a block, and unbind it. They
// use a separate queue pair that is connected to itself, so none waits behind data. It has the priority of
// acknowledgements. Windows are of type 1, which are valid on all queue pairs: a connection has several.
type keys struct {
	d  *Device
	q  *verbs.QP
	cq *verbs.CQ

	// guarded by the Device
	todo   []*block // blocks to open or close, not posted yet
	posted []*block // blocks with a posted work request, in order
	closes int      // number of closings in both lists
	armed  bool     // a completion wakes the loop
	bind   verbs.MWBind
}

// keyDepth is the maximum number of posted open and close requests.
const keyDepth = 256

// open creates the queue pair.
func (k *keys) open(d *Device) (err error) {
	k.d = d
	if k.cq, err = d.ctx.CreateCQ(keyDepth, d.ch); err != nil {
		return err
	}
	if k.q, err = d.pd.CreateQP(verbs.QPInitAttr{Type: verbs.UC, SendCQ: k.cq, RecvCQ: k.cq, MaxSendWR: keyDepth, MaxSendSGE: 1}); err != nil {
		return err
	}
	p := verbs.DefaultConnParams()
	p.Access, p.TrafficClass = verbs.AccessLocalWrite, d.cfg.AckClass
	self, err := k.q.Info(p)
	if err != nil {
		return err
	}
	return k.q.Connect(self, p)
}

// ask queues the opening or closing of a block.
func (k *keys) ask(b *block, opens bool) {
	if k.d.lost {
		return // the NIC is lost, so no peer writes to the block
	}
	b.opens, b.asked = opens, true
	if !opens {
		k.closes++
	}
	k.todo = append(k.todo, b)
	k.post()
}

// post posts as many queued requests as the send queue holds.
func (k *keys) post() {
	for len(k.todo) > 0 && len(k.posted) < keyDepth {
		b := k.todo[0]
		k.bind = verbs.MWBind{MW: b.window, MR: b.mr, NewRKey: b.window.RKey()}
		if b.opens {
			k.bind.Length, k.bind.Access = 1<<b.class, verbs.AccessRemoteWrite
			k.bind.NewRKey = k.bind.NewRKey&^0xff | (k.bind.NewRKey+1)&0xff
		}
		k.d.sendWR = verbs.SendWR{Opcode: verbs.OpBindMW, Flags: verbs.SendSignaled, Bind: &k.bind}
		if err := k.q.PostSend(&k.d.sendWR); err != nil {
			if k.d.err == nil {
				k.d.err = err // the next poll reports the failure, too
			}
			return
		}
		k.todo = slices.Delete(k.todo, 0, 1)
		k.posted = append(k.posted, b)
	}
}

// awaited reports whether a message waits for the closing of its block, or a connection for an open block.
func (k *keys) awaited() bool {
	return k.closes > 0 || len(k.d.landing.hungry) > 0 && len(k.posted) > 0
}

// unheard reports whether a request is awaited whose completion would not wake the loop.
func (k *keys) unheard() bool { return !k.armed && k.awaited() }

// keyCompleted processes a completion: the oldest posted request is done.
func (d *Device) keyCompleted(_ mono.Time, wc *verbs.WC) {
	k := &d.keys
	if err := wc.Err(); err != nil {
		d.fail(err)
		return
	}
	b := k.posted[0]
	k.posted = slices.Delete(k.posted, 0, 1)
	k.done(b)
	k.post()
}

// done continues with a block that is now open or closed.
func (k *keys) done(b *block) {
	b.asked = false
	if b.opens {
		k.d.landing.give(b)
		return
	}
	k.closes--
	if then := b.then; then != nil {
		b.then = nil
		then()
	}
}

// abandon finishes all requests after the NIC is lost.
func (k *keys) abandon() {
	all := slices.Concat(k.posted, k.todo)
	k.posted, k.todo = nil, nil
	for _, b := range all {
		k.done(b)
	}
}
