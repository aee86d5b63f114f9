package flor

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"roced.io/roced/flor/engine"
	"roced.io/roced/plugin/mono"
	"roced.io/roced/verbs"
)

// Conn is a connection. It is safe for concurrent use.
type Conn struct {
	d             *Device
	local, remote netip.AddrPort
	token         uint64 // identifies this end in the peer's control messages
	peerToken     uint64
	peerQPN       uint32 // number of the peer's first queue pair
	peer          *peer
	path          path
	pairs         []*pair
	left          sync.WaitGroup // counts queue pairs that are not destroyed
	inbox         chan *Message
	done          chan struct{} // closed when the connection has ended
	peerInbox     int
	owed          atomic.Int32 // messages taken from our inbox and not yet credited to the peer
	watching      context.CancelFunc
	idle          chan struct{} // closed when no message is in flight; nil: no waiter

	// guarded by the Device
	e          *engine.Conn
	cm         *verbs.CMConn // set once established
	err        error
	ops        []op
	free       []uint32
	under      int  // user messages in flight
	credit     int  // free slots in the peer's inbox
	told       bool // a credit message is in flight
	calls      map[uint32]*call
	lastCall   uint32
	waiting    []chan struct{}
	unsaid     []uint32  // numbers of calls that get no reply
	landed     int       // bytes of landing memory
	revoking   int       // received messages whose delivery waits for revocation of the peer's access
	over       bool      // the engine has reported the end
	deaf       bool      // closed by its user
	failed     mono.Time // time of a queue pair failure; set until a backup sends its WQEs
	failedSlot int
	shut       bool
}

// path is the address of the peer.
type path struct {
	gid  verbs.GID
	sgid int
	mtu  verbs.MTU
}

// op is a message in flight and its completion callback.
type op struct {
	m      *Message
	done   func(error)
	wait   chan error
	call   *call
	ours   bool // a credit or an unanswered notice, not a user message
	credit bool
}

// call is a call in progress.
type call struct {
	result    chan result
	abandoned bool
}

type result struct {
	m   *Message
	err error
}

// Local returns the local address.
func (c *Conn) Local() netip.AddrPort { return c.local }

// Remote returns the address of the peer.
func (c *Conn) Remote() netip.AddrPort { return c.remote }

// NewMessage calls Device.NewMessage.
func (c *Conn) NewMessage(ctx context.Context, n int) (*Message, error) {
	return c.d.NewMessage(ctx, n)
}

// fault returns an error of this connection.
func (c *Conn) fault(what string, err error) error {
	if err == nil {
		return nil
	}
	var mine *Error
	if errors.As(err, &mine) {
		return err
	}
	return &Error{Op: what, Local: c.local, Remote: c.remote, Err: err}
}

// Done returns a channel that is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns the cause of the end of the connection, nil before.
func (c *Conn) Err() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.fault("connection", c.err)
}

// Send sends a message and waits for its acknowledgement: the message is in the peer's inbox. Send takes ownership of the
// message, also on error. If ctx or the connection ends, the message may arrive or not.
func (c *Conn) Send(ctx context.Context, m *Message) error {
	return c.send(ctx, "send", makeTag(tagMessage, 0), m)
}

func (c *Conn) send(ctx context.Context, what string, tag uint32, m *Message) error {
	wait := make(chan error, 1)
	if err := c.post(ctx, what, tag, m, op{wait: wait}); err != nil {
		return err
	}
	select {
	case err := <-wait:
		return c.fault(what, err)
	case <-ctx.Done():
		return c.fault(what, ctx.Err())
	}
}

// Post sends a message without waiting for its acknowledgement. It calls done, unless nil, after the acknowledgement, or
// with the error. done must not block. If Post returns an error, it does not call done.
func (c *Conn) Post(ctx context.Context, m *Message, done func(error)) error {
	return c.post(ctx, "post", makeTag(tagMessage, 0), m, op{done: done})
}

// Call sends a request and waits for its reply. It takes ownership of the request, also on error; the caller releases the
// reply. If ctx ends, the reply is dropped.
func (c *Conn) Call(ctx context.Context, request *Message) (*Message, error) {
	k := &call{result: make(chan result, 1)}
	if err := c.post(ctx, "call", makeTag(tagRequest, 0), request, op{call: k}); err != nil {
		return nil, err
	}
	select {
	case r := <-k.result:
		return r.m, c.fault("call", r.err)
	case <-ctx.Done():
		c.abandon(k)
		return nil, c.fault("call", ctx.Err())
	}
}

// abandon drops the reply of a call.
func (c *Conn) abandon(k *call) {
	c.d.enter()
	k.abandoned = true
	c.d.leave()
	select {
	case r := <-k.result:
		if r.m != nil {
			r.m.Release()
		}
	default:
	}
}

// post waits for room and passes a message to the engine.
func (c *Conn) post(ctx context.Context, what string, tag uint32, m *Message, o op) error {
	m, err := m.registered(ctx, c.d)
	if err != nil {
		return c.fault(what, err)
	}
	if !m.over.CompareAndSwap(false, true) {
		return c.fault(what, ErrReleased)
	}
	o.m = m
	for {
		wait, err := c.try(tag, o)
		if err == nil && wait != nil {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			m.release()
		}
		return c.fault(what, err)
	}
}

// try passes a message to the engine. If there is no room it returns a channel to wait on.
func (c *Conn) try(tag uint32, o op) (wait <-chan struct{}, err error) {
	c.d.enter()
	defer c.d.leave()
	kind, _ := splitTag(tag)
	counted := kind == tagMessage || kind == tagRequest
	switch {
	case c.err != nil:
		return nil, c.err
	case c.shut && kind != tagResponse:
		return nil, ErrClosed
	case c.under >= c.d.cfg.Queue || counted && c.credit == 0:
		w := make(chan struct{})
		c.waiting = append(c.waiting, w)
		return w, nil
	}
	if o.call != nil {
		tag = makeTag(tagRequest, c.enlist(o.call))
	}
	if err := c.submit(tag, o); err != nil {
		if o.call != nil {
			_, number := splitTag(tag)
			delete(c.calls, number)
		}
		return nil, err
	}
	if counted {
		c.credit--
	}
	return nil, nil
}

// enlist assigns a unique number to a call.
func (c *Conn) enlist(k *call) uint32 {
	for {
		c.lastCall = (c.lastCall + 1) & tagMask
		if _, taken := c.calls[c.lastCall]; !taken {
			c.calls[c.lastCall] = k
			return c.lastCall
		}
	}
}

// submit passes a message to the engine.
func (c *Conn) submit(tag uint32, o op) error {
	if len(c.free) == 0 {
		c.ops = append(c.ops, op{})
		c.free = append(c.free, uint32(len(c.ops)-1))
	}
	at := c.free[len(c.free)-1]
	c.free = c.free[:len(c.free)-1]
	c.ops[at] = o
	if !o.ours {
		c.under++
	}
	var b engine.Buffer
	if o.m != nil {
		b = o.m.buffer()
	}
	err := c.e.Send(c.d.now(), uint64(at), tag, b)
	if err != nil {
		if !o.ours {
			c.under--
		}
		c.ops[at] = op{}
		c.free = append(c.free, at)
	}
	return err
}

// wake wakes the goroutines that wait for room.
func (c *Conn) wake() {
	for _, w := range c.waiting {
		close(w)
	}
	c.waiting = nil
}

// Recv waits for a message or a request, in the order of completion. After the end of the connection it first returns the
// messages that are still in the inbox.
func (c *Conn) Recv(ctx context.Context) (*Message, error) {
	select {
	case m := <-c.inbox:
		return c.taken(m), nil
	default:
	}
	select {
	case m := <-c.inbox:
		return c.taken(m), nil
	case <-c.done:
	case <-ctx.Done():
		return nil, c.fault("recv", ctx.Err())
	}
	select {
	case m := <-c.inbox: // the last messages
		return m, nil
	default:
		return nil, c.fault("recv", c.reason())
	}
}

func (c *Conn) reason() error {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.err
}

// taken counts a message that has left the inbox, and grants credit to the peer in batches.
func (c *Conn) taken(m *Message) *Message {
	if c.owed.Add(1) >= c.enough() {
		c.d.enter()
		defer c.d.leave()
		c.settleDebts()
	}
	return m
}

// enough is the size of a batch of credit.
func (c *Conn) enough() int32 { return int32(c.d.cfg.Inbox+1) / 2 }

// settleDebts sends due credit and notices of unanswered calls.
func (c *Conn) settleDebts() {
	if c.err != nil {
		return
	}
	for len(c.unsaid) > 0 && c.submit(makeTag(tagUnanswered, c.unsaid[0]), op{ours: true}) == nil {
		c.unsaid = c.unsaid[1:]
	}
	if n := c.owed.Load(); n >= c.enough() && !c.told && c.submit(makeTag(tagCredit, uint32(n)), op{ours: true, credit: true}) == nil {
		c.owed.Add(-n)
		c.told = true
	}
}

// unanswered notifies the peer that a call gets no reply.
func (c *Conn) unanswered(number uint32) {
	c.d.enter()
	defer c.d.leave()
	c.unsaid = append(c.unsaid, number)
	c.settleDebts()
}

// Shutdown closes the connection when all messages have been acknowledged, or when ctx ends. Meanwhile only replies can be
// sent, and messages are received.
func (c *Conn) Shutdown(ctx context.Context) error {
	c.d.enter()
	c.shut = true
	c.wake()
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	c.rest()
	idle := c.idle
	c.d.leave()
	var err error
	select {
	case <-idle:
	case <-c.done:
		err = c.Err()
	case <-ctx.Done():
		err = c.fault("shutdown", ctx.Err())
	}
	return errors.Join(err, c.Close())
}

// rest wakes Shutdown when no message is in flight.
func (c *Conn) rest() {
	if c.idle != nil && c.under == 0 && len(c.calls) == 0 && !c.told {
		select {
		case <-c.idle:
		default:
			close(c.idle)
		}
	}
}

// Close closes the connection at once. Calls in progress return ErrClosed. Close notifies the peer and releases the inbox.
func (c *Conn) Close() error {
	c.d.enter()
	c.deaf = true
	c.e.Fail(c.d.now(), ErrClosed)
	c.d.leave()
	select {
	case <-c.done:
	case <-time.After(closing): // the NIC does not complete its WQEs
	}
	for {
		select {
		case m := <-c.inbox:
			m.Release()
		default:
			return nil
		}
	}
}
