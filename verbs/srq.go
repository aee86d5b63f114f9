package verbs

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/internal/base/abi/uverbs"
)

// RecvWR is a receive work request (ibv_recv_wr).
type RecvWR struct {
	WRID uint64
	SGEs []SGE
}

// recvQueue is the client's end of a receive queue.
type recvQueue struct {
	mu   sync.Mutex
	ring *rxe.RecvProducer // nil when destroyed
	mem  []byte
}

// attach maps the ring in a response, in place of the current one.
func (q *recvQueue) attach(c *Context, mi uverbs.MMInfo, sge uint32) error {
	mem, err := c.dev.mmap(mi.Offset, mi.Size)
	if err != nil {
		return err
	}
	ring, err := rxe.NewRecvProducer(mem, sge)
	if err != nil {
		c.dev.unmap(mem)
		return err
	}
	if q.mem != nil {
		c.dev.unmap(q.mem)
	}
	q.ring, q.mem = ring, mem
	return nil
}

// post posts work requests until an error.
func (q *recvQueue) post(c *Context, wrs []RecvWR) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring == nil {
		return 0, ErrClosed
	}
	if err := c.Err(); err != nil {
		return 0, err
	}
	for i := range wrs {
		if err := rxe.PostRecv(q.ring, wrs[i].WRID, wrs[i].SGEs); err != nil {
			return i, postError(err)
		}
	}
	return len(wrs), nil
}

// detach unmaps the ring.
func (q *recvQueue) detach(c *Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mem != nil {
		c.dev.unmap(q.mem)
		q.ring, q.mem = nil, nil
	}
}

// postError translates the errors of the rings.
func postError(err error) error {
	switch err {
	case rxe.ErrFull:
		return ErrQueueFull
	case rxe.ErrSGE:
		return ErrTooManySGEs
	case rxe.ErrInline:
		return ErrInline
	case rxe.ErrLength:
		return ErrTooLong
	}
	return err
}

// SRQ is a shared receive queue (ibv_srq).
type SRQ struct {
	recvQueue
	ctx    *Context
	handle uint32
	user   uint64
	num    uint32
	attr   SRQAttr
}

// SRQAttr are the attributes of a shared receive queue (ibv_srq_attr).
type SRQAttr struct {
	MaxWR  int
	MaxSGE int
	// Limit arms EventSRQLimitReached, which the device reports once, when fewer work
	// requests are left. Zero disarms it.
	Limit int
}

// CreateSRQ creates a shared receive queue.
func (p *PD) CreateSRQ(attr SRQAttr) (*SRQ, error) {
	const verb = "create_srq"
	c := p.ctx
	if attr.MaxWR < 0 || attr.MaxSGE < 0 || attr.Limit < 0 {
		return nil, fail(verb, fmt.Sprintf("%+v", attr), unix.EINVAL)
	}
	s := &SRQ{ctx: c}
	s.user = c.newUser(s)
	r, m, err := create[uverbs.CreateSRQResp, uverbs.RxeCreateSRQResp](c, verb, uverbs.CmdCreateSRQ,
		uverbs.CreateSRQ{UserHandle: s.user, PDHandle: p.handle, MaxWR: uint32(attr.MaxWR), MaxSGE: uint32(attr.MaxSGE), SRQLimit: uint32(attr.Limit)})
	if err != nil {
		c.forgetUser(s.user)
		return nil, explain(err, blame(
			limit{"max_wr", attr.MaxWR, c.attr.MaxSRQWR}, limit{"max_sge", attr.MaxSGE, c.attr.MaxSRQSGE},
			limit{"srq_limit", attr.Limit, attr.MaxWR}))
	}
	s.handle, s.attr = r.SRQHandle, SRQAttr{MaxWR: int(r.MaxWR), MaxSGE: int(r.MaxSGE)}
	s.num = m.SRQNum
	if err = s.attach(s.ctx, m.MI, r.MaxSGE); err == nil {
		err = c.hold(s)
	}
	if err != nil {
		_ = s.destroy()
		return nil, fail(verb, "", err)
	}
	return s, nil
}

// Num returns the queue's number in the device.
func (s *SRQ) Num() uint32 { return s.num }

// MaxWR returns the capacity in work requests.
func (s *SRQ) MaxWR() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attr.MaxWR
}

// PostRecv posts a receive work request (ibv_post_srq_recv).
func (s *SRQ) PostRecv(wr *RecvWR) error {
	wrs := [1]RecvWR{*wr}
	_, err := s.PostRecvN(wrs[:])
	return err
}

// PostRecvN posts receive work requests and returns the number posted, which is less
// than len(wrs) only after an error.
func (s *SRQ) PostRecvN(wrs []RecvWR) (int, error) {
	n, err := s.post(s.ctx, wrs)
	if err != nil {
		return n, fail("post_srq_recv", "", err)
	}
	return n, nil
}

// Modify arms or disarms the limit event (ibv_modify_srq).
func (s *SRQ) Modify(newLimit int) error {
	const verb = "modify_srq"
	detail := fmt.Sprintf("srq_limit %d", newLimit)
	if newLimit < 0 || newLimit > s.MaxWR() {
		return fail(verb, detail, unix.EINVAL)
	}
	return explain(s.ctx.run(verb, uverbs.CmdModifySRQ, uverbs.ModifySRQ{
		SRQHandle: s.handle, AttrMask: uverbs.SRQLimit, SRQLimit: uint32(newLimit)}), detail)
}

// Resize changes the capacity of the queue to at least maxWR work requests (ibv_modify_srq
// with IBV_SRQ_MAX_WR) and keeps posted requests. It fails if more requests are posted, or if
// the armed limit is higher.
func (s *SRQ) Resize(maxWR int) error {
	const verb = "modify_srq"
	detail := fmt.Sprintf("max_wr %d", maxWR)
	if maxWR <= 0 || int64(maxWR) > 1<<31-1 {
		return fail(verb, detail, unix.EINVAL)
	}
	s.mu.Lock() // prevents posting to the old ring
	defer s.mu.Unlock()
	if s.ring == nil {
		return fail(verb, "", ErrClosed)
	}
	mi, err := s.ctx.dev.resizeSRQ(uverbs.ModifySRQ{SRQHandle: s.handle, AttrMask: uverbs.SRQMaxWR, MaxWR: uint32(maxWR)})
	if err != nil {
		return explain(err, blame(limit{"max_wr", maxWR, s.ctx.attr.MaxSRQWR}))
	}
	if err := s.attach(s.ctx, mi, uint32(s.attr.MaxSGE)); err != nil {
		return fail(verb, "", err)
	}
	s.attr.MaxWR = s.ring.Size()
	return nil
}

// Query returns the attributes; Limit is zero if the event is not armed.
func (s *SRQ) Query() (SRQAttr, error) {
	r, err := ask[uverbs.QuerySRQResp](s.ctx, "query_srq", uverbs.CmdQuerySRQ, uverbs.QuerySRQ{SRQHandle: s.handle})
	return SRQAttr{MaxWR: int(r.MaxWR), MaxSGE: int(r.MaxSGE), Limit: int(r.SRQLimit)}, err
}

// Destroy destroys a shared receive queue, which no queue pair may use.
func (s *SRQ) Destroy() error { return s.ctx.destroy(s) }

func (s *SRQ) destroy() error {
	return remove[uverbs.DestroySRQResp](s.ctx, "destroy_srq", uverbs.CmdDestroySRQ, uverbs.DestroySRQ{SRQHandle: s.handle}, s.user)
}

func (s *SRQ) release() { s.detach(s.ctx) }

// limit is a requested number and the maximum of the device.
type limit struct {
	name      string
	got, most int
}

// blame returns text about the first number that exceeds its limit, else about all.
func blame(limits ...limit) string {
	all := ""
	for i, l := range limits {
		if l.got > l.most {
			return fmt.Sprintf("%s %d, device limit %d", l.name, l.got, l.most)
		}
		if i > 0 {
			all += ", "
		}
		all += fmt.Sprintf("%s %d", l.name, l.got)
	}
	return all
}
