// Package rdmacm mirrors the Linux rdma_cm write() ABI (rdma/rdma_user_cm.h): command numbers, the structures of
// commands, responses and events, and the extension commands of roced. docs/reference/control-protocol.md describes
// their transport.
//
// The structures have the fields of their C counterparts in the same order and with explicit padding. So
// encoding/binary's packed little-endian form is their layout. Fields that the ABI reserves, and the `response`
// pointers, are blank.
package rdmacm

import (
	"fmt"

	"roced.io/roced/internal/base/abi/uverbs"
)

// ABIVersion is RDMA_USER_CM_ABI_VERSION.
const ABIVersion = 4

// Commands (RDMA_USER_CM_CMD_*).
const (
	CmdCreateID     = 0
	CmdDestroyID    = 1
	CmdBindIP       = 2
	CmdResolveIP    = 3
	CmdResolveRoute = 4
	CmdQueryRoute   = 5
	CmdConnect      = 6
	CmdListen       = 7
	CmdAccept       = 8
	CmdReject       = 9
	CmdDisconnect   = 10
	CmdInitQPAttr   = 11
	CmdGetEvent     = 12
	CmdSetOption    = 14
	CmdNotify       = 15
	CmdJoinIPMcast  = 16
	CmdLeaveMcast   = 17
	CmdMigrateID    = 18
	CmdQuery        = 19
	CmdBind         = 20
	CmdResolveAddr  = 21
	CmdJoinMcast    = 22
)

// Extension commands of this daemon.
const (
	// ExtHello opens the context; it is the first command of a connection.
	ExtHello = 0xc0
	// ExtBell returns the bell that was taken from the event socket, or frees slots of events.
	ExtBell = 0xc1
	// ExtConnect is CREATE_ID, RESOLVE_ADDR, RESOLVE_ROUTE and CONNECT in one.
	ExtConnect = 0xc2
)

// HelloEvents is a flag of Hello. With it, the event socket carries the events themselves: each is an EventResp. A
// ConnAttr follows in CONNECT_REQUEST and CONNECT_RESPONSE of a connection.
const HelloEvents = 1

// EventPlaces is the maximum number of events in such a socket or taken from it, until the client frees their places.
const EventPlaces = 64

// ExtVersion is the version of the extension commands.
const ExtVersion = 1

// MaxPrivateData is RDMA_MAX_PRIVATE_DATA.
const MaxPrivateData = 256

// PortSpace is a port space (enum rdma_ucm_port_space; IBTA annex A11.2.1).
type PortSpace uint16

// Port spaces.
const (
	PSIPoIB PortSpace = 0x0002
	PSTCP   PortSpace = 0x0106
	PSUDP   PortSpace = 0x0111
	PSIB    PortSpace = 0x013f
)

var spaceNames = map[PortSpace]string{PSIPoIB: "IPOIB", PSTCP: "TCP", PSUDP: "UDP", PSIB: "IB"}

// String returns the name of the port space.
func (p PortSpace) String() string {
	if s, ok := spaceNames[p]; ok {
		return s
	}
	return fmt.Sprintf("%#x", uint16(p))
}

// Event types (enum rdma_cm_event_type).
const (
	EventAddrResolved    = 0
	EventAddrError       = 1
	EventRouteResolved   = 2
	EventConnectRequest  = 4
	EventConnectResponse = 5
	EventConnectError    = 6
	EventUnreachable     = 7
	EventRejected        = 8
	EventEstablished     = 9
	EventDisconnected    = 10
	EventDeviceRemoval   = 11
	EventMulticastJoin   = 12
	EventTimewaitExit    = 15
)

// Options of QUERY.
const (
	QueryAddr = 0
	QueryPath = 1
	QueryGID  = 2
)

// Levels and names of SET_OPTION.
const (
	OptionID         = 0
	OptionTOS        = 0 // u8
	OptionReuseAddr  = 1 // int
	OptionAFOnly     = 2 // int
	OptionAckTimeout = 3 // u8
)

// Hdr begins every command (rdma_ucm_cmd_hdr). In and Out count bytes behind it.
type Hdr struct {
	Cmd uint32
	In  uint16
	Out uint16
}

// HdrLen is the length of a Hdr.
const HdrLen = 8

// Hello is the command ExtHello.
type Hello struct {
	Version uint32
	Flags   uint32
	NIC     [64]byte // the only NIC to use; empty: all that the user may use
}

// HelloResp answers Hello; EventFD is a descriptor of kind 1.
type HelloResp struct {
	Version uint32
	EventFD uint32
}

// Bell is the command ExtBell of a client with HelloEvents.
type Bell struct {
	Taken uint32 // number of events whose places are free again
	_     uint32
}

// ConnAttr is the result of INIT_QP_ATTR and QUERY for a connection.
type ConnAttr struct {
	Init, RTR, RTS   QPAttr // for MODIFY_QP, in this order
	SrcAddr, DstAddr SockaddrStorage
}

// ConnectTo is the command ExtConnect; the response is a CreateIDResp. An event reports the result: that of the last
// step, or of the failed one.
type ConnectTo struct {
	UID       uint64
	TimeoutMS uint32 // for address resolution
	DstSize   uint16
	PS        PortSpace
	DstAddr   SockaddrStorage
	ConnParam ConnParam
}

// CreateID is rdma_ucm_create_id.
type CreateID struct {
	UID    uint64
	_      uint64
	PS     PortSpace
	QPType uint8
	_      [5]uint8
}

// CreateIDResp is rdma_ucm_create_id_resp.
type CreateIDResp struct{ ID uint32 }

// JoinMcast is rdma_ucm_join_mcast; the answer is a CreateIDResp.
type JoinMcast struct {
	_         uint64
	UID       uint64
	ID        uint32
	AddrSize  uint16
	JoinFlags uint16
	Addr      SockaddrStorage
}

// JoinIPMcast is rdma_ucm_join_ip_mcast.
type JoinIPMcast struct {
	_    uint64
	UID  uint64
	Addr SockaddrIn6
	ID   uint32
}

// Flags of JoinMcast.
const (
	JoinFullMember = 0
	JoinSendOnly   = 1
)

// DestroyID is rdma_ucm_destroy_id.
type DestroyID struct {
	_  uint64
	ID uint32
	_  uint32
}

// DestroyIDResp is rdma_ucm_destroy_id_resp, and rdma_ucm_migrate_resp.
type DestroyIDResp struct{ EventsReported uint32 }

// SockaddrIn6 is sockaddr_in6, or a sockaddr_in in its place.
type SockaddrIn6 [28]byte

// SockaddrStorage is __kernel_sockaddr_storage.
type SockaddrStorage [128]byte

// BindIP is rdma_ucm_bind_ip.
type BindIP struct {
	_    uint64
	Addr SockaddrIn6
	ID   uint32
}

// Bind is rdma_ucm_bind.
type Bind struct {
	ID       uint32
	AddrSize uint16
	_        uint16
	Addr     SockaddrStorage
}

// ResolveIP is rdma_ucm_resolve_ip.
type ResolveIP struct {
	SrcAddr   SockaddrIn6
	DstAddr   SockaddrIn6
	ID        uint32
	TimeoutMS uint32
}

// ResolveAddr is rdma_ucm_resolve_addr.
type ResolveAddr struct {
	ID        uint32
	TimeoutMS uint32
	SrcSize   uint16
	DstSize   uint16
	_         uint32
	SrcAddr   SockaddrStorage
	DstAddr   SockaddrStorage
}

// ResolveRoute is rdma_ucm_resolve_route.
type ResolveRoute struct {
	ID        uint32
	TimeoutMS uint32
}

// Query is rdma_ucm_query.
type Query struct {
	_      uint64
	ID     uint32
	Option uint32
}

// PathRec is ib_user_path_rec. Fields of the wire are big-endian.
type PathRec struct {
	DGID                   [16]byte
	SGID                   [16]byte
	_                      [8]byte
	FlowLabel              [4]byte
	Reversible             uint32
	MTU                    uint32
	PKey                   [2]byte
	HopLimit               uint8
	TrafficClass           uint8
	NumbPath               uint8
	SL                     uint8
	MTUSelector            uint8
	RateSelector           uint8
	Rate                   uint8
	PacketLifeTimeSelector uint8
	PacketLifeTime         uint8
	Preference             uint8
}

// QueryRouteResp is rdma_ucm_query_route_resp.
type QueryRouteResp struct {
	NodeGUID   [8]byte
	IBRoute    [2]PathRec
	SrcAddr    SockaddrIn6
	DstAddr    SockaddrIn6
	NumPaths   uint32
	PortNum    uint8
	_          [3]uint8
	IBDevIndex uint32
	_          uint32
}

// QueryAddrResp is rdma_ucm_query_addr_resp.
type QueryAddrResp struct {
	NodeGUID   [8]byte
	PortNum    uint8
	_          uint8
	PKey       uint16
	SrcSize    uint16
	DstSize    uint16
	SrcAddr    SockaddrStorage
	DstAddr    SockaddrStorage
	IBDevIndex uint32
	_          uint32
}

// QueryPathResp is rdma_ucm_query_path_resp with room for one path.
type QueryPathResp struct {
	NumPaths uint32
	_        uint32
	PathData PathRecData
}

// PathRecData is ib_path_rec_data: flags and a PathRecord of the wire.
type PathRecData struct {
	Flags   uint32
	_       uint32
	PathRec [64]byte
}

// ConnParam is rdma_ucm_conn_param.
type ConnParam struct {
	QPNum              uint32
	QKey               uint32
	PrivateData        [MaxPrivateData]byte
	PrivateDataLen     uint8
	SRQ                uint8
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        uint8
	RetryCount         uint8
	RNRRetryCount      uint8
	Valid              uint8
}

// Private returns the private data.
func (p *ConnParam) Private() []byte { return p.PrivateData[:p.PrivateDataLen] }

// UDParam is rdma_ucm_ud_param.
type UDParam struct {
	QPNum          uint32
	QKey           uint32
	AHAttr         uverbs.AHAttr
	PrivateData    [MaxPrivateData]byte
	PrivateDataLen uint8
	_              [7]uint8
}

// ECE is rdma_ucm_ece: enhanced connection establishment, which rxe does not support.
type ECE [8]byte

// Connect is rdma_ucm_connect.
type Connect struct {
	ConnParam ConnParam
	ID        uint32
	_         uint32
	ECE       ECE
}

// Listen is rdma_ucm_listen.
type Listen struct {
	ID      uint32
	Backlog uint32
}

// Accept is rdma_ucm_accept.
type Accept struct {
	UID       uint64
	ConnParam ConnParam
	ID        uint32
	_         uint32
	ECE       ECE
}

// Reject is rdma_ucm_reject.
type Reject struct {
	ID             uint32
	PrivateDataLen uint8
	Reason         uint8
	_              [2]uint8
	PrivateData    [MaxPrivateData]byte
}

// Disconnect is rdma_ucm_disconnect.
type Disconnect struct{ ID uint32 }

// InitQPAttr is rdma_ucm_init_qp_attr.
type InitQPAttr struct {
	_       uint64
	ID      uint32
	QPState uint32
}

// QPAttr is ib_uverbs_qp_attr.
type QPAttr struct {
	QPAttrMask      uint32
	QPState         uint32
	CurQPState      uint32
	PathMTU         uint32
	PathMigState    uint32
	QKey            uint32
	RQPSN           uint32
	SQPSN           uint32
	DestQPNum       uint32
	QPAccessFlags   uint32
	AHAttr          uverbs.AHAttr
	AltAHAttr       uverbs.AHAttr
	_               [5]uint32
	PKeyIndex       uint16
	_               [4]uint8
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	PortNum         uint8
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
	_               [7]uint8
}

// Notify is rdma_ucm_notify.
type Notify struct {
	ID    uint32
	Event uint32
}

// NotifyCommEst is IB_EVENT_COMM_EST, the only event of NOTIFY.
const NotifyCommEst = 4

// EventResp is rdma_ucm_event_resp. Its union holds a ConnParam or a UDParam.
type EventResp struct {
	UID    uint64
	ID     uint32
	Event  uint32
	Status uint32
	Param  [304]byte
	_      uint32
	ECE    ECE
}

// EventRespMin is the size of the response for programs older than ECE.
const EventRespMin = 20 + 304 + 4

// SetOption is rdma_ucm_set_option. OptVal points into the program's memory, so the value follows the structure in the
// message.
type SetOption struct {
	_       uint64
	ID      uint32
	Level   uint32
	OptName uint32
	OptLen  uint32
}

// MigrateID is rdma_ucm_migrate_id. Instead of FD, the message carries a descriptor of the connection of the old
// context.
type MigrateID struct {
	_  uint64
	ID uint32
	FD uint32
}
