// Package rxe holds the layout of the work and completion rings that Linux' rxe driver shares with its user-space
// provider (rdma/rdma_user_rxe.h). It also holds the client's ends of them: SendProducer, RecvProducer and CQConsumer.
// The daemon's ends are in internal/daemon/rxering.
//
// All structures are in the byte order of the machine unless a field says otherwise. At maps them onto shared memory.
package rxe

import "unsafe"

// Offsets in a ring (struct rxe_queue_buf).
const (
	offLog2Elem = 0
	offMask     = 4
	offProducer = 128
	offConsumer = 256
	offArm      = 260 // an extension of roced, in padding; only in completion rings
	offData     = 384
)

// SendWR is the first part of struct rxe_send_wr: all fields that the driver reads of a work request, apart from the
// address vector of UD.
type SendWR struct {
	WRID   uint64
	_      uint32 // num_sge; the driver reads it from DMA
	Opcode uint32 // enum ib_wr_opcode
	Flags  uint32 // enum ib_send_flags
	// Ex is immediate data in network byte order, or the rkey to invalidate in the byte order of the machine.
	Ex [4]byte
	// op is a union: see RDMA, Atomic, Flush, UD and BindMW.
	op [32]byte
}

// RDMA is the member of the union for READ, WRITE and ATOMIC WRITE.
type RDMA struct {
	Addr uint64
	RKey uint32
	_    uint32
}

// Atomic is the member of the union for compare-and-swap and fetch-and-add.
type Atomic struct {
	Addr       uint64
	CompareAdd uint64
	Swap       uint64
	RKey       uint32
	_          uint32
}

// Flush is the member of the union for FLUSH. The length of the range is that of the DMA.
type Flush struct {
	Addr  uint64
	_     uint32 // length; no provider writes it
	RKey  uint32
	Type  uint8
	Level uint8
	_     [6]uint8
}

// UD is the member of the union for datagrams.
type UD struct {
	QPN  uint32
	QKey uint32
	_    uint32 // pkey_index and padding
	AH   uint32 // ah_num; 0 from providers of rdma-core before 35
}

// BindMW is the member of the union for the bind of a memory window.
type BindMW struct {
	Addr   uint64
	Length uint64
	MRLKey uint32
	MWRKey uint32
	RKey   uint32
	Access uint32
}

// RDMA returns the union as that of READ, WRITE and ATOMIC WRITE.
func (w *SendWR) RDMA() *RDMA { return At[RDMA](w.op[:]) }

// Atomic returns the union as that of an atomic operation.
func (w *SendWR) Atomic() *Atomic { return At[Atomic](w.op[:]) }

// Flush returns the union as that of a FLUSH.
func (w *SendWR) Flush() *Flush { return At[Flush](w.op[:]) }

// UD returns the union as that of a datagram.
func (w *SendWR) UD() *UD { return At[UD](w.op[:]) }

// BindMW returns the union as that of a memory window bind.
func (w *SendWR) BindMW() *BindMW { return At[BindMW](w.op[:]) }

// AddressVector is the part of struct rxe_av, in the union of UD, with the destination for providers of rdma-core
// before 35.
type AddressVector struct {
	_            [2]byte
	MAC          [6]byte // set by preload/address.c; the LID is in the last two bytes, in network byte order
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	_            uint8
}

// SendWQE is struct rxe_send_wqe without the SGEs or inline data, which follow.
type SendWQE struct {
	SendWR
	AV   AddressVector
	_    [56]byte
	_    [8]byte // status, state
	Iova uint64  // the remote address of RDMA, FLUSH and atomics
	_    [24]byte
	DMA  DMA
}

// RecvWQE is struct rxe_recv_wqe without the SGEs, which follow.
type RecvWQE struct {
	WRID uint64
	_    [8]byte
	DMA  DMA
}

// DMA is struct rxe_dma_info without the SGEs.
type DMA struct {
	Length uint32
	Resid  uint32
	_      uint32 // cur_sge
	NumSGE uint32
	_      uint64 // sge_offset and reserved
}

// SGE is struct rxe_sge.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// WC is struct ib_uverbs_wc, followed by an extension of roced in the slot of 64 bytes.
type WC struct {
	WRID      uint64
	Status    uint32
	Opcode    uint32
	VendorErr uint32
	ByteLen   uint32
	Ex        [4]byte // as SendWR.Ex
	QPN       uint32
	SrcQP     uint32
	Flags     uint32
	PKeyIndex uint16
	SLID      uint16
	SL        uint8
	DLIDPath  uint8
	Port      uint8
	_         uint8
	Time      uint64 // time of the completion, in nanoseconds of CLOCK_MONOTONIC; an extension of roced
}

// Sizes of the structures.
const (
	sendLen = uint64(unsafe.Sizeof(SendWQE{}))
	recvLen = uint64(unsafe.Sizeof(RecvWQE{}))
	sgeLen  = uint64(unsafe.Sizeof(SGE{}))
	wcLen   = uint64(unsafe.Offsetof(WC{}.Time))
	wcSlot  = uint64(unsafe.Sizeof(WC{}))
)

// At maps a structure onto the beginning of b, which must be long enough and aligned.
func At[T any](b []byte) *T {
	var t T
	_ = b[unsafe.Sizeof(t)-1]
	return (*T)(unsafe.Pointer(unsafe.SliceData(b)))
}
