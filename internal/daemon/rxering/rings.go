// Package rxering is the daemon's end of the rings that it shares with its clients
// (internal/base/abi/rxe): it converts work requests and completions between their
// layout and the core's types.
//
// A client may write all of the memory at any time. So a ring uses its own copy of
// the geometry and of the index that it advances, masks and bounds the other index,
// and reads each element once.
package rxering

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"roced.io/roced/bth"
	"roced.io/roced/internal/base/abi/rxe"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// OpInvalid replaces the opcode of a send work request that does not fit into a byte.
const OpInvalid qp.WROpcode = 0xff

// sendFlags are the flags that the ring passes on.
const sendFlags = uint32(qp.SendFence | qp.SendSignaled | qp.SendSolicited | qp.SendInline)

// SendRing is the daemon's end of a send ring. Work requests that have been taken
// occupy their elements until Retire.
type SendRing struct {
	rxe.Ring
	// AHOf, if set, returns the number of the address handle for a destination, 0 if
	// there is none. The provider of rdma-core before 35 puts the destination into
	// work requests of UD instead of the number.
	AHOf      func(Destination) uint32
	maxSGE    uint32
	maxInline uint32
	next      uint32 // index of the next element to take
	taken     uint32 // elements taken and not retired
	dma       rxe.DMA
	wr        rxe.SendWR
}

// Destination is the destination in a work request of UD that names no address
// handle: the attributes of the handle.
type Destination struct {
	AV  rocev2.AddressVector
	LID uint16 // 0 if AV holds the destination
}

// NewSendRing makes a ring of shape s in mem.
func NewSendRing(mem []byte, s rxe.Shape) (*SendRing, error) {
	r, err := rxe.CreateSend(mem, s)
	if err != nil {
		return nil, err
	}
	return &SendRing{Ring: r, maxSGE: s.MaxSGE, maxInline: s.MaxInline}, nil
}

// MaxInline returns the number of bytes of inline data for which an element has room.
func (r *SendRing) MaxInline() uint32 { return r.maxInline }

// Pending reports whether there is a work request to take.
func (r *SendRing) Pending() bool {
	return (atomic.LoadUint32(r.Producer)-r.next)&r.Mask != 0 && r.taken < r.Mask
}

// Next takes the next work request. It reads at most as many inline bytes as an
// element can hold, and leaves Length as posted; of SGEs it reads at most one more
// than permitted. So the caller detects a request that exceeds either limit.
//
// The length of a list of SGEs is their sum, not that of the element:
// ibv_wr_set_sge_list of rdma-core before 65 puts n times the first length there
// (providers/rxe/rxe.c).
func (r *SendRing) Next(w *qp.SendWQE) bool {
	if !r.Pending() {
		return false
	}
	e := r.Elem(r.next)
	wqe := rxe.At[rxe.SendWQE](e)
	r.wr, r.dma = wqe.SendWR, wqe.DMA
	w.SGEs, w.Inline = w.SGEs[:0], w.Inline[:0]
	r.decode(w)
	if w.AH == 0 && r.AHOf != nil {
		w.AH = r.AHOf(destination(&wqe.AV))
	}
	if w.Flags&qp.SendInline != 0 {
		w.Inline = append(w.Inline, rxe.SendData(e)[:min(w.Length, r.maxInline)]...)
	} else {
		w.SGEs = appendSGEs(w.SGEs, rxe.SendData(e), r.dma.NumSGE, r.maxSGE)
		w.Length = total(w.SGEs)
	}
	r.next = (r.next + 1) & r.Mask
	r.taken++
	return true
}

// NextAH implements rocev2.Datagrams. The client may still change the request.
func (r *SendRing) NextAH() (ah uint32, ok bool) {
	if !r.Pending() {
		return 0, false
	}
	wqe := rxe.At[rxe.SendWQE](r.Elem(r.next))
	if ah = wqe.UD().AH; ah == 0 && r.AHOf != nil {
		ah = r.AHOf(destination(&wqe.AV))
	}
	return ah, true
}

// total returns the length of a list, at most math.MaxUint32, which exceeds the
// longest message.
func total(list []qp.SGE) uint32 {
	var sum uint64
	for i := range list {
		sum += uint64(list[i].Length)
	}
	return uint32(min(sum, math.MaxUint32))
}

func destination(shared *rxe.AddressVector) Destination {
	a := *shared
	return Destination{LID: binary.BigEndian.Uint16(a.MAC[4:]), AV: rocev2.AddressVector{DGID: a.DGID,
		FlowLabel: a.FlowLabel & 0xfffff, SGIDIndex: a.SGIDIndex, HopLimit: a.HopLimit, TrafficClass: a.TrafficClass}}
}

// decode converts the private copy of the fixed part of a work request.
func (r *SendRing) decode(w *qp.SendWQE) {
	h := &r.wr
	w.WRID = h.WRID
	w.Opcode = qp.WROpcode(min(h.Opcode, uint32(OpInvalid)))
	w.Flags = qp.SendFlags(h.Flags & sendFlags)
	w.Length = r.dma.Length
	w.Imm = binary.BigEndian.Uint32(h.Ex[:])
	w.RemoteVA, w.RKey, w.CompareAdd, w.Swap = 0, 0, 0, 0
	w.AH, w.RemoteQPN, w.RemoteQKey = 0, 0, 0
	w.Bind, w.Flush = qp.BindWR{}, qp.FlushWR{}
	switch w.Opcode {
	case qp.WRWrite, qp.WRWriteImm, qp.WRRead, qp.WRAtomicWrite:
		w.RemoteVA, w.RKey = h.RDMA().Addr, h.RDMA().RKey
	case qp.WRFlush:
		f := h.Flush()
		w.RemoteVA, w.RKey = f.Addr, f.RKey
		w.Flush = qp.FlushWR{Length: w.Length, FETH: bth.FETH{Type: f.Type, Level: f.Level}}
		w.Length = 0 // the response carries no data
	case qp.WRCmpSwap, qp.WRFetchAdd:
		a := h.Atomic()
		w.RemoteVA, w.RKey, w.CompareAdd, w.Swap = a.Addr, a.RKey, a.CompareAdd, a.Swap
	case qp.WRSendWithInv, qp.WRLocalInv:
		w.Imm = binary.NativeEndian.Uint32(h.Ex[:])
	case qp.WRSend, qp.WRSendImm:
		u := h.UD()
		w.RemoteQPN, w.RemoteQKey, w.AH = u.QPN, u.QKey, u.AH
	case qp.WRBindMW:
		b := h.BindMW()
		w.Bind = qp.BindWR{Addr: b.Addr, Length: b.Length, MRLKey: b.MRLKey, MWRKey: b.MWRKey, RKey: b.RKey, Access: qp.Access(b.Access)}
	}
	// ibv_wr_set_inline_data() and _list() post inline data whatever the flags hold (ibv_wr_post(3)): the provider leaves
	// a length without SGEs (providers/rxe/rxe.c). The operand of an ATOMIC WRITE is always inline.
	if w.Opcode == qp.WRAtomicWrite || r.dma.NumSGE == 0 && w.Length > 0 {
		w.Flags |= qp.SendInline
	}
}

// Retire frees the elements of the n oldest work requests taken.
func (r *SendRing) Retire(n int) {
	r.taken -= min(uint32(n), r.taken)
	atomic.StoreUint32(r.Consumer, (r.next-r.taken)&r.Mask)
}

// Reset discards the posted work requests and frees all elements.
func (r *SendRing) Reset() {
	r.next, r.taken = atomic.LoadUint32(r.Producer)&r.Mask, 0
	atomic.StoreUint32(r.Consumer, r.next)
}

// RecvRing is the daemon's end of a receive ring, of an RQ or SRQ. Taking a work
// request frees its element.
type RecvRing struct {
	rxe.Ring
	maxSGE uint32
	next   uint32
	wqe    rxe.RecvWQE
}

// NewRecvRing makes a ring of shape s in mem.
func NewRecvRing(mem []byte, s rxe.Shape) (*RecvRing, error) {
	r, err := rxe.CreateRecv(mem, s)
	if err != nil {
		return nil, err
	}
	return &RecvRing{Ring: r, maxSGE: s.MaxSGE}, nil
}

// Len returns the number of work requests to take.
func (r *RecvRing) Len() int {
	return int((atomic.LoadUint32(r.Producer) - r.next) & r.Mask)
}

// Next takes the next work request. It reads at most one SGE more than permitted,
// so that the caller detects an overlong list.
func (r *RecvRing) Next(w *qp.RecvWQE) bool {
	if r.Len() == 0 {
		return false
	}
	e := r.Elem(r.next)
	r.wqe = *rxe.At[rxe.RecvWQE](e)
	w.WRID = r.wqe.WRID
	w.SGEs = appendSGEs(w.SGEs[:0], rxe.RecvData(e), r.wqe.DMA.NumSGE, r.maxSGE)
	r.next = (r.next + 1) & r.Mask
	atomic.StoreUint32(r.Consumer, r.next)
	return true
}

// Reset discards the posted work requests.
func (r *RecvRing) Reset() {
	r.next = atomic.LoadUint32(r.Producer) & r.Mask
	atomic.StoreUint32(r.Consumer, r.next)
}

// MoveTo copies the work requests that have not been taken into an empty ring with
// elements of the same capacity. It reports whether they fit.
func (r *RecvRing) MoveTo(to *RecvRing) bool {
	n := uint32(r.Len())
	if n > to.Mask {
		return false
	}
	for i := range n {
		copy(to.Elem(i), r.Elem(r.next+i))
	}
	atomic.StoreUint32(to.Producer, n)
	return true
}

// appendSGEs reads n SGEs, of which most are permitted, from shared memory. It
// reads each byte once.
func appendSGEs(list []qp.SGE, data []byte, n, most uint32) []qp.SGE {
	const size = 16
	for i := range min(n, most) {
		list = append(list, qp.SGE(*rxe.At[rxe.SGE](data[i*size:])))
	}
	if n > most {
		list = append(list, qp.SGE{})
	}
	return list
}

// CQRing is the daemon's end of a completion ring.
type CQRing struct {
	rxe.Ring
	tail uint32 // the producer index
}

// NewCQRing makes a ring of shape s in mem.
func NewCQRing(mem []byte, s rxe.Shape) (*CQRing, error) {
	r, err := rxe.CreateCQ(mem, s)
	if err != nil {
		return nil, err
	}
	return &CQRing{Ring: r}, nil
}

// Len returns the number of completions that the client has not consumed, by the
// client's index.
func (r *CQRing) Len() int {
	return int((r.tail - atomic.LoadUint32(r.Consumer)) & r.Mask)
}

// Push appends a completion; it returns false if the ring is full.
func (r *CQRing) Push(c *qp.CQE) bool {
	if uint32(r.Len()) == r.Mask {
		return false
	}
	w := rxe.At[rxe.WC](r.Elem(r.tail))
	*w = rxe.WC{
		WRID: c.WRID, Status: uint32(c.Status), Opcode: uint32(c.Opcode), VendorErr: c.VendorErr, ByteLen: c.ByteLen,
		QPN: c.QPN, SrcQP: c.SrcQP, Flags: uint32(c.Flags), PKeyIndex: c.PKeyIndex, SL: c.SL, Port: 1, Time: uint64(c.Time),
	}
	if c.Flags&qp.WCWithInv != 0 {
		binary.NativeEndian.PutUint32(w.Ex[:], c.Imm)
	} else {
		binary.BigEndian.PutUint32(w.Ex[:], c.Imm)
	}
	r.tail = (r.tail + 1) & r.Mask
	atomic.StoreUint32(r.Producer, r.tail)
	return true
}

// Arm adds to the completions for which the client waits.
func (r *CQRing) Arm(a rocev2.Arm) { atomic.OrUint32(r.Ring.Arm, uint32(a)) }

// Armed returns the completions for which the client waits. Atomic operations are
// ordered. So if a client arms and then polls, and the daemon pushes and then calls
// Armed, at least one of them sees the other's change.
func (r *CQRing) Armed() rocev2.Arm { return rocev2.Arm(atomic.LoadUint32(r.Ring.Arm)) }

// Disarm clears the arming.
func (r *CQRing) Disarm() { atomic.StoreUint32(r.Ring.Arm, 0) }

// MoveTo copies the completions that have not been consumed, and the arming, into
// an empty ring. It reports whether they fit.
func (r *CQRing) MoveTo(to *CQRing) bool {
	n := uint32(r.Len())
	if n > to.Mask {
		return false
	}
	for i := range n {
		copy(to.Elem(i), r.Elem(r.tail-n+i))
	}
	to.tail = n
	atomic.StoreUint32(to.Producer, n)
	to.Arm(r.Armed())
	return true
}
