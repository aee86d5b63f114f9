package rxe

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// ring is a ring in shared memory as one side sees it.
type ring struct {
	mem      []byte
	log2     uint32
	mask     uint32
	producer *uint32
	consumer *uint32
	arm      *uint32
}

// open lays a ring of shape s over mem.
func open(mem []byte, s Shape) (ring, error) {
	if s.Log2Elem > 30 || s.Mask >= maxRing || s.Mask&(s.Mask+1) != 0 || s.size() > maxRing || len(mem) < s.Size() {
		return ring{}, fmt.Errorf("%w: %d bytes for %d elements of %d bytes", ErrMemory, len(mem), s.Mask+1, 1<<(s.Log2Elem&31))
	}
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%8 != 0 {
		return ring{}, fmt.Errorf("%w: not aligned", ErrMemory)
	}
	return ring{
		mem: mem, log2: s.Log2Elem, mask: s.Mask,
		producer: (*uint32)(unsafe.Add(p, offProducer)),
		consumer: (*uint32)(unsafe.Add(p, offConsumer)),
		arm:      (*uint32)(unsafe.Add(p, offArm)),
	}, nil
}

// create is open of a new ring, whose header it writes. Its elements must have
// least bytes.
func create(mem []byte, s Shape, least uint64) (ring, error) {
	r, err := open(mem, s)
	if err != nil {
		return ring{}, err
	}
	if err := r.checkElem(least); err != nil {
		return ring{}, err
	}
	native.PutUint32(mem[offLog2Elem:], s.Log2Elem)
	native.PutUint32(mem[offMask:], s.Mask)
	atomic.StoreUint32(r.producer, 0)
	atomic.StoreUint32(r.consumer, 0)
	return r, nil
}

// attach is open of a ring that the other side has created. Its elements must
// have least bytes.
func attach(mem []byte, least uint64) (ring, error) {
	if len(mem) < offData {
		return ring{}, fmt.Errorf("%w: %d bytes", ErrMemory, len(mem))
	}
	s := Shape{Log2Elem: native.Uint32(mem[offLog2Elem:]), Mask: native.Uint32(mem[offMask:])}
	r, err := open(mem, s)
	if err != nil {
		return ring{}, err
	}
	return r, r.checkElem(least)
}

func (r *ring) checkElem(least uint64) error {
	if least > 1<<r.log2 {
		return fmt.Errorf("%w: elements of %d bytes, not %d", ErrMemory, 1<<r.log2, least)
	}
	return nil
}

// elem returns the memory of an element.
func (r *ring) elem(i uint32) []byte {
	off := offData + uint64(i&r.mask)<<r.log2
	end := off + 1<<r.log2
	return r.mem[off:end:end]
}
