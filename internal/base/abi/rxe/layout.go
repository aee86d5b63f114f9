// Package rxe is the layout of the work and completion rings that the rxe driver
// shares with its user-space provider (rdma/rdma_user_rxe.h), and both ends of
// them: SendRing, RecvRing and CQRing for the daemon, SendProducer, RecvProducer
// and CQConsumer for the client.
//
// The daemon's ends take nothing for granted that the other side can write. They
// use their own copy of the ring's geometry and of the index that they advance,
// mask and bound the other index, and read each element once.
package rxe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

var (
	native = binary.NativeEndian
	be     = binary.BigEndian
)

// Layout of a ring (struct rxe_queue_buf).
const (
	offLog2Elem = 0
	offMask     = 4
	offProducer = 128
	offConsumer = 256
	offArm      = 260 // ours, in padding; only in rings of completions
	offData     = 384
)

// Layout of struct rxe_send_wqe.
const (
	sendWRID   = 0
	sendOpcode = 12
	sendFlags  = 16
	sendEx     = 20
	sendIova   = 152
	sendDMA    = 184
	sendData   = sendDMA + dmaLen // SGEs or inline data
)

// Layout of the union wr of struct rxe_send_wr, relative to the element.
const (
	rdmaAddr = 24
	rdmaRKey = 32

	atomicAddr       = 24
	atomicCompareAdd = 32
	atomicSwap       = 40
	atomicRKey       = 48

	flushAddr   = 24
	flushLength = 32
	flushRKey   = 36
	flushType   = 40
	flushLevel  = 41

	udQPN  = 24
	udQKey = 28
	udAH   = 36

	mwAddr   = 24
	mwLength = 32
	mwMRLKey = 40
	mwMWRKey = 44
	mwRKey   = 48
	mwAccess = 52

	// Of struct rxe_av, which providers before ah_num fill.
	udMAC   = 58
	udDGID  = 64
	udFlow  = 80
	udSGID  = 84
	udHop   = 85
	udClass = 86

	sendTaken = 56 // bytes of the beginning that the daemon reads
)

// Layout of struct rxe_recv_wqe.
const (
	recvWRID = 0
	recvDMA  = 16
	recvData = recvDMA + dmaLen
)

// Layout of struct rxe_dma_info.
const (
	dmaLength = 0
	dmaResid  = 4
	dmaNumSGE = 12
	dmaLen    = 24
)

// sgeLen is the size of struct rxe_sge.
const sgeLen = 16

// Layout of struct ib_uverbs_wc.
const (
	wcWRID      = 0
	wcStatus    = 8
	wcOpcode    = 12
	wcVendorErr = 16
	wcByteLen   = 20
	wcEx        = 24
	wcQPNum     = 28
	wcSrcQP     = 32
	wcFlags     = 36
	wcPKeyIndex = 40
	wcSLID      = 42
	wcSL        = 44
	wcDLIDPath  = 45
	wcPort      = 46
	wcLen       = 48
	wcTime      = 48 // ours, behind it in its slot of 64 bytes
	wcSlot      = 56 // bytes of a slot that are used
)

const (
	minElem  = 64 // a cache line
	pageSize = 4096
	// maxRing bounds the size of a ring: an mminfo has 32 bits for it.
	maxRing = 1 << 30
)

// Errors of making a ring.
var (
	ErrTooLarge = errors.New("rxe: ring too large")
	ErrMemory   = errors.New("rxe: memory does not hold the ring")
)

// Shape is the geometry of a ring.
type Shape struct {
	// Log2Elem is the binary logarithm of the size of an element.
	Log2Elem uint32
	// Mask is the number of elements less one, and what the ring can hold.
	Mask uint32
	// MaxSGE and MaxInline are what an element has room for.
	MaxSGE    uint32
	MaxInline uint32
}

// SendShape returns the geometry of a send ring for wr work requests. MaxInline
// may come out greater than asked for: SGEs and inline data share their room.
func SendShape(wr, sge, inline uint32) (Shape, error) {
	s, err := shape(wr, sendElem(sge, inline))
	s.MaxSGE, s.MaxInline = sge, max(inline, sge*sgeLen)
	return s, err
}

// RecvShape returns the geometry of a receive ring for wr work requests.
func RecvShape(wr, sge uint32) (Shape, error) {
	s, err := shape(wr, recvElem(sge))
	s.MaxSGE = sge
	return s, err
}

// CQShape returns the geometry of a ring for cqe completions.
func CQShape(cqe uint32) (Shape, error) { return shape(cqe, wcLen) }

// sendElem is what an element of a send ring takes.
func sendElem(sge, inline uint32) uint64 {
	return sendData + max(uint64(inline), uint64(sge)*sgeLen)
}

// recvElem is what an element of a receive ring takes.
func recvElem(sge uint32) uint64 { return recvData + uint64(sge)*sgeLen }

// shape rounds up as rxe_queue_init does: a ring has a slot more than it holds.
func shape(n uint32, elem uint64) (Shape, error) {
	if elem > maxRing || n > maxRing {
		return Shape{}, fmt.Errorf("%w: %d elements of %d bytes", ErrTooLarge, n, elem)
	}
	s := Shape{
		Log2Elem: uint32(bits.Len64(max(elem, minElem) - 1)),
		Mask:     1<<bits.Len32(n) - 1,
	}
	if s.size() > maxRing {
		return Shape{}, fmt.Errorf("%w: %d elements of %d bytes", ErrTooLarge, n, elem)
	}
	return s, nil
}

// Entries is the number of elements that the ring holds at most.
func (s Shape) Entries() uint32 { return s.Mask }

// Size is the size of the ring's memory: whole pages.
func (s Shape) Size() int { return int(s.size()) }

func (s Shape) size() uint64 {
	return (offData + (uint64(s.Mask)+1)<<s.Log2Elem + pageSize - 1) &^ (pageSize - 1)
}
