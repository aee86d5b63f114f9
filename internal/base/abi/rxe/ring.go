package rxe

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Ring is a ring in shared memory. The other side may write all of it at any time; trust only the fields here.
type Ring struct {
	mem  []byte
	log2 uint32
	// Mask is the number of elements minus one.
	Mask uint32
	// Producer and Consumer are the indices of the two sides, and Arm holds the requests for a completion event. All
	// are in shared memory: access them atomically, and mask them.
	Producer, Consumer, Arm *uint32
}

// open maps a ring of shape s onto mem. Its elements must have at least least bytes.
func open(mem []byte, s Shape, least uint64) (Ring, error) {
	if s.Log2Elem > 30 || s.Mask >= maxRing || s.Mask&(s.Mask+1) != 0 || s.size() > maxRing || len(mem) < s.Size() {
		return Ring{}, fmt.Errorf("%w: %d bytes for %d elements of %d bytes", ErrMemory, len(mem), s.Mask+1, 1<<(s.Log2Elem&31))
	}
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if uintptr(p)%8 != 0 {
		return Ring{}, fmt.Errorf("%w: not aligned to 8 bytes", ErrMemory)
	}
	if least > 1<<s.Log2Elem {
		return Ring{}, fmt.Errorf("%w: elements have %d bytes, need %d", ErrMemory, 1<<s.Log2Elem, least)
	}
	return Ring{
		mem: mem, log2: s.Log2Elem, Mask: s.Mask,
		Producer: (*uint32)(unsafe.Add(p, offProducer)),
		Consumer: (*uint32)(unsafe.Add(p, offConsumer)),
		Arm:      (*uint32)(unsafe.Add(p, offArm)),
	}, nil
}

// create opens a new ring and writes its header.
func create(mem []byte, s Shape, least uint64) (Ring, error) {
	r, err := open(mem, s, least)
	if err != nil {
		return Ring{}, err
	}
	*At[uint32](mem[offLog2Elem:]), *At[uint32](mem[offMask:]) = s.Log2Elem, s.Mask
	atomic.StoreUint32(r.Producer, 0)
	atomic.StoreUint32(r.Consumer, 0)
	return r, nil
}

// CreateSend creates an empty send ring of shape s in mem.
func CreateSend(mem []byte, s Shape) (Ring, error) {
	return create(mem, s, sendElem(s.MaxSGE, s.MaxInline))
}

// CreateRecv creates an empty receive ring of shape s in mem.
func CreateRecv(mem []byte, s Shape) (Ring, error) { return create(mem, s, recvElem(s.MaxSGE)) }

// CreateCQ creates an empty completion ring of shape s in mem.
func CreateCQ(mem []byte, s Shape) (Ring, error) { return create(mem, s, wcSlot) }

// attach opens a ring that the other side has created.
func attach(mem []byte, least uint64) (Ring, error) {
	if len(mem) < offData {
		return Ring{}, fmt.Errorf("%w: %d bytes", ErrMemory, len(mem))
	}
	return open(mem, Shape{Log2Elem: *At[uint32](mem[offLog2Elem:]), Mask: *At[uint32](mem[offMask:])}, least)
}

// Elem returns the memory of an element; it masks the index.
func (r *Ring) Elem(i uint32) []byte {
	off := offData + uint64(i&r.Mask)<<r.log2
	end := off + 1<<r.log2
	return r.mem[off:end:end]
}

// SendData returns the SGEs or inline data of an element of a send ring.
func SendData(elem []byte) []byte { return elem[sendLen:] }

// RecvData returns the SGEs of an element of a receive ring.
func RecvData(elem []byte) []byte { return elem[recvLen:] }
