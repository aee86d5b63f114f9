package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// Type is the transport service of a queue pair, numbered as ibv_qp_type.
type Type uint8

// Transport services.
const (
	RC Type = 2
	UC Type = 3
	UD Type = 4
)

// State is a queue pair state, numbered as ibv_qp_state (IBTA vol.1 10.3.1).
type State uint8

// Queue pair states.
const (
	Reset State = iota
	Init
	RTR
	RTS
	SQD
	SQE
	Err
)

// WROpcode is the operation of a send work request, numbered as ibv_wr_opcode.
type WROpcode uint8

// Send work request operations.
const (
	WRWrite       WROpcode = 0
	WRWriteImm    WROpcode = 1
	WRSend        WROpcode = 2
	WRSendImm     WROpcode = 3
	WRRead        WROpcode = 4
	WRCmpSwap     WROpcode = 5
	WRFetchAdd    WROpcode = 6
	WRLocalInv    WROpcode = 7
	WRBindMW      WROpcode = 8
	WRSendWithInv WROpcode = 9
	// WRFlush makes earlier writes visible or persistent, as Flush says.
	WRFlush WROpcode = 14
	// WRAtomicWrite writes 8 aligned bytes, given as inline data, atomically.
	WRAtomicWrite WROpcode = 15
)

// SendFlags are the flags of a send work request, as ibv_send_flags.
type SendFlags uint8

// Send flags.
const (
	SendFence     SendFlags = 1 << 0
	SendSignaled  SendFlags = 1 << 1
	SendSolicited SendFlags = 1 << 2
	SendInline    SendFlags = 1 << 3
)

// MaxSGE is the longest scatter/gather list of a work request.
const MaxSGE = 32

// MaxMessage is the longest message, 2 GiB (IBTA vol.1 9.4.1: 2^31 bytes).
const MaxMessage = 1 << 31

// SGE is one element of a scatter/gather list.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// SendWQE is a send work request as the client wrote it. Host.NextSend copies one element of the ring into it. Its fields
// are not validated.
type SendWQE struct {
	WRID   uint64
	Opcode WROpcode
	Flags  SendFlags
	// Imm is immediate data as the number on the wire, or the rkey to invalidate (SEND_WITH_INV, LOCAL_INV).
	Imm    uint32
	Length uint32 // bytes; the sum of the SGEs or len(Inline)

	RemoteVA   uint64 // WRITE, READ, atomics, FLUSH
	RKey       uint32
	Flush      FlushWR
	CompareAdd uint64
	Swap       uint64

	AH         uint32 // UD: address handle, never 0
	RemoteQPN  uint32
	RemoteQKey uint32

	Bind BindWR // BIND_MW

	SGEs   []SGE  // storage belongs to the WQE and is reused
	Inline []byte // payload if Flags has SendInline; reused likewise
}

// FlushWR are the parameters of a FLUSH (IBTA vol.1 annex A19).
type FlushWR struct {
	Length uint32 // of the range
	bth.FETH
}

// BindWR are the parameters of a memory window bind (IBTA vol.1 10.6.7).
type BindWR struct {
	Addr   uint64
	Length uint64
	MRLKey uint32
	MWRKey uint32 // current rkey of the window
	RKey   uint32 // new rkey: same index, key byte chosen by the client
	Access Access
}

// RecvWQE is a receive work request, not validated either.
type RecvWQE struct {
	WRID uint64
	SGEs []SGE // storage belongs to the WQE and is reused
}

// Status is a completion status, numbered as ibv_wc_status.
type Status uint8

// Completion statuses.
const (
	StatusSuccess        Status = 0
	StatusLocLenErr      Status = 1
	StatusLocQPOpErr     Status = 2
	StatusLocProtErr     Status = 4
	StatusWRFlushErr     Status = 5
	StatusMWBindErr      Status = 6
	StatusBadRespErr     Status = 7
	StatusLocAccessErr   Status = 8
	StatusRemInvReqErr   Status = 9
	StatusRemAccessErr   Status = 10
	StatusRemOpErr       Status = 11
	StatusRetryExcErr    Status = 12
	StatusRNRRetryExcErr Status = 13
	StatusRemAbortErr    Status = 16
	StatusFatalErr       Status = 19
	StatusRespTimeoutErr Status = 20
	StatusGeneralErr     Status = 21
)

// WCOpcode is the operation of a completion, numbered as ibv_wc_opcode.
type WCOpcode uint8

// Completion operations.
const (
	WCSend        WCOpcode = 0
	WCWrite       WCOpcode = 1
	WCRead        WCOpcode = 2
	WCCmpSwap     WCOpcode = 3
	WCFetchAdd    WCOpcode = 4
	WCBindMW      WCOpcode = 5
	WCLocalInv    WCOpcode = 6
	WCFlush       WCOpcode = 8
	WCAtomicWrite WCOpcode = 9
	WCRecv        WCOpcode = 128
	WCRecvWithImm WCOpcode = 129
)

// WCFlags are completion flags, as ibv_wc_flags.
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << 0
	WCWithImm WCFlags = 1 << 1
	WCWithInv WCFlags = 1 << 3
)

// CQE is a completion (ibv_wc).
type CQE struct {
	WRID      uint64
	Status    Status
	Opcode    WCOpcode
	Flags     WCFlags
	Solicited bool // wakes a CQ armed for solicited completions only; not part of ibv_wc
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // immediate data or invalidated rkey
	QPN       uint32
	SrcQP     uint32
	PKeyIndex uint16
	SL        uint8
	Time      mono.Time // of the completion; set by the NIC
}

// Access are memory access rights, as ibv_access_flags.
type Access uint32

// Access rights.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	AccessMWBind       Access = 1 << 4
	AccessZeroBased    Access = 1 << 5
	// FLUSH, by type.
	AccessFlushGlobal     Access = 1 << 8
	AccessFlushPersistent Access = 1 << 9
)

// Event is an asynchronous event of a queue pair, numbered as ibv_event_type.
type Event uint8

// Asynchronous events.
const (
	EventCQErr           Event = 0
	EventQPFatal         Event = 1
	EventQPReqErr        Event = 2
	EventQPAccessErr     Event = 3
	EventCommEst         Event = 4
	EventSQDrained       Event = 5
	EventDeviceFatal     Event = 8
	EventPortActive      Event = 9
	EventPortErr         Event = 10
	EventSRQErr          Event = 14
	EventSRQLimitReached Event = 15
	EventQPLastWQE       Event = 16
	EventGIDChange       Event = 18
)

// MTU is a path MTU: a code as ibv_mtu, 1 = 256 .. 5 = 4096 bytes, or a number of bytes from MinMTU on, for simulated
// links. Programs and peers send codes only; the code that decodes their MTU must refuse other values.
type MTU uint16

// MinMTU is the smallest path MTU in bytes.
const MinMTU MTU = 64

// Bytes returns the MTU in bytes, zero for an invalid one.
func (m MTU) Bytes() int {
	switch {
	case m >= MinMTU:
		return int(m)
	case m < 1 || m > 5:
		return 0
	}
	return 128 << m
}
