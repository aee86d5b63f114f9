package verbs

import (
	"context"
	"encoding/binary"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/uverbs"
)

// CQ is a completion queue (ibv_cq).
type CQ struct {
	ctx     *Context
	handle  uint32
	user    uint64
	channel *CompChannel
	failed  atomic.Bool   // the queue has overflowed
	armed   atomic.Uint32 // the armed events; raised with mu held
	event   chan struct{} // an event for this queue, read by another goroutine
	waiting chan struct{} // held by the goroutine in Wait

	mu    sync.Mutex
	ring  *rxe.CQConsumer // nil when destroyed
	mem   []byte
	depth int
	wc    rxe.WC
}

// States of CQ.armed.
const (
	notArmed uint32 = iota
	armedSolicited
	armedAny
)

// CreateCQ creates a completion queue for depth completions. ReqNotify and Wait
// require a channel, which may otherwise be nil.
func (c *Context) CreateCQ(depth int, channel *CompChannel) (*CQ, error) {
	const verb = "create_cq"
	if depth < 0 || int64(depth) > 1<<31-1 {
		return nil, fail(verb, "depth "+strconv.Itoa(depth), unix.EINVAL)
	}
	q := &CQ{ctx: c, channel: channel, event: make(chan struct{}, 1), waiting: make(chan struct{}, 1)}
	q.user = c.newUser(q)
	cmd := uverbs.CreateCQ{UserHandle: q.user, CQE: uint32(depth), CompChannel: -1}
	if channel != nil {
		cmd.CompChannel = int32(channel.id)
	}
	r, p, err := create[uverbs.CreateCQResp, uverbs.RxeCreateCQResp](c, verb, uverbs.CmdCreateCQ, cmd)
	if err != nil {
		c.forgetUser(q.user)
		return nil, explain(err, "depth "+strconv.Itoa(depth)+", device limit "+strconv.Itoa(c.attr.MaxCQE))
	}
	q.handle = r.CQHandle
	if err = q.attach(p.MI, r.CQE); err == nil {
		err = c.hold(q)
	}
	if err != nil {
		_ = q.destroy()
		return nil, fail(verb, "", err)
	}
	return q, nil
}

// attach maps the ring in a response. The caller holds q.mu or the only reference to
// q.
func (q *CQ) attach(mi uverbs.MMInfo, depth uint32) error {
	mem, err := q.ctx.dev.mmap(mi.Offset, mi.Size)
	if err != nil {
		return err
	}
	ring, err := rxe.NewCQConsumer(mem)
	if err != nil {
		q.ctx.dev.unmap(mem)
		return err
	}
	if q.mem != nil {
		q.ctx.dev.unmap(q.mem)
	}
	q.ring, q.mem, q.depth = ring, mem, int(depth)
	return nil
}

// Depth returns the number of completions that the queue can hold.
func (q *CQ) Depth() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.depth
}

// Poll takes up to len(wcs) completions (ibv_poll_cq). It makes no system call and
// allocates no memory. If the queue is empty and can receive no more completions, it
// returns an error. If the queue is empty and the NIC is in this process (entry/local), Poll runs a turn of the NIC.
func (q *CQ) Poll(wcs []WC) (int, error) {
	n, err := q.take(wcs)
	if n == 0 && err == nil && len(wcs) > 0 && q.ctx.dev.turn() {
		return q.take(wcs)
	}
	return n, err
}

// take takes completions from the queue.
func (q *CQ) take(wcs []WC) (int, error) {
	q.mu.Lock()
	if q.ring == nil {
		q.mu.Unlock()
		return 0, fail("poll_cq", "", q.gone())
	}
	n := 0
	for n < len(wcs) && q.ring.Next(&q.wc) {
		e := &q.wc
		wcs[n] = WC{WRID: e.WRID, Status: Status(e.Status), Opcode: WCOpcode(e.Opcode), Flags: WCFlags(e.Flags), VendorErr: e.VendorErr,
			ByteLen: e.ByteLen, Imm: binary.BigEndian.Uint32(e.Ex[:]), QPN: e.QPN, SrcQP: e.SrcQP, PKeyIndex: e.PKeyIndex,
			SL: e.SL, Time: Timestamp(e.Time)}
		if wcs[n].Flags&WCWithInv != 0 {
			wcs[n].Imm = binary.NativeEndian.Uint32(e.Ex[:])
		}
		n++
	}
	if n > 0 {
		q.ring.Release()
		q.ctx.dev.amend(wcs[:n])
	}
	q.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	if q.failed.Load() {
		return 0, fail("poll_cq", "", ErrCQOverrun)
	}
	if err := q.ctx.Err(); err != nil {
		return 0, fail("poll_cq", "", err)
	}
	return 0, nil
}

// gone returns the reason why the queue has no ring.
func (q *CQ) gone() error {
	if err := q.ctx.Err(); err != nil {
		return err
	}
	return ErrClosed
}

// ReqNotify requests an event at the next completion, or at the next solicited or failed one (ibv_req_notify_cq).
// Completions in the queue cause no event: poll once more before waiting.
func (q *CQ) ReqNotify(solicitedOnly bool) error {
	const verb = "req_notify_cq"
	if q.channel == nil {
		return fail(verb, "", ErrNoChannel)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.arm(verb, solicitedOnly)
}

// arm arms the queue. The caller holds q.mu.
func (q *CQ) arm(verb string, solicitedOnly bool) error {
	if q.ring == nil {
		return fail(verb, "", q.gone())
	}
	if err := q.ctx.Err(); err != nil {
		return fail(verb, "", err)
	}
	// Another goroutine may read the event at once, so set armed first.
	if solicitedOnly {
		q.armed.CompareAndSwap(notArmed, armedSolicited)
		return q.ctx.dev.arm(q, rxe.ArmSolicited)
	}
	q.armed.Store(armedAny)
	return q.ctx.dev.arm(q, rxe.ArmAny)
}

// ensureArmed arms the queue unless it is armed for all completions.
func (q *CQ) ensureArmed(verb string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.armed.Load() == armedAny {
		return nil
	}
	return q.arm(verb, false)
}

// Wait waits for at least one completion and takes up to len(wcs), which must not be
// zero. It returns early if ctx ends. If several goroutines wait for one queue, it
// serves one at a time.
func (q *CQ) Wait(ctx context.Context, wcs []WC) (int, error) {
	const verb = "wait_cq"
	if n, err := q.Poll(wcs); n > 0 || err != nil || len(wcs) == 0 {
		return n, err
	}
	if q.channel == nil {
		return 0, fail(verb, "", ErrNoChannel)
	}
	select {
	case q.waiting <- struct{}{}:
	case <-ctx.Done():
		return 0, fail(verb, "", ctx.Err())
	}
	defer func() { <-q.waiting }()
	for {
		if err := q.ensureArmed(verb); err != nil {
			return 0, err
		}
		if n, err := q.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := q.channel.await(ctx, verb, q); err != nil {
			return 0, err
		}
		if n, err := q.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
	}
}

// pollsPerCheck is the number of polls of PollWait between checks of its context.
const pollsPerCheck = 64

// PollWait is Wait with the least latency: it polls. While the queue is empty it
// yields the core, because on a machine with few cores the daemon may need it.
func (q *CQ) PollWait(ctx context.Context, wcs []WC) (int, error) {
	for {
		for range pollsPerCheck {
			if n, err := q.Poll(wcs); n > 0 || err != nil || len(wcs) == 0 {
				return n, err
			}
			runtime.Gosched()
			_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
		if err := ctx.Err(); err != nil {
			return 0, fail("wait_cq", "", err)
		}
	}
}

// Resize changes the depth of the queue (ibv_resize_cq) and keeps its completions.
func (q *CQ) Resize(depth int) error {
	const verb = "resize_cq"
	if depth < 0 || int64(depth) > 1<<31-1 {
		return fail(verb, "depth "+strconv.Itoa(depth), unix.EINVAL)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring == nil {
		return fail(verb, "", q.gone())
	}
	r, p, err := create[uverbs.ResizeCQResp, uverbs.RxeCreateCQResp](q.ctx, verb, uverbs.CmdResizeCQ,
		uverbs.ResizeCQ{CQHandle: q.handle, CQE: uint32(depth)})
	if err != nil {
		return explain(err, "depth "+strconv.Itoa(depth))
	}
	if err := q.attach(p.MI, r.CQE); err != nil {
		return fail(verb, "", err)
	}
	return nil
}

// Destroy destroys a completion queue. No queue pair may use it and no goroutine wait
// for it.
func (q *CQ) Destroy() error { return q.ctx.destroy(q) }

func (q *CQ) destroy() error {
	return remove[uverbs.DestroyCQResp](q.ctx, "destroy_cq", uverbs.CmdDestroyCQ, uverbs.DestroyCQ{CQHandle: q.handle}, q.user)
}

func (q *CQ) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mem != nil {
		q.ctx.dev.unmap(q.mem)
		q.ring, q.mem = nil, nil
	}
}
