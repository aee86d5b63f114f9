package verbs

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"roced.io/roced/internal/base/abi/uverbs"
)

// Context is an open device (ibv_context): a connection to the daemon or to the kernel, with all objects created
// through it. The context and its objects are safe for concurrent use.
type Context struct {
	dev      backend
	name     string
	profiles []string
	attr     DeviceAttr

	async   *os.File
	events  chan AsyncEvent
	dropped atomic.Uint64
	reader  sync.WaitGroup

	// over is nil while the device is usable. Then it holds the reason why the device is unusable, and done is closed.
	over     atomic.Pointer[error]
	done     chan struct{}
	closing  sync.Once
	closeErr error

	mu     sync.Mutex
	serial uint64                // last user handle; handles are never reused
	users  map[uint64]any        // *CQ, *QP or *SRQ by user handle
	held   map[releaser]struct{} // objects with memory or descriptors in this process
}

// releaser is an object that holds memory or descriptors of this process.
type releaser interface{ release() }

// newContext sets up a context on a backend, which it owns even if it fails.
func newContext(b backend) (*Context, error) {
	c := &Context{dev: b, done: make(chan struct{}), events: make(chan AsyncEvent, maxEvents),
		users: map[uint64]any{}, held: map[releaser]struct{}{}}
	err := b.open(c)
	if err == nil {
		c.attr, err = c.QueryDevice()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// getContext opens the verbs context and listens to its asynchronous events.
func (c *Context) getContext() error {
	const verb = "get_context"
	_, a, err := roundTrip[uverbs.GetContextResp](c, verb, uverbs.CmdGetContext, uverbs.GetContext{})
	if err != nil {
		return err
	}
	defer a.close()
	if c.async, err = eventFile(a.take(uverbs.FDNumber, 0)); err != nil {
		return fail(verb, "async channel", err)
	}
	c.reader.Go(c.readEvents)
	return nil
}

// Name returns the name of the device.
func (c *Context) Name() string { return c.name }

// Profiles returns the names of the device's transport profiles.
func (c *Context) Profiles() []string { return append([]string(nil), c.profiles...) }

// Err returns nil while the device is usable, then ErrDeviceFatal or ErrClosed.
func (c *Context) Err() error {
	if p := c.over.Load(); p != nil {
		return *p
	}
	return nil
}

// Done returns a channel that is closed when the device is no longer usable.
func (c *Context) Done() <-chan struct{} { return c.done }

// end marks the device as unusable because of err. Only the first call has an effect.
func (c *Context) end(err error) {
	if c.over.CompareAndSwap(nil, &err) {
		close(c.done)
	}
}

// Close closes the context; the daemon destroys its objects. Close unmaps all memory
// of the context: do not access slices of MR.Bytes or Buffer.Bytes afterwards.
func (c *Context) Close() error {
	c.closing.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

func (c *Context) close() error {
	c.end(ErrClosed)
	err := c.dev.hangUp()
	if c.async != nil {
		_ = c.async.Close()
	}
	c.reader.Wait()
	c.mu.Lock()
	held := c.held
	c.held, c.users = nil, nil
	c.mu.Unlock()
	for o := range held {
		o.release()
	}
	c.dev.release()
	if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) {
		return nil // it is closed since the loss of the device
	}
	return err
}

// newUser returns the user handle of o, its number in events of the daemon.
func (c *Context) newUser(o any) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	if c.users != nil {
		c.users[c.serial] = o
	}
	return c.serial
}

// user returns the object with a user handle, or nil.
func (c *Context) user(n uint64) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.users[n]
}

func (c *Context) forgetUser(n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.users, n)
}

// hold registers an object for release by Close. If the context is closed already,
// hold releases it.
func (c *Context) hold(o releaser) error {
	c.mu.Lock()
	if c.held != nil {
		c.held[o] = struct{}{}
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	o.release()
	return ErrClosed
}

// drop releases an object and removes it from the list of Close.
func (c *Context) drop(o releaser) {
	c.mu.Lock()
	delete(c.held, o)
	c.mu.Unlock()
	o.release()
}

// AsyncEvent is an asynchronous event (ibv_async_event). At most one of the
// objects is set; none is if the event concerns the port or the device.
type AsyncEvent struct {
	Type EventType
	QP   *QP
	CQ   *CQ
	SRQ  *SRQ
	Port int
}

// maxEvents is the capacity of Events.
const maxEvents = 256

// Events returns the channel of asynchronous events. If the daemon ends, the last
// event is EventDeviceFatal. Then, or after Close, the channel is closed. If the
// channel is full, events are dropped, and DroppedEvents counts them.
func (c *Context) Events() <-chan AsyncEvent { return c.events }

// DroppedEvents returns the number of events dropped because Events was full.
func (c *Context) DroppedEvents() uint64 { return c.dropped.Load() }

// GetAsyncEvent waits for an asynchronous event (ibv_get_async_event).
func (c *Context) GetAsyncEvent(ctx context.Context) (AsyncEvent, error) {
	select {
	case e, ok := <-c.events:
		if !ok {
			return AsyncEvent{}, fail("get_async_event", "", c.Err())
		}
		return e, nil
	case <-ctx.Done():
		return AsyncEvent{}, fail("get_async_event", "", ctx.Err())
	}
}

// readEvents delivers asynchronous events until the daemon ends or the context is
// closed. It detects the end of the daemon.
func (c *Context) readEvents() {
	defer close(c.events)
	var b [uverbs.AsyncEventLen]byte
	for {
		n, err := c.async.Read(b[:])
		if err != nil {
			c.end(ErrDeviceFatal)
			if c.Err() == ErrDeviceFatal {
				c.deliver(AsyncEvent{Type: EventDeviceFatal})
			}
			return
		}
		if e, err := uverbs.Decode[uverbs.AsyncEvent](b[:n]); err == nil {
			c.dispatch(e)
		}
	}
}

// dispatch delivers an event with its object. It drops events of destroyed objects.
func (c *Context) dispatch(d uverbs.AsyncEvent) {
	e := AsyncEvent{Type: EventType(d.EventType)}
	switch e.Type {
	case EventDeviceFatal:
	case EventPortActive, EventPortErr, EventGIDChange:
		e.Port = int(d.Element)
	default:
		switch o := c.user(d.Element).(type) {
		case *QP:
			e.QP = o
		case *CQ:
			if e.Type == EventCQErr {
				o.failed.Store(true)
			}
			e.CQ = o
		case *SRQ:
			e.SRQ = o
		default:
			return
		}
	}
	c.deliver(e)
}

func (c *Context) deliver(e AsyncEvent) {
	select {
	case c.events <- e:
	default:
		c.dropped.Add(1)
	}
}
