package rxe

import (
	"errors"
	"sync/atomic"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
	"roced.io/roced/rocev2"
)

// Errors of posting.
var (
	ErrFull   = errors.New("rxe: queue is full")
	ErrSGE    = errors.New("rxe: too many SGEs")
	ErrInline = errors.New("rxe: inline data too long")
	ErrLength = errors.New("rxe: SGEs too long")
)

// SendProducer is the client's end of a send ring. Stage writes work requests;
// Commit lets the daemon see them.
type SendProducer struct {
	ring
	maxSGE    uint32
	maxInline uint32
	tail      uint32 // where the next element goes
}

// NewSendProducer attaches to a ring that the daemon has created; sge and inline
// are the capacities that it has announced.
func NewSendProducer(mem []byte, sge, inline uint32) (*SendProducer, error) {
	r, err := attach(mem, sendElem(sge, inline))
	if err != nil {
		return nil, err
	}
	return &SendProducer{ring: r, maxSGE: sge, maxInline: inline, tail: atomic.LoadUint32(r.producer) & r.mask}, nil
}

// Free is the number of work requests for which there is room.
func (p *SendProducer) Free() int {
	return int(p.mask - (p.tail-atomic.LoadUint32(p.consumer))&p.mask)
}

// Stage writes a work request into the ring. The daemon does not see it yet.
// Length is computed.
func (p *SendProducer) Stage(w *qp.SendWQE) error {
	if p.Free() == 0 {
		return ErrFull
	}
	e := p.elem(p.tail)
	length, num := uint64(len(w.Inline)), 0
	if w.Flags&qp.SendInline != 0 {
		if length > uint64(p.maxInline) {
			return ErrInline
		}
		copy(e[sendData:], w.Inline)
	} else {
		var err error
		if length, err = putSGEs(e[sendData:], w.SGEs, p.maxSGE); err != nil {
			return err
		}
		num = len(w.SGEs)
	}
	putSendHead(e, w)
	putDMA(e[sendDMA:sendData], uint32(length), num)
	p.tail = (p.tail + 1) & p.mask
	return nil
}

// Commit makes the staged work requests visible to the daemon.
func (p *SendProducer) Commit() { atomic.StoreUint32(p.producer, p.tail) }

// Discard takes back what was staged since the last Commit.
func (p *SendProducer) Discard() { p.tail = atomic.LoadUint32(p.producer) & p.mask }

// putSendHead writes what precedes the DMA part of a send element.
func putSendHead(e []byte, w *qp.SendWQE) {
	clear(e[:sendDMA])
	native.PutUint64(e[sendWRID:], w.WRID)
	native.PutUint32(e[sendOpcode:], uint32(w.Opcode))
	native.PutUint32(e[sendFlags:], uint32(w.Flags))
	be.PutUint32(e[sendEx:], w.Imm)
	switch w.Opcode {
	case qp.WRWrite, qp.WRWriteImm, qp.WRRead, qp.WRAtomicWrite:
		native.PutUint64(e[rdmaAddr:], w.RemoteVA)
		native.PutUint32(e[rdmaRKey:], w.RKey)
		native.PutUint64(e[sendIova:], w.RemoteVA)
	case qp.WRFlush:
		native.PutUint64(e[flushAddr:], w.RemoteVA)
		native.PutUint32(e[flushLength:], w.Flush.Length)
		native.PutUint32(e[flushRKey:], w.RKey)
		e[flushType], e[flushLevel] = w.Flush.Type, w.Flush.Level
		native.PutUint64(e[sendIova:], w.RemoteVA)
	case qp.WRCmpSwap, qp.WRFetchAdd:
		native.PutUint64(e[atomicAddr:], w.RemoteVA)
		native.PutUint64(e[atomicCompareAdd:], w.CompareAdd)
		native.PutUint64(e[atomicSwap:], w.Swap)
		native.PutUint32(e[atomicRKey:], w.RKey)
		native.PutUint64(e[sendIova:], w.RemoteVA)
	case qp.WRSendWithInv, qp.WRLocalInv:
		native.PutUint32(e[sendEx:], w.Imm)
	case qp.WRSend, qp.WRSendImm:
		native.PutUint32(e[udQPN:], w.RemoteQPN)
		native.PutUint32(e[udQKey:], w.RemoteQKey)
		native.PutUint32(e[udAH:], w.AH)
	case qp.WRBindMW:
		native.PutUint64(e[mwAddr:], w.Bind.Addr)
		native.PutUint64(e[mwLength:], w.Bind.Length)
		native.PutUint32(e[mwMRLKey:], w.Bind.MRLKey)
		native.PutUint32(e[mwMWRKey:], w.Bind.MWRKey)
		native.PutUint32(e[mwRKey:], w.Bind.RKey)
		native.PutUint32(e[mwAccess:], uint32(w.Bind.Access))
	}
}

// putDMA writes a struct rxe_dma_info.
func putDMA(d []byte, length uint32, num int) {
	clear(d)
	native.PutUint32(d[dmaLength:], length)
	native.PutUint32(d[dmaResid:], length)
	native.PutUint32(d[dmaNumSGE:], uint32(num))
}

// putSGEs writes a list of SGEs and returns its length in bytes.
func putSGEs(e []byte, list []qp.SGE, most uint32) (length uint64, err error) {
	if uint64(len(list)) > uint64(most) {
		return 0, ErrSGE
	}
	for i := range list {
		g := e[i*sgeLen:][:sgeLen]
		native.PutUint64(g, list[i].Addr)
		native.PutUint32(g[8:], list[i].Length)
		native.PutUint32(g[12:], list[i].LKey)
		length += uint64(list[i].Length)
	}
	if length > 1<<32-1 {
		return 0, ErrLength
	}
	return length, nil
}

// RecvProducer is the client's end of a receive ring.
type RecvProducer struct {
	ring
	maxSGE uint32
	tail   uint32
}

// NewRecvProducer attaches to a ring that the daemon has created.
func NewRecvProducer(mem []byte, sge uint32) (*RecvProducer, error) {
	r, err := attach(mem, recvElem(sge))
	if err != nil {
		return nil, err
	}
	return &RecvProducer{ring: r, maxSGE: sge, tail: atomic.LoadUint32(r.producer) & r.mask}, nil
}

// Free is the number of work requests for which there is room.
func (p *RecvProducer) Free() int {
	return int(p.mask - (p.tail-atomic.LoadUint32(p.consumer))&p.mask)
}

// Size is the number of work requests that the ring holds.
func (p *RecvProducer) Size() int { return int(p.mask) }

// Post writes a work request into the ring; the daemon sees it at once.
func (p *RecvProducer) Post(wrid uint64, list []qp.SGE) error {
	if p.Free() == 0 {
		return ErrFull
	}
	e := p.elem(p.tail)
	length, err := putSGEs(e[recvData:], list, p.maxSGE)
	if err != nil {
		return err
	}
	clear(e[:recvDMA])
	native.PutUint64(e[recvWRID:], wrid)
	putDMA(e[recvDMA:recvData], uint32(length), len(list))
	p.tail = (p.tail + 1) & p.mask
	atomic.StoreUint32(p.producer, p.tail)
	return nil
}

// CQConsumer is the client's end of a ring of completions.
type CQConsumer struct {
	ring
	head uint32
}

// NewCQConsumer attaches to a ring that the daemon has created.
func NewCQConsumer(mem []byte) (*CQConsumer, error) {
	r, err := attach(mem, wcSlot)
	if err != nil {
		return nil, err
	}
	return &CQConsumer{ring: r, head: atomic.LoadUint32(r.consumer) & r.mask}, nil
}

// Len is the number of completions in the ring.
func (c *CQConsumer) Len() int {
	return int((atomic.LoadUint32(c.producer) - c.head) & c.mask)
}

// Next takes the oldest completion and reports whether there was one. Release
// gives the places of what was taken back.
func (c *CQConsumer) Next(w *qp.CQE) bool {
	if c.Len() == 0 {
		return false
	}
	decodeWC(c.elem(c.head), w)
	c.head = (c.head + 1) & c.mask
	return true
}

// Arm asks for an event at the next completion that is what a says. One that is in
// the ring already causes none: look for it afterwards.
func (c *CQConsumer) Arm(a rocev2.Arm) { atomic.OrUint32(c.arm, uint32(a)) }

// Release lets the daemon reuse the places of completions that were taken.
func (c *CQConsumer) Release() { atomic.StoreUint32(c.consumer, c.head) }

// decodeWC reads a completion.
func decodeWC(e []byte, w *qp.CQE) {
	_ = e[wcSlot-1]
	*w = qp.CQE{
		WRID: native.Uint64(e[wcWRID:]), Status: qp.Status(native.Uint32(e[wcStatus:])),
		Opcode: qp.WCOpcode(native.Uint32(e[wcOpcode:])), Flags: qp.WCFlags(native.Uint32(e[wcFlags:])),
		VendorErr: native.Uint32(e[wcVendorErr:]), ByteLen: native.Uint32(e[wcByteLen:]),
		Imm: be.Uint32(e[wcEx:]), QPN: native.Uint32(e[wcQPNum:]), SrcQP: native.Uint32(e[wcSrcQP:]),
		PKeyIndex: native.Uint16(e[wcPKeyIndex:]), SL: e[wcSL], Time: mono.Time(native.Uint64(e[wcTime:])),
	}
	if w.Flags&qp.WCWithInv != 0 {
		w.Imm = native.Uint32(e[wcEx:])
	}
}
