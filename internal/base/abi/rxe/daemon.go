package rxe

import (
	"math"
	"sync/atomic"

	"roced.io/roced/bth"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// OpInvalid is the opcode of a send work request whose own one does not exist.
const OpInvalid qp.WROpcode = 0xff

// SendRing is the daemon's end of a send ring. Work requests that have been taken
// keep their places until they are retired.
type SendRing struct {
	ring
	// AHOf, if set, finds the number of an address handle by what it was made of, 0 if there
	// is none: the provider of rdma-core before 35 names none in work requests of UD.
	AHOf      func(Destination) uint32
	maxSGE    uint32
	maxInline uint32
	next      uint32 // of the element to take
	taken     uint32 // not retired
	dma       [dmaLen]byte
	head      [sendTaken]byte
}

// Destination is what a work request of UD says of its destination when it names no address handle: what
// that was made of.
type Destination struct {
	AV  rocev2.AddressVector
	LID uint16 // 0 if the vector says it; in the place of the MAC address, by preload/address.c
}

// NewSendRing makes a ring of shape s in mem.
func NewSendRing(mem []byte, s Shape) (*SendRing, error) {
	r, err := create(mem, s, sendElem(s.MaxSGE, s.MaxInline))
	if err != nil {
		return nil, err
	}
	return &SendRing{ring: r, maxSGE: s.MaxSGE, maxInline: s.MaxInline}, nil
}

// MaxInline returns how many inline bytes an element has room for.
func (r *SendRing) MaxInline() uint32 { return r.maxInline }

// Pending reports whether there is a work request to take.
func (r *SendRing) Pending() bool {
	return (atomic.LoadUint32(r.producer)-r.next)&r.mask != 0 && r.taken < r.mask
}

// Next takes the next work request. The length of inline data is what the element says; there
// are never more inline bytes than the ring has room for, and of a list of SGEs
// that is too long one more than permitted, so that both are found out.
//
// The length of a list of SGEs is their sum, not what the element says: ibv_wr_set_sge_list of
// rdma-core before 65 puts n times the first length there (providers/rxe/rxe.c).
func (r *SendRing) Next(w *qp.SendWQE) bool {
	if !r.Pending() {
		return false
	}
	e := r.elem(r.next)
	copy(r.head[:], e)
	copy(r.dma[:], e[sendDMA:])
	w.SGEs, w.Inline = w.SGEs[:0], w.Inline[:0]
	r.decode(w)
	if w.AH == 0 && r.AHOf != nil {
		w.AH = r.AHOf(destination(e))
	}
	if w.Flags&qp.SendInline != 0 {
		w.Inline = append(w.Inline, e[sendData:sendData+min(w.Length, r.maxInline)]...)
	} else {
		w.SGEs = appendSGEs(w.SGEs, e[sendData:], native.Uint32(r.dma[dmaNumSGE:]), r.maxSGE)
		if w.Opcode != qp.WRFlush {
			w.Length = total(w.SGEs)
		}
	}
	r.next = (r.next + 1) & r.mask
	r.taken++
	return true
}

// NextAH implements rocev2.Datagrams. The client may still change the request.
func (r *SendRing) NextAH() (ah uint32, ok bool) {
	if !r.Pending() {
		return 0, false
	}
	e := r.elem(r.next)
	if ah = native.Uint32(e[udAH:]); ah == 0 && r.AHOf != nil {
		ah = r.AHOf(destination(e))
	}
	return ah, true
}

// total is the length of a list; one that does not fit is too long in any case.
func total(list []qp.SGE) uint32 {
	var sum uint64
	for i := range list {
		sum += uint64(list[i].Length)
	}
	return uint32(min(sum, math.MaxUint32))
}

// destination reads the address vector of a work request.
func destination(e []byte) Destination {
	return Destination{LID: be.Uint16(e[udMAC+4:]), AV: rocev2.AddressVector{DGID: rocev2.GID(e[udDGID:udFlow]),
		FlowLabel: native.Uint32(e[udFlow:]) & 0xfffff, SGIDIndex: e[udSGID], HopLimit: e[udHop], TrafficClass: e[udClass]}}
}

// decode reads the fixed part of a work request from the private copy.
func (r *SendRing) decode(w *qp.SendWQE) {
	h := &r.head
	w.WRID = native.Uint64(h[sendWRID:])
	w.Opcode = qp.WROpcode(min(native.Uint32(h[sendOpcode:]), uint32(OpInvalid)))
	w.Flags = qp.SendFlags(native.Uint32(h[sendFlags:]))
	w.Length = native.Uint32(r.dma[dmaLength:])
	w.Imm = be.Uint32(h[sendEx:])
	w.RemoteVA, w.RKey, w.CompareAdd, w.Swap = 0, 0, 0, 0
	w.AH, w.RemoteQPN, w.RemoteQKey = 0, 0, 0
	w.Bind, w.Flush = qp.BindWR{}, qp.FlushWR{}
	if w.Opcode == qp.WRAtomicWrite {
		w.Flags |= qp.SendInline // what it writes stands where inline data does, flag or not
	}
	switch w.Opcode {
	case qp.WRWrite, qp.WRWriteImm, qp.WRRead, qp.WRAtomicWrite:
		w.RemoteVA, w.RKey = native.Uint64(h[rdmaAddr:]), native.Uint32(h[rdmaRKey:])
	case qp.WRFlush:
		w.RemoteVA, w.RKey = native.Uint64(h[flushAddr:]), native.Uint32(h[flushRKey:])
		w.Flush = qp.FlushWR{Length: native.Uint32(h[flushLength:]), FETH: bth.FETH{Type: h[flushType], Level: h[flushLevel]}}
		w.Length = 0 // nothing comes back
	case qp.WRCmpSwap, qp.WRFetchAdd:
		w.RemoteVA, w.RKey = native.Uint64(h[atomicAddr:]), native.Uint32(h[atomicRKey:])
		w.CompareAdd, w.Swap = native.Uint64(h[atomicCompareAdd:]), native.Uint64(h[atomicSwap:])
	case qp.WRSendWithInv, qp.WRLocalInv:
		w.Imm = native.Uint32(h[sendEx:])
	case qp.WRSend, qp.WRSendImm:
		w.RemoteQPN, w.RemoteQKey = native.Uint32(h[udQPN:]), native.Uint32(h[udQKey:])
		w.AH = native.Uint32(h[udAH:])
	case qp.WRBindMW:
		w.Bind = qp.BindWR{
			Addr: native.Uint64(h[mwAddr:]), Length: native.Uint64(h[mwLength:]),
			MRLKey: native.Uint32(h[mwMRLKey:]), MWRKey: native.Uint32(h[mwMWRKey:]),
			RKey: native.Uint32(h[mwRKey:]), Access: qp.Access(native.Uint32(h[mwAccess:])),
		}
	}
}

// Retire gives back the places of the n oldest work requests taken.
func (r *SendRing) Retire(n int) {
	r.taken -= min(uint32(n), r.taken)
	atomic.StoreUint32(r.consumer, (r.next-r.taken)&r.mask)
}

// Reset discards what is posted and gives back what was taken.
func (r *SendRing) Reset() {
	r.next, r.taken = atomic.LoadUint32(r.producer)&r.mask, 0
	atomic.StoreUint32(r.consumer, r.next)
}

// RecvRing is the daemon's end of a receive ring, of an RQ or SRQ. A work request
// that has been taken leaves its place at once.
type RecvRing struct {
	ring
	maxSGE uint32
	next   uint32
	head   [recvData]byte
}

// NewRecvRing makes a ring of shape s in mem.
func NewRecvRing(mem []byte, s Shape) (*RecvRing, error) {
	r, err := create(mem, s, recvElem(s.MaxSGE))
	if err != nil {
		return nil, err
	}
	return &RecvRing{ring: r, maxSGE: s.MaxSGE}, nil
}

// Len is the number of work requests to take.
func (r *RecvRing) Len() int {
	return int((atomic.LoadUint32(r.producer) - r.next) & r.mask)
}

// Next takes the next work request. Of a list of SGEs that is too long it takes
// one more than permitted, so that this is found out.
func (r *RecvRing) Next(w *qp.RecvWQE) bool {
	if r.Len() == 0 {
		return false
	}
	e := r.elem(r.next)
	copy(r.head[:], e)
	w.WRID = native.Uint64(r.head[recvWRID:])
	w.SGEs = appendSGEs(w.SGEs[:0], e[recvData:], native.Uint32(r.head[recvDMA+dmaNumSGE:]), r.maxSGE)
	r.next = (r.next + 1) & r.mask
	atomic.StoreUint32(r.consumer, r.next)
	return true
}

// Reset discards what is posted.
func (r *RecvRing) Reset() {
	r.next = atomic.LoadUint32(r.producer) & r.mask
	atomic.StoreUint32(r.consumer, r.next)
}

// MoveTo copies the work requests that have not been taken into the empty ring to, whose
// elements have the same room, and reports whether they fit.
func (r *RecvRing) MoveTo(to *RecvRing) bool {
	n := uint32(r.Len())
	if n > to.mask {
		return false
	}
	for i := range n {
		copy(to.elem(i), r.elem(r.next+i))
	}
	atomic.StoreUint32(to.producer, n)
	return true
}

// appendSGEs reads n SGEs, of which most are permitted, from shared memory. Each
// byte is read once.
func appendSGEs(list []qp.SGE, e []byte, n, most uint32) []qp.SGE {
	for i := range min(n, most) {
		g := e[i*sgeLen:][:sgeLen]
		list = append(list, qp.SGE{Addr: native.Uint64(g), Length: native.Uint32(g[8:]), LKey: native.Uint32(g[12:])})
	}
	if n > most {
		list = append(list, qp.SGE{})
	}
	return list
}

// CQRing is the daemon's end of a ring of completions.
type CQRing struct {
	ring
	tail uint32 // the producer index
}

// NewCQRing makes a ring of shape s in mem.
func NewCQRing(mem []byte, s Shape) (*CQRing, error) {
	r, err := create(mem, s, wcSlot)
	if err != nil {
		return nil, err
	}
	return &CQRing{ring: r}, nil
}

// Len is the number of completions that the client has not consumed, as far as it
// says.
func (r *CQRing) Len() int {
	return int((r.tail - atomic.LoadUint32(r.consumer)) & r.mask)
}

// Push appends a completion; false means that the ring is full.
func (r *CQRing) Push(c *qp.CQE) bool {
	if uint32(r.Len()) == r.mask {
		return false
	}
	encodeWC(r.elem(r.tail), c)
	r.tail = (r.tail + 1) & r.mask
	atomic.StoreUint32(r.producer, r.tail)
	return true
}

// Arm adds to what the client waits for.
func (r *CQRing) Arm(a rocev2.Arm) { atomic.OrUint32(r.arm, uint32(a)) }

// Armed says what the client waits for. Atomic operations are ordered, so that of a
// client that arms, then polls, and a daemon that pushes, then looks here, one sees
// what the other has done.
func (r *CQRing) Armed() rocev2.Arm { return rocev2.Arm(atomic.LoadUint32(r.arm)) }

// Disarm ends it.
func (r *CQRing) Disarm() { atomic.StoreUint32(r.arm, 0) }

// MoveTo copies the completions that have not been consumed, and the arming, into
// the empty ring to and reports whether they fit.
func (r *CQRing) MoveTo(to *CQRing) bool {
	n := uint32(r.Len())
	if n > to.mask {
		return false
	}
	for i := range n {
		copy(to.elem(i), r.elem(r.tail - n + i)[:wcSlot])
	}
	to.tail = n
	atomic.StoreUint32(to.producer, n)
	to.Arm(r.Armed())
	return true
}

// encodeWC writes a completion.
func encodeWC(e []byte, c *qp.CQE) {
	_ = e[wcSlot-1]
	native.PutUint64(e[wcWRID:], c.WRID)
	native.PutUint32(e[wcStatus:], uint32(c.Status))
	native.PutUint32(e[wcOpcode:], uint32(c.Opcode))
	native.PutUint32(e[wcVendorErr:], c.VendorErr)
	native.PutUint32(e[wcByteLen:], c.ByteLen)
	if c.Flags&qp.WCWithInv != 0 {
		native.PutUint32(e[wcEx:], c.Imm)
	} else {
		be.PutUint32(e[wcEx:], c.Imm)
	}
	native.PutUint32(e[wcQPNum:], c.QPN)
	native.PutUint32(e[wcSrcQP:], c.SrcQP)
	native.PutUint32(e[wcFlags:], uint32(c.Flags))
	native.PutUint16(e[wcPKeyIndex:], c.PKeyIndex)
	native.PutUint16(e[wcSLID:], 0)
	e[wcSL], e[wcDLIDPath], e[wcPort], e[wcPort+1] = c.SL, 0, 1, 0
	native.PutUint64(e[wcTime:], uint64(c.Time))
}
