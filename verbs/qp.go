package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/uverbs"
)

// QPInitAttr are the attributes of a new queue pair (ibv_qp_init_attr). Type, SendCQ and
// RecvCQ are required; a zero capacity is none.
type QPInitAttr struct {
	Type           QPType
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // nil: the queue pair has its own receive queue
	MaxSendWR      int
	MaxRecvWR      int
	MaxSendSGE     int
	MaxRecvSGE     int
	MaxInline      int  // bytes
	SignalAll      bool // all send work requests have SendSignaled
}

// QP is a queue pair (ibv_qp).
type QP struct {
	ctx    *Context
	handle uint32
	user   uint64
	num    uint32
	typ    QPType
	init   QPInitAttr
	psn    uint32
	rq     recvQueue
	hasRQ  bool

	mu    sync.Mutex
	state QPState           // state set by this process; the daemon's state may be later
	sq    *rxe.SendProducer // nil when destroyed
	mem   []byte
}

// CreateQP creates a queue pair in the RESET state. Its capacities may exceed those in
// attr: see Init.
func (p *PD) CreateQP(attr QPInitAttr) (*QP, error) {
	const verb = "create_qp"
	c := p.ctx
	cmd, err := createQP(p, &attr)
	if err != nil {
		return nil, fail(verb, "", err)
	}
	q := &QP{ctx: c, typ: attr.Type, init: attr, hasRQ: attr.SRQ == nil, psn: randomPSN()}
	q.user = c.newUser(q)
	cmd.UserHandle = q.user
	r, m, err := create[uverbs.CreateQPResp, uverbs.RxeCreateQPResp](c, verb, uverbs.CmdCreateQP, cmd)
	if err != nil {
		c.forgetUser(q.user)
		return nil, explain(err, blame(
			limit{"max_send_wr", attr.MaxSendWR, c.attr.MaxQPWR}, limit{"max_recv_wr", attr.MaxRecvWR, c.attr.MaxQPWR},
			limit{"max_send_sge", attr.MaxSendSGE, c.attr.MaxSGE}, limit{"max_recv_sge", attr.MaxRecvSGE, c.attr.MaxSGE}))
	}
	q.handle, q.num = r.QPHandle, r.QPN
	q.init.MaxSendWR, q.init.MaxRecvWR = int(r.MaxSendWR), int(r.MaxRecvWR)
	q.init.MaxSendSGE, q.init.MaxRecvSGE = int(r.MaxSendSGE), int(r.MaxRecvSGE)
	q.init.MaxInline = int(r.MaxInlineData)
	if err = q.attach(&m, &r); err == nil {
		err = c.hold(q)
	}
	if err != nil {
		q.release()
		_ = q.destroy()
		return nil, fail(verb, "", err)
	}
	return q, nil
}

// createQP returns the command.
func createQP(p *PD, a *QPInitAttr) (cmd uverbs.CreateQP, err error) {
	if a.SendCQ == nil || a.RecvCQ == nil {
		return cmd, fmt.Errorf("no completion queue: %w", unix.EINVAL)
	}
	for _, n := range []int{a.MaxSendWR, a.MaxRecvWR, a.MaxSendSGE, a.MaxRecvSGE, a.MaxInline} {
		if n < 0 || int64(n) > 1<<31-1 {
			return cmd, fmt.Errorf("capacity %d: %w", n, unix.EINVAL)
		}
	}
	cmd = uverbs.CreateQP{PDHandle: p.handle, SendCQHandle: a.SendCQ.handle, RecvCQHandle: a.RecvCQ.handle,
		MaxSendWR: uint32(a.MaxSendWR), MaxRecvWR: uint32(a.MaxRecvWR), MaxSendSGE: uint32(a.MaxSendSGE),
		MaxRecvSGE: uint32(a.MaxRecvSGE), MaxInlineData: uint32(a.MaxInline), QPType: uint8(a.Type)}
	if a.SignalAll {
		cmd.SQSigAll = 1
	}
	if a.SRQ != nil {
		cmd.IsSRQ, cmd.SRQHandle = 1, a.SRQ.handle
	}
	return cmd, nil
}

// attach maps the rings in a response.
func (q *QP) attach(m *uverbs.RxeCreateQPResp, r *uverbs.CreateQPResp) error {
	if r.QPHandle >= q.ctx.dev.maxQP() {
		return ErrProtocol
	}
	if q.hasRQ {
		if err := q.rq.attach(q.ctx, m.RQ, r.MaxRecvSGE); err != nil {
			return err
		}
	}
	mem, err := q.ctx.dev.mmap(m.SQ.Offset, m.SQ.Size)
	if err != nil {
		return err
	}
	q.mem = mem
	q.sq, err = rxe.NewSendProducer(mem, r.MaxSendSGE, r.MaxInlineData)
	return err
}

// randomPSN returns the first packet sequence number of a queue pair.
func randomPSN() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint32(b[:]) & 0xffffff
}

// Num returns the queue pair number.
func (q *QP) Num() uint32 { return q.num }

// Type returns the transport service.
func (q *QP) Type() QPType { return q.typ }

// Init returns the attributes of CreateQP with the actual capacities.
func (q *QP) Init() QPInitAttr { return q.init }

// Destroy destroys the queue pair; outstanding work requests do not complete.
func (q *QP) Destroy() error { return q.ctx.destroy(q) }

func (q *QP) destroy() error {
	return remove[uverbs.DestroyQPResp](q.ctx, "destroy_qp", uverbs.CmdDestroyQP, uverbs.DestroyQP{QPHandle: q.handle}, q.user)
}

func (q *QP) release() {
	q.rq.detach(q.ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mem != nil {
		q.ctx.dev.unmap(q.mem)
		q.sq, q.mem = nil, nil
	}
}
