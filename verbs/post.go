package verbs

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/rxe"
)

var (
	errNoAH   = fmt.Errorf("no address handle: %w", unix.EINVAL)
	errNoBind = fmt.Errorf("no window or no region: %w", unix.EINVAL)
)

// SendWR is a send work request (ibv_send_wr). The operation determines which fields
// it uses.
type SendWR struct {
	WRID   uint64
	Opcode Opcode
	Flags  SendFlags
	// Imm is immediate data, or the key to invalidate (OpSendWithInv, OpLocalInv).
	Imm uint32

	// SGEs name the payload, or the destination of the data of READs and atomics.
	// Inline, if not empty, is the payload instead, and may be reused after posting.
	SGEs   []SGE
	Inline []byte

	RemoteAddr uint64 // WRITE, READ, atomics
	RKey       uint32
	CompareAdd uint64 // the operand of compare, or of add
	Swap       uint64

	AH         *AH // UD
	RemoteQPN  uint32
	RemoteQKey uint32

	Bind *MWBind // OpBindMW
	// FlushLength is the length of the range of OpFlush in bytes; FlushRegion selects the whole
	// region. When the FLUSH completes, earlier writes to the range are visible to all readers.
	FlushLength uint32
	FlushRegion bool
}

// MWBind are the parameters of a memory window bind (ibv_mw_bind_info).
type MWBind struct {
	MW     *MW
	MR     *MR // may be nil if Length is zero
	Offset int // in MR
	Length int // zero closes a window of type 1
	Access Access
	// NewRKey is the new key of the window. Only its lowest byte may differ from
	// the current key.
	NewRKey uint32
}

// PostSend posts a send work request (ibv_post_send). If the queue is full it returns
// ErrQueueFull. Completions free the queue, so set SendSignaled at regular intervals.
// PostSend allocates no memory.
func (q *QP) PostSend(wr *SendWR) error {
	q.mu.Lock()
	err := q.checkPost()
	if err == nil {
		if err = q.stage(wr); err == nil {
			q.sq.Commit()
			err = q.ctx.dev.ringBell(q.handle)
		}
	}
	q.mu.Unlock()
	if err != nil {
		return fail("post_send", "", err)
	}
	return nil
}

// PostSendN posts send work requests with one doorbell and returns the number posted,
// which is less than len(wrs) only after an error.
func (q *QP) PostSendN(wrs []SendWR) (int, error) {
	q.mu.Lock()
	n := 0
	err := q.checkPost()
	for err == nil && n < len(wrs) {
		if err = q.stage(&wrs[n]); err == nil {
			n++
		}
	}
	if n > 0 {
		q.sq.Commit()
		if rerr := q.ctx.dev.ringBell(q.handle); err == nil {
			err = rerr
		}
	}
	q.mu.Unlock()
	if err != nil {
		return n, fail("post_send", "", err)
	}
	return n, nil
}

// checkPost returns an error if the queue pair does not permit posting. The caller holds q.mu.
func (q *QP) checkPost() error {
	if err := q.ctx.Err(); err != nil {
		return err
	}
	if q.sq == nil {
		return ErrClosed
	}
	if q.state < QPRTS {
		return ErrState
	}
	return nil
}

// stage writes a work request into the ring. The caller holds q.mu.
func (q *QP) stage(wr *SendWR) error {
	if len(wr.SGEs) > 0 && (len(wr.Inline) > 0 || wr.Flags&SendInline != 0) {
		return ErrInline
	}
	e, err := q.sq.Next()
	if err != nil {
		return postError(err)
	}
	if err := q.encode(e, wr); err != nil {
		return err
	}
	switch {
	case wr.Opcode == OpFlush:
		q.sq.StageRange(wr.FlushLength)
	case e.Flags&uint32(SendInline) != 0:
		err = q.sq.StageInline(wr.Inline)
	default:
		err = rxe.StageSGEs(q.sq, wr.SGEs)
	}
	if err != nil {
		return postError(err)
	}
	if wr.Opcode == OpBindMW {
		wr.Bind.MW.rkey.Store(wr.Bind.NewRKey)
	}
	return nil
}

// Parameters of FLUSH (IBTA vol.1 annex A19).
const (
	flushGlobal = 1 // type: global visibility
	flushRegion = 1 // level: the whole memory region
)

// encode fills in an element of the ring, apart from the payload.
func (q *QP) encode(e *rxe.SendWQE, wr *SendWR) error {
	e.WRID, e.Opcode, e.Flags = wr.WRID, uint32(wr.Opcode), uint32(wr.Flags)
	if len(wr.Inline) > 0 {
		e.Flags |= uint32(SendInline)
	}
	if q.typ == UD && wr.AH == nil {
		return errNoAH
	}
	binary.BigEndian.PutUint32(e.Ex[:], wr.Imm)
	switch wr.Opcode {
	case OpSend, OpSendImm:
		*e.UD() = rxe.UD{QPN: wr.RemoteQPN, QKey: wr.RemoteQKey}
		if q.typ == UD {
			e.UD().AH = wr.AH.num
		}
	case OpWrite, OpWriteImm, OpRead, OpAtomicWrite:
		*e.RDMA() = rxe.RDMA{Addr: wr.RemoteAddr, RKey: wr.RKey}
		e.Iova = wr.RemoteAddr
	case OpCmpSwap, OpFetchAdd:
		*e.Atomic() = rxe.Atomic{Addr: wr.RemoteAddr, CompareAdd: wr.CompareAdd, Swap: wr.Swap, RKey: wr.RKey}
		e.Iova = wr.RemoteAddr
	case OpSendWithInv, OpLocalInv:
		binary.NativeEndian.PutUint32(e.Ex[:], wr.Imm)
	case OpFlush:
		f := e.Flush()
		*f = rxe.Flush{Addr: wr.RemoteAddr, RKey: wr.RKey, Type: flushGlobal}
		if wr.FlushRegion {
			f.Level = flushRegion
		}
		e.Iova = wr.RemoteAddr
	case OpBindMW:
		b := wr.Bind
		if b == nil || b.MW == nil || b.MR == nil && b.Length != 0 {
			return errNoBind
		}
		w := e.BindMW()
		*w = rxe.BindMW{Length: uint64(b.Length), MWRKey: b.MW.RKey(), RKey: b.NewRKey, Access: uint32(b.Access)}
		if b.MR != nil {
			w.Addr, w.MRLKey = b.MR.addr+uint64(b.Offset), b.MR.lkey
		}
	}
	return nil
}

// BindMW posts a work request that opens a window on a part of a region (ibv_bind_mw).
// A window of type 2 is open for the peer of this queue pair only. BindMW ignores
// NewRKey and returns the key that it has chosen, which is valid when the request has
// completed.
func (q *QP) BindMW(wrid uint64, flags SendFlags, b MWBind) (rkey uint32, err error) {
	if b.MW == nil {
		return 0, fail("bind_mw", "", unix.EINVAL)
	}
	old := b.MW.RKey()
	b.NewRKey = old&^0xff | (old+1)&0xff
	if err := q.PostSend(&SendWR{WRID: wrid, Opcode: OpBindMW, Flags: flags, Bind: &b}); err != nil {
		return 0, err
	}
	return b.NewRKey, nil
}

// InvalidateMW posts a work request that closes a window of type 2, which must have
// been opened through this queue pair.
func (q *QP) InvalidateMW(wrid uint64, flags SendFlags, mw *MW) error {
	return q.PostSend(&SendWR{WRID: wrid, Opcode: OpLocalInv, Flags: flags, Imm: mw.RKey()})
}

// PostRecv posts a receive work request (ibv_post_recv).
func (q *QP) PostRecv(wr *RecvWR) error {
	wrs := [1]RecvWR{*wr}
	_, err := q.PostRecvN(wrs[:])
	return err
}

// PostRecvN posts receive work requests and returns the number posted, which is less
// than len(wrs) only after an error.
func (q *QP) PostRecvN(wrs []RecvWR) (int, error) {
	const verb = "post_recv"
	if !q.hasRQ {
		return 0, fail(verb, "the queue pair has an SRQ", unix.EINVAL)
	}
	q.mu.Lock()
	reset := q.state == QPReset
	q.mu.Unlock()
	if reset && q.ctx.Err() == nil {
		return 0, fail(verb, "", ErrState)
	}
	n, err := q.rq.post(q.ctx, wrs)
	if err != nil {
		return n, fail(verb, "", err)
	}
	return n, nil
}
