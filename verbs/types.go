package verbs

import (
	"fmt"
	"net/netip"
	"strconv"
)

// QPType is a transport service (ibv_qp_type).
type QPType uint8

// Transport services.
const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection
	UD QPType = 4 // unreliable datagram
)

// String returns the abbreviation of the service.
func (t QPType) String() string {
	return nameOf("type ", uint32(t), map[QPType]string{RC: "RC", UC: "UC", UD: "UD"}[t])
}

// nameOf returns the name, or the number if the name is empty.
func nameOf(kind string, n uint32, name string) string {
	if name == "" {
		return kind + strconv.FormatUint(uint64(n), 10)
	}
	return name
}

// Access is a set of memory access rights (ibv_access_flags).
type Access uint32

// Access rights. AccessRemoteWrite and AccessRemoteAtomic require AccessLocalWrite.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	AccessMWBind       Access = 1 << 4
	AccessZeroBased    Access = 1 << 5 // of a memory window: addresses count from its first byte
	AccessFlushGlobal  Access = 1 << 8 // OpFlush
)

// MTU is a path MTU as a code (ibv_mtu). The zero value is no MTU.
type MTU uint8

// Path MTUs; the number is the payload of a packet in bytes.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes returns the MTU in bytes, 0 for an invalid code.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// Opcode is the operation of a send work request (ibv_wr_opcode).
type Opcode uint8

// Operations.
const (
	OpWrite       Opcode = 0
	OpWriteImm    Opcode = 1
	OpSend        Opcode = 2
	OpSendImm     Opcode = 3
	OpRead        Opcode = 4
	OpCmpSwap     Opcode = 5
	OpFetchAdd    Opcode = 6
	OpLocalInv    Opcode = 7
	OpBindMW      Opcode = 8
	OpSendWithInv Opcode = 9
	OpFlush       Opcode = 14 // FLUSH (IBTA vol.1 annex A19)
	OpAtomicWrite Opcode = 15 // ATOMIC WRITE of 8 inline bytes (IBTA vol.1 annex A19)
)

// SendFlags are the flags of a send work request (ibv_send_flags).
type SendFlags uint8

// Send flags.
const (
	SendFence     SendFlags = 1 << 0 // start after all READs and atomics before it
	SendSignaled  SendFlags = 1 << 1 // generate a completion on success, too
	SendSolicited SendFlags = 1 << 2 // generate a solicited event at the receiver
	SendInline    SendFlags = 1 << 3 // the payload is SendWR.Inline
)

// SGE is one element of a scatter/gather list (ibv_sge). MR.SGE creates it.
type SGE struct {
	Addr   uint64 // address of the first byte
	Length uint32 // length in bytes
	LKey   uint32 // key of the memory region
}

// Status is a completion status (ibv_wc_status).
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

var statusNames = map[Status]string{
	StatusSuccess: "success", StatusLocLenErr: "local length error", StatusLocQPOpErr: "local QP operation error",
	StatusLocProtErr: "local protection error", StatusWRFlushErr: "flushed", StatusMWBindErr: "memory window bind error",
	StatusBadRespErr: "bad response", StatusLocAccessErr: "local access error",
	StatusRemInvReqErr: "remote invalid request", StatusRemAccessErr: "remote access error",
	StatusRemOpErr: "remote operation error", StatusRetryExcErr: "transport retry counter exceeded",
	StatusRNRRetryExcErr: "RNR retry counter exceeded", StatusRemAbortErr: "remote abort", StatusFatalErr: "fatal error",
	StatusRespTimeoutErr: "response timeout", StatusGeneralErr: "general error",
}

// String returns the meaning of the status.
func (s Status) String() string { return nameOf("status ", uint32(s), statusNames[s]) }

// WCOpcode is the operation of a completion (ibv_wc_opcode).
type WCOpcode uint8

// Operations of completions.
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
	WCRecv        WCOpcode = 128 // a received SEND, with or without immediate data
	WCRecvWithImm WCOpcode = 129 // a received WRITE with immediate data
)

// WCFlags are completion flags (ibv_wc_flags).
type WCFlags uint8

// Completion flags.
const (
	WCGRH     WCFlags = 1 << 0 // the first 40 bytes of the receive buffer are a GRH
	WCWithImm WCFlags = 1 << 1 // WC.Imm is immediate data
	WCWithInv WCFlags = 1 << 3 // WC.Imm is the key that the peer has invalidated
)

// WC is a completion (ibv_wc). If Status reports an error, only WRID, Status,
// VendorErr and QPN are valid.
type WC struct {
	WRID      uint64 // identifier of the work request
	Status    Status
	Opcode    WCOpcode
	Flags     WCFlags
	VendorErr uint32
	ByteLen   uint32 // bytes received, read, or returned by an atomic operation
	Imm       uint32 // meaning defined by Flags
	QPN       uint32 // local queue pair
	SrcQP     uint32 // UD: queue pair of the sender
	PKeyIndex uint16
	SL        uint8
	// Time is the time at which the device completed the work request. It is the arrival of the completing frame or, if
	// none was needed, the departure. Zero if the device has no time stamps.
	Time Timestamp
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
	QPReset QPState = iota
	QPInit
	QPRTR // ready to receive
	QPRTS // ready to send
	QPSQD // send queue drained
	QPSQE // send queue error
	QPErr
)

// String returns the state's name.
func (s QPState) String() string {
	names := [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}
	if int(s) < len(names) {
		return names[s]
	}
	return nameOf("state ", uint32(s), "")
}

// EventType is the type of an asynchronous event (ibv_event_type).
type EventType uint32

// Asynchronous events.
const (
	EventCQErr           EventType = 0
	EventQPFatal         EventType = 1
	EventQPReqErr        EventType = 2
	EventQPAccessErr     EventType = 3
	EventCommEst         EventType = 4
	EventSQDrained       EventType = 5
	EventDeviceFatal     EventType = 8
	EventPortActive      EventType = 9
	EventPortErr         EventType = 10
	EventSRQErr          EventType = 14
	EventSRQLimitReached EventType = 15
	EventQPLastWQE       EventType = 16
	EventGIDChange       EventType = 18
)

var eventNames = map[EventType]string{
	EventCQErr: "CQ error", EventQPFatal: "QP fatal", EventQPReqErr: "QP request error", EventQPAccessErr: "QP access error",
	EventCommEst: "communication established", EventSQDrained: "send queue drained", EventDeviceFatal: "device fatal",
	EventPortActive: "port active", EventPortErr: "port error", EventSRQErr: "SRQ error",
	EventSRQLimitReached: "SRQ limit reached", EventQPLastWQE: "last WQE reached", EventGIDChange: "GID change",
}

// String returns the name of the event.
func (e EventType) String() string { return nameOf("event ", uint32(e), eventNames[e]) }

// GID is an address of a port: an IPv6 address or an IPv4-mapped one. Its textual
// form is that of the IP address.
type GID [16]byte

// GIDOf returns the GID of an IP address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the IP address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the IP address as text.
func (g GID) String() string { return g.Addr().String() }

// MarshalText returns the IP address as text.
func (g GID) MarshalText() ([]byte, error) { return g.Addr().MarshalText() }

// UnmarshalText parses an IP address without a zone.
func (g *GID) UnmarshalText(b []byte) error {
	a, err := netip.ParseAddr(string(b))
	if err != nil {
		return fmt.Errorf("verbs: GID: %w", err)
	}
	if a.Zone() != "" {
		return fmt.Errorf("verbs: GID %q: must not have a zone", b)
	}
	*g = GIDOf(a)
	return nil
}
