package flor

import (
	"slices"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// keys opens and closes blocks of memory for peers: work requests bind a memory window to a block, and unbind it. They are those of
// a queue pair which is connected to itself and has no others, so that none waits behind data, and of the priority
// of acknowledgements. Windows are of type 1, which is for all queue pairs: a connection has several.
type keys struct {
	d  *Device
	q  *verbs.QP
	cq *verbs.CQ

	// guarded by the Device
	todo   []*block // what the NIC is to be asked for
	posted []*block // what it has been asked for, in this order
	closes int      // how many of both are to be closed
	armed  bool     // a completion wakes the loop
	bind   verbs.MWBind
}

// keyDepth is how many work requests the NIC has of those that open and close.
const keyDepth = 256

// open makes the queue pair.
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

// ask has the NIC open a block, or close it.
func (k *keys) ask(b *block, opens bool) {
	if k.d.lost {
		return // nobody writes to it
	}
	b.opens, b.asked = opens, true
	if !opens {
		k.closes++
	}
	k.todo = append(k.todo, b)
	k.post()
}

// post asks for as much as the NIC has room for.
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
				k.d.err = err // the next poll says so, too
			}
			return
		}
		k.todo = slices.Delete(k.todo, 0, 1)
		k.posted = append(k.posted, b)
	}
}

// awaited reports whether something waits for what the NIC has been asked for: a message for its block to be closed, or a
// connection for one that is open.
func (k *keys) awaited() bool {
	return k.closes > 0 || len(k.d.landing.hungry) > 0 && len(k.posted) > 0
}

// unheard reports whether something waits for what would not wake the loop.
func (k *keys) unheard() bool { return !k.armed && k.awaited() }

// keyCompleted takes a completion: what was asked for longest is done.
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

// done goes on with a block that is open, or closed.
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

// abandon goes on with all blocks, for the NIC is gone.
func (k *keys) abandon() {
	all := slices.Concat(k.posted, k.todo)
	k.posted, k.todo = nil, nil
	for _, b := range all {
		k.done(b)
	}
}
