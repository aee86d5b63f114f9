package verbs

import (
	"fmt"
	"net/netip"
	"strconv"

	"roced.io/roced/plugin/mono"
	"roced.io/roced/qp"
)

// QPType is a transport service.
type QPType = qp.Type

// Transport services.
const (
	RC = qp.RC // reliable connection
	UC = qp.UC // unreliable connection
	UD = qp.UD // unreliable datagram
)

// Access are memory access rights (ibv_access_flags).
type Access = qp.Access

// Access rights. Remote write and atomics need the local right too.
const (
	AccessLocalWrite   = qp.AccessLocalWrite
	AccessRemoteWrite  = qp.AccessRemoteWrite
	AccessRemoteRead   = qp.AccessRemoteRead
	AccessRemoteAtomic = qp.AccessRemoteAtomic
	AccessMWBind       = qp.AccessMWBind
	AccessZeroBased    = qp.AccessZeroBased
	AccessFlushGlobal  = qp.AccessFlushGlobal
)

// MTU is a path MTU code.
type MTU = qp.MTU

// Path MTUs.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Opcode is the operation of a send work request (ibv_wr_opcode).
type Opcode = qp.WROpcode

// Operations.
const (
	OpWrite       = qp.WRWrite
	OpWriteImm    = qp.WRWriteImm
	OpSend        = qp.WRSend
	OpSendImm     = qp.WRSendImm
	OpRead        = qp.WRRead
	OpCmpSwap     = qp.WRCmpSwap
	OpFetchAdd    = qp.WRFetchAdd
	OpLocalInv    = qp.WRLocalInv
	OpBindMW      = qp.WRBindMW
	OpSendWithInv = qp.WRSendWithInv
	OpAtomicWrite = qp.WRAtomicWrite // of 8 inline bytes
	OpFlush       = qp.WRFlush
)

// SendFlags are the flags of a send work request (ibv_send_flags).
type SendFlags = qp.SendFlags

// Send flags.
const (
	SendFence     = qp.SendFence
	SendSignaled  = qp.SendSignaled
	SendSolicited = qp.SendSolicited
	SendInline    = qp.SendInline
)

// SGE is one element of a scatter/gather list; MR.SGE makes them.
type SGE = qp.SGE

// Status is a completion status (ibv_wc_status).
type Status uint8

// Completion statuses.
const (
	StatusSuccess        = Status(qp.StatusSuccess)
	StatusLocLenErr      = Status(qp.StatusLocLenErr)
	StatusLocQPOpErr     = Status(qp.StatusLocQPOpErr)
	StatusLocProtErr     = Status(qp.StatusLocProtErr)
	StatusWRFlushErr     = Status(qp.StatusWRFlushErr)
	StatusMWBindErr      = Status(qp.StatusMWBindErr)
	StatusBadRespErr     = Status(qp.StatusBadRespErr)
	StatusLocAccessErr   = Status(qp.StatusLocAccessErr)
	StatusRemInvReqErr   = Status(qp.StatusRemInvReqErr)
	StatusRemAccessErr   = Status(qp.StatusRemAccessErr)
	StatusRemOpErr       = Status(qp.StatusRemOpErr)
	StatusRetryExcErr    = Status(qp.StatusRetryExcErr)
	StatusRNRRetryExcErr = Status(qp.StatusRNRRetryExcErr)
	StatusRemAbortErr    = Status(qp.StatusRemAbortErr)
	StatusFatalErr       = Status(qp.StatusFatalErr)
	StatusRespTimeoutErr = Status(qp.StatusRespTimeoutErr)
	StatusGeneralErr     = Status(qp.StatusGeneralErr)
)

var statusNames = map[Status]string{
	StatusSuccess: "success", StatusLocLenErr: "local length error", StatusLocQPOpErr: "local QP operation error",
	StatusLocProtErr: "local protection error", StatusWRFlushErr: "flushed", StatusMWBindErr: "memory window bind error",
	StatusBadRespErr: "bad response", StatusLocAccessErr: "local access error",
	StatusRemInvReqErr: "remote invalid request", StatusRemAccessErr: "remote access error",
	StatusRemOpErr: "remote operation error", StatusRetryExcErr: "transport retry counter exceeded",
	StatusRNRRetryExcErr: "RNR retry counter exceeded", StatusRemAbortErr: "remote abort", StatusFatalErr: "fatal error",
	StatusRespTimeoutErr: "response timeout", StatusGeneralErr: "general error",
}

// String returns what the status means.
func (s Status) String() string {
	if n, ok := statusNames[s]; ok {
		return n
	}
	return "status " + strconv.Itoa(int(s))
}

// WCOpcode is the operation of a completion (ibv_wc_opcode).
type WCOpcode = qp.WCOpcode

// Operations of completions.
const (
	WCSend        = qp.WCSend
	WCWrite       = qp.WCWrite
	WCRead        = qp.WCRead
	WCCmpSwap     = qp.WCCmpSwap
	WCFetchAdd    = qp.WCFetchAdd
	WCBindMW      = qp.WCBindMW
	WCLocalInv    = qp.WCLocalInv
	WCFlush       = qp.WCFlush
	WCAtomicWrite = qp.WCAtomicWrite
	WCRecv        = qp.WCRecv
	WCRecvWithImm = qp.WCRecvWithImm // of a WRITE with immediate data; that of a SEND is WCRecv
)

// WCFlags are completion flags (ibv_wc_flags).
type WCFlags = qp.WCFlags

// Completion flags.
const (
	WCGRH     = qp.WCGRH     // the first 40 bytes of the receive buffer are a GRH
	WCWithImm = qp.WCWithImm // Imm is immediate data
	WCWithInv = qp.WCWithInv // Imm is the key that the peer has invalidated
)

// WC is a completion (ibv_wc). If it reports an error, only WRID, Status,
// VendorErr and QPN mean anything.
type WC struct {
	WRID      uint64
	Status    Status
	Opcode    WCOpcode
	Flags     WCFlags
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32
	QPN       uint32
	SrcQP     uint32 // UD
	PKeyIndex uint16
	SL        uint8
	// Time is when the device has completed the work request, on the clock of Context.Now: when the frame
	// came that completed it, or had left if none had to come. It does not matter when it is polled. Zero
	// if the device has no time stamps.
	Time mono.Time
}

// Err returns nil, or an error that names the status.
func (w *WC) Err() error {
	if w.Status == StatusSuccess {
		return nil
	}
	return &CompletionError{WRID: w.WRID, QPN: w.QPN, Status: w.Status}
}

// QPState is a queue pair state (ibv_qp_state).
type QPState uint8

// Queue pair states.
const (
	QPReset = QPState(qp.Reset)
	QPInit  = QPState(qp.Init)
	QPRTR   = QPState(qp.RTR)
	QPRTS   = QPState(qp.RTS)
	QPSQD   = QPState(qp.SQD)
	QPSQE   = QPState(qp.SQE)
	QPErr   = QPState(qp.Err)
)

// String returns the state's name.
func (s QPState) String() string {
	names := [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// EventType is the type of an asynchronous event (ibv_event_type).
type EventType uint32

// Asynchronous events.
const (
	EventCQErr           = EventType(qp.EventCQErr)
	EventQPFatal         = EventType(qp.EventQPFatal)
	EventQPReqErr        = EventType(qp.EventQPReqErr)
	EventQPAccessErr     = EventType(qp.EventQPAccessErr)
	EventCommEst         = EventType(qp.EventCommEst)
	EventSQDrained       = EventType(qp.EventSQDrained)
	EventDeviceFatal     = EventType(qp.EventDeviceFatal)
	EventPortActive      = EventType(qp.EventPortActive)
	EventPortErr         = EventType(qp.EventPortErr)
	EventSRQErr          = EventType(qp.EventSRQErr)
	EventSRQLimitReached = EventType(qp.EventSRQLimitReached)
	EventQPLastWQE       = EventType(qp.EventQPLastWQE)
	EventGIDChange       = EventType(qp.EventGIDChange)
)

var eventNames = map[EventType]string{
	EventCQErr: "CQ error", EventQPFatal: "QP fatal", EventQPReqErr: "QP request error", EventQPAccessErr: "QP access error",
	EventCommEst: "communication established", EventSQDrained: "send queue drained", EventDeviceFatal: "device fatal",
	EventPortActive: "port active", EventPortErr: "port error", EventSRQErr: "SRQ error",
	EventSRQLimitReached: "SRQ limit reached", EventQPLastWQE: "last WQE reached", EventGIDChange: "GID change",
}

// String returns what has happened.
func (e EventType) String() string {
	if n, ok := eventNames[e]; ok {
		return n
	}
	return fmt.Sprintf("event %d", uint32(e))
}

// GID is an address of a port: an IPv6 address or an IPv4-mapped one. Its text is
// that of the IP address.
type GID [16]byte

// GIDOf returns the GID of an IP address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the IP address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the IP address as text.
func (g GID) String() string { return g.Addr().String() }

// MarshalText makes the text of the GID.
func (g GID) MarshalText() ([]byte, error) { return g.Addr().MarshalText() }

// UnmarshalText parses an IP address.
func (g *GID) UnmarshalText(b []byte) error {
	a, err := netip.ParseAddr(string(b))
	if err != nil {
		return fmt.Errorf("verbs: GID: %w", err)
	}
	if a.Zone() != "" {
		return fmt.Errorf("verbs: GID %q has a zone", b)
	}
	*g = a.As16()
	return nil
}
