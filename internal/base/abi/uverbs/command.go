// Package uverbs mirrors the Linux uverbs write() ABI (rdma/ib_user_verbs.h): command numbers and the structures of
// commands and responses. It also defines the provider parts of rxe (rdma/rdma_user_rxe.h), the extension commands of
// roced, and the framing over a socket. docs/reference/control-protocol.md describes it.
//
// A structure here has the fields of its C counterpart in the same order and with explicit padding. So
// encoding/binary's packed little-endian form is its layout. Fields that the ABI reserves are blank.
package uverbs

// ABIVersion is IB_USER_VERBS_ABI_VERSION.
const ABIVersion = 6

// Commands (enum ib_uverbs_write_cmds). Some exist as extended commands too, under
// the same number with FlagExtended.
const (
	CmdGetContext        = 0
	CmdQueryDevice       = 1
	CmdQueryPort         = 2
	CmdAllocPD           = 3
	CmdDeallocPD         = 4
	CmdCreateAH          = 5
	CmdDestroyAH         = 8
	CmdRegMR             = 9
	CmdReregMR           = 11
	CmdDeregMR           = 13
	CmdAllocMW           = 14
	CmdDeallocMW         = 16
	CmdCreateCompChannel = 17
	CmdCreateCQ          = 18
	CmdResizeCQ          = 19
	CmdDestroyCQ         = 20
	CmdReqNotifyCQ       = 23
	CmdCreateQP          = 24
	CmdQueryQP           = 25
	CmdModifyQP          = 26
	CmdDestroyQP         = 27
	CmdPostSend          = 28
	CmdPostRecv          = 29
	CmdAttachMcast       = 30
	CmdDetachMcast       = 31
	CmdCreateSRQ         = 32
	CmdModifySRQ         = 33
	CmdQuerySRQ          = 34
	CmdDestroySRQ        = 35
	CmdPostSRQRecv       = 36
	CmdCreateXSRQ        = 39
)

// Extension commands of this daemon.
const (
	ExtHello        = 0xc0
	ExtDoorbell     = 0xc1
	ExtMapMemory    = 0xc2
	ExtUnmapMemory  = 0xc3
	ExtSetProfile   = 0xc4
	ExtQueryGID     = 0xc5
	ExtQueryStats   = 0xc6
	ExtRefreshSysfs = 0xc7
	ExtPassMemory   = 0xc8
	ExtModifyQPs    = 0xc9
	ExtReport       = 0xca
	ExtModifyMRC    = 0xcb
	ExtQueryMRC     = 0xcc
	ExtMRCDevice    = 0xcd
)

// FlagExtended in a command number means that an ExHdr follows the Hdr.
const FlagExtended = 0x80000000

// CommandMask covers the number in a command.
const CommandMask = 0xff

// Hdr begins every command (ib_uverbs_cmd_hdr). A word is 4 bytes, in an extended command 8 bytes. InWords counts both
// headers unless the command is extended.
type Hdr struct {
	Command  uint32
	InWords  uint16
	OutWords uint16
}

// ExHdr is the second header of an extended command (ib_uverbs_ex_cmd_hdr). Its words have 8 bytes.
type ExHdr struct {
	Response         uint64
	ProviderInWords  uint16
	ProviderOutWords uint16
	CmdHdrReserved   uint32
}

// Sizes of the headers.
const (
	HdrLen   = 8
	ExHdrLen = 16
)

// AsyncEvent is a message of the async channel (ib_uverbs_async_event_desc).
type AsyncEvent struct {
	Element   uint64
	EventType uint32
	_         uint32
}

// CompEvent is a message of a completion channel (ib_uverbs_comp_event_desc): the user_handle of the CQ.
type CompEvent struct {
	CQHandle uint64
}

// Sizes of the events.
const (
	AsyncEventLen = 16
	CompEventLen  = 8
)
