package flor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"roced.io/roced/flor/engine"
	"roced.io/roced/verbs"
)

// prepare creates one end of a connection and the greeting for the peer.
func (d *Device) prepare() (*Conn, *hello, error) {
	e := &d.cfg.Engine
	h := &hello{rc: e.Hardware, unit: e.Unit, writes: uint32(e.Writes), partials: uint8(e.Partials), maxSend: e.MaxSend, inbox: uint16(d.cfg.Inbox),
		mtu: d.mtu, ackQPN: d.acks.Num(), token: randomUint64(), firstGN: randomUint64(), n: d.cfg.Backups + 1}
	c := &Conn{d: d, token: h.token, inbox: make(chan *Message, d.cfg.Inbox), done: make(chan struct{}), calls: map[uint32]*call{}}
	for i := range h.n {
		p, err := d.newPair(i)
		if err != nil {
			c.discard()
			return nil, nil, err
		}
		p.c = c
		c.pairs = append(c.pairs, p)
		h.qpn[i], h.psns[i] = p.num, p.psn
	}
	return c, h, nil
}

// discard destroys an end that is not in the engine.
func (c *Conn) discard() {
	for _, p := range c.pairs {
		p.destroy()
	}
	c.pairs = nil
}

// join connects the queue pairs to the peer's and adds them to the engine.
func (c *Conn) join(local, remote netip.AddrPort, mine, theirs *hello) error {
	d := c.d
	d.opening.Lock()
	defer d.opening.Unlock()
	c.local, c.remote = local, remote
	c.path = path{gid: verbs.GIDOf(remote.Addr()), sgid: slices.Index(d.gids, verbs.GIDOf(local.Addr())), mtu: min(mine.mtu, theirs.mtu)}
	if c.path.sgid < 0 {
		return fmt.Errorf("flor: %v is not an address of the NIC", local.Addr())
	}
	c.peerToken, c.peerQPN, c.peerInbox, c.credit = theirs.token, theirs.qpn[0], int(theirs.inbox), int(theirs.inbox)
	for i, p := range c.pairs {
		p.peerQPN = theirs.qpn[i]
		err := p.initialize()
		if err == nil {
			err = p.connect(theirs.qpn[i], theirs.psns[i])
		}
		if err != nil {
			return err
		}
	}
	if err := d.room(len(c.pairs)); err != nil {
		return err
	}
	var err error
	if c.peer, err = d.meet(ackAddr{c.path.gid, theirs.ackQPN}, c.path.sgid); err != nil {
		return err
	}
	return c.begin(mine, theirs)
}

// room makes room in the completion queue for n more queue pairs.
func (d *Device) room(n int) error {
	d.mu.Lock()
	need := (len(d.pairs) + n) * d.cfg.Depth
	d.mu.Unlock()
	if depth := d.sendCQ.Depth(); need > depth {
		return d.sendCQ.Resize(max(need, 2*depth))
	}
	return nil
}

// drain processes all present completions.
func (d *Device) drain() {
	for range d.cfg.Pool/len(d.wcs) + 1 {
		if d.turn() == 0 {
			return
		}
	}
}

// begin adds the connection to the engine.
func (c *Conn) begin(mine, theirs *hello) (err error) {
	d := c.d
	d.drain() // completions of earlier queue pairs with the same numbers
	d.enter()
	defer d.leave()
	k := engine.ConnConfig{AckPeer: c.peer.id, First: mine.numbers(), PeerFirst: theirs.numbers(), Ctx: c}
	for i, p := range c.pairs {
		k.QPs, k.Peers = append(k.QPs, engine.QPN(p.num)), append(k.Peers, engine.QPN(theirs.qpn[i]))
	}
	if err = d.err; err == nil {
		c.e, err = d.eng.Open(d.now(), k)
	}
	if err != nil {
		d.forsake(c.peer)
		return err
	}
	for _, p := range c.pairs {
		p.state = pairUp
		d.pairs[p.num] = p
	}
	c.left.Add(len(c.pairs))
	d.conns[c] = struct{}{}
	c.watching = func() {}
	return nil
}

// stands stores the rdma_cm connection and watches it for the peer's end.
func (c *Conn) stands(cm *verbs.CMConn) {
	c.d.enter()
	defer c.d.leave()
	c.cm = cm
	if c.err != nil {
		c.d.worker.do(c.hangUp)
		return
	}
	var ctx context.Context
	ctx, c.watching = context.WithCancel(context.Background())
	c.d.group.Go(func() {
		if cm.Wait(ctx); ctx.Err() == nil {
			c.peerLeft()
		}
	})
}

// grace is the time for late acknowledgements after the peer has closed.
const grace = 50 * time.Millisecond

// peerLeft ends the connection after the peer has closed it.
func (c *Conn) peerLeft() {
	fail := func() {
		c.d.drain() // with RC the NIC has acknowledged these messages
		c.d.enter()
		defer c.d.leave()
		c.e.Fail(c.d.now(), ErrPeerClosed)
	}
	c.d.mu.Lock()
	busy := c.under > 0
	c.d.mu.Unlock()
	if !busy {
		fail()
		return
	}
	select {
	case <-c.done:
	case <-time.After(grace):
		fail()
	}
}

// Dial connects to a Listener.
func (d *Device) Dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	c, err := d.dial(ctx, to)
	if err != nil {
		return nil, &Error{Op: "dial", Remote: to, Err: err}
	}
	return c, nil
}

func (d *Device) dial(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	c, mine, err := d.prepare()
	if err != nil {
		return nil, err
	}
	cm, err := d.cm.Dial(ctx, to, c.pairs[0].q, verbs.CMParams{PrivateData: mine.append(nil), RetryCount: retryCount,
		Connect: func(local, remote netip.AddrPort, private []byte) error {
			var theirs hello
			if err := errors.Join(theirs.parse(private), mine.agrees(&theirs)); err != nil {
				return err
			}
			return c.join(local, remote, mine, &theirs)
		}})
	if err != nil {
		c.giveUp()
		var no *verbs.RejectedError
		if errors.As(err, &no) && no.Reason == consumerReject {
			err = refusal(no.PrivateData, err)
		}
		return nil, err
	}
	c.stands(cm)
	return c, nil
}

// giveUp destroys an end after a failed setup.
func (c *Conn) giveUp() {
	if c.e == nil {
		c.discard()
		return
	}
	_ = c.Close() // no message can be lost
}
