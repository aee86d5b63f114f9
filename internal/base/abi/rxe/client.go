package rxe

import (
	"errors"
	"sync/atomic"
)

// Errors of posting.
var (
	ErrFull   = errors.New("rxe: queue is full")
	ErrSGE    = errors.New("rxe: too many SGEs")
	ErrInline = errors.New("rxe: inline data too long")
	ErrLength = errors.New("rxe: SGEs too long")
)

// producer is the client's end of a ring of work requests.
type producer struct {
	Ring
	maxSGE uint32
	tail   uint32 // index of the next element
}

func newProducer(mem []byte, elem uint64, sge uint32) (producer, error) {
	r, err := attach(mem, elem)
	if err != nil {
		return producer{}, err
	}
	return producer{Ring: r, maxSGE: sge, tail: atomic.LoadUint32(r.Producer) & r.Mask}, nil
}

// Free returns the number of free elements.
func (p *producer) Free() int {
	return int(p.Mask - (p.tail-atomic.LoadUint32(p.Consumer))&p.Mask)
}

// Size returns the capacity of the ring in work requests.
func (p *producer) Size() int { return int(p.Mask) }

func (p *producer) advance() { p.tail = (p.tail + 1) & p.Mask }

// Commit makes the staged work requests visible to the daemon.
func (p *producer) Commit() { atomic.StoreUint32(p.Producer, p.tail) }

// anySGE is the set of types with the layout of SGE, so that a caller need not
// convert its lists.
type anySGE interface {
	~struct {
		Addr   uint64
		Length uint32
		LKey   uint32
	}
}

// putSGEs writes a list of SGEs to data, and dma.
func putSGEs[S anySGE](p *producer, dma *DMA, data []byte, list []S) error {
	if uint64(len(list)) > uint64(p.maxSGE) {
		return ErrSGE
	}
	length := uint64(0)
	for i := range list {
		g := SGE(list[i])
		*At[SGE](data[uint64(i)*sgeLen:]) = g
		length += uint64(g.Length)
	}
	if length > 1<<32-1 {
		return ErrLength
	}
	*dma = DMA{Length: uint32(length), Resid: uint32(length), NumSGE: uint32(len(list))}
	return nil
}

// SendProducer is the client's end of a send ring. Next, then StageInline or
// StageSGEs, write a work request; Commit makes it visible to the daemon.
type SendProducer struct {
	producer
	maxInline uint32
}

// NewSendProducer attaches to a ring that the daemon has created; sge and inline
// are the capacities that the daemon has announced.
func NewSendProducer(mem []byte, sge, inline uint32) (*SendProducer, error) {
	p, err := newProducer(mem, sendElem(sge, inline), sge)
	if err != nil {
		return nil, err
	}
	return &SendProducer{producer: p, maxInline: inline}, nil
}

// Next returns the next element, cleared. The caller fills in all fields but DMA. A full ring returns ErrFull.
func (p *SendProducer) Next() (*SendWQE, error) {
	if p.Free() == 0 {
		return nil, ErrFull
	}
	e := At[SendWQE](p.Elem(p.tail))
	*e = SendWQE{}
	return e, nil
}

// StageInline completes the element of the last Next with inline data.
func (p *SendProducer) StageInline(data []byte) error {
	if uint64(len(data)) > uint64(p.maxInline) {
		return ErrInline
	}
	e := p.Elem(p.tail)
	copy(SendData(e), data)
	n := uint32(len(data))
	At[SendWQE](e).DMA = DMA{Length: n, Resid: n}
	p.advance()
	return nil
}

// StageRange completes the element of the last Next with the length of a remote range and without data (FLUSH).
func (p *SendProducer) StageRange(length uint32) {
	At[SendWQE](p.Elem(p.tail)).DMA = DMA{Length: length, Resid: length}
	p.advance()
}

// StageSGEs completes the element of the last Next with SGEs.
func StageSGEs[S anySGE](p *SendProducer, list []S) error {
	e := p.Elem(p.tail)
	err := putSGEs(&p.producer, &At[SendWQE](e).DMA, SendData(e), list)
	if err == nil {
		p.advance()
	}
	return err
}

// RecvProducer is the client's end of a receive ring.
type RecvProducer struct{ producer }

// NewRecvProducer attaches to a ring that the daemon has created; sge is the
// capacity that the daemon has announced.
func NewRecvProducer(mem []byte, sge uint32) (*RecvProducer, error) {
	p, err := newProducer(mem, recvElem(sge), sge)
	if err != nil {
		return nil, err
	}
	return &RecvProducer{p}, nil
}

// PostRecv writes a work request and makes it visible to the daemon at once.
func PostRecv[S anySGE](p *RecvProducer, wrid uint64, list []S) error {
	if p.Free() == 0 {
		return ErrFull
	}
	b := p.Elem(p.tail)
	e := At[RecvWQE](b)
	*e = RecvWQE{WRID: wrid}
	if err := putSGEs(&p.producer, &e.DMA, RecvData(b), list); err != nil {
		return err
	}
	p.advance()
	p.Commit()
	return nil
}

// CQConsumer is the client's end of a completion ring.
type CQConsumer struct {
	Ring
	head uint32
}

// NewCQConsumer attaches to a ring that the daemon has created.
func NewCQConsumer(mem []byte) (*CQConsumer, error) {
	r, err := attach(mem, wcSlot)
	if err != nil {
		return nil, err
	}
	return &CQConsumer{Ring: r, head: atomic.LoadUint32(r.Consumer) & r.Mask}, nil
}

// Len returns the number of completions in the ring.
func (c *CQConsumer) Len() int {
	return int((atomic.LoadUint32(c.Producer) - c.head) & c.Mask)
}

// Next takes the oldest completion and reports whether there was one. Its element
// stays occupied until Release.
func (c *CQConsumer) Next(w *WC) bool {
	if c.Len() == 0 {
		return false
	}
	*w = *At[WC](c.Elem(c.head))
	c.head = (c.head + 1) & c.Mask
	return true
}

// Release returns the elements of all completions taken to the daemon.
func (c *CQConsumer) Release() { atomic.StoreUint32(c.Consumer, c.head) }

// Bits of Ring.Arm.
const (
	ArmAny       = 1 << iota // any completion
	ArmSolicited             // a solicited completion or one with an error
)

// RequestEvent requests an event at the next completion that matches bits (ArmAny, ArmSolicited). Completions in the
// ring cause no event: poll again afterwards.
func (c *CQConsumer) RequestEvent(bits uint32) { atomic.OrUint32(c.Arm, bits) }
