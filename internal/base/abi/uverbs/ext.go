package uverbs

import "bytes"

// ExtVersion is the version of the extension commands.
const ExtVersion = 2

// Hello is the request of EXT_HELLO.
type Hello struct {
	Version uint32
}

// HelloResp is the response to EXT_HELLO; it carries the memfd of the context's rings.
// Device and Profiles end with a zero byte if they are shorter than their field.
type HelloResp struct {
	Version  uint32
	Flags    uint32
	Device   [64]byte
	Profiles [192]byte
}

// DoorbellResp is the response to EXT_DOORBELL: the location of the doorbells in the context's memfd. It carries an
// eventfd.
type DoorbellResp struct {
	Offset uint64
	Size   uint32
	_      uint32
}

// Layout of the memory of EXT_DOORBELL.
const (
	DoorbellSleeping  = 0    // u32
	DoorbellCore      = 4    // u32: number of the client's core plus 1, 0 if unknown, or CoreAsked
	DoorbellSummary   = 64   // u64[4]
	DoorbellCQSummary = 96   // u64[4]
	DoorbellMap       = 4096 // u64[256]
	DoorbellCQMap     = 6144 // u64[256]
	// A command that the client stores here instead of sending it, and its response.
	DirectState   = 8192 // u32, one of the values below
	DirectRet     = 8196 // s32, 0 or -errno
	DirectLen     = 8200 // u32, bytes of the command
	DirectAnswer  = 8204 // u32, bytes of the answer
	DirectCommand = 8256
	DirectBody    = 8512
	DirectRoom    = 256 // bytes for the command, and for the answer
	DoorbellSize  = 12288
	// MaxQPHandle bounds the handles of queue pairs, and the handles of completion queues with doorbells.
	MaxQPHandle = 16384
)

// CoreAsked is the value of the word at DoorbellCore with which the daemon asks for the core.
const CoreAsked = 1<<32 - 1

// Values of the word at DirectState.
const (
	DirectIdle     = 0 // the client's turn
	DirectAsked    = 1 // the daemon's turn
	DirectAwaited  = 2 // likewise; the client sleeps on the word (futex(2))
	DirectAnswered = 3
)

// MapMemory is the request of EXT_MAP_MEMORY. It carries a memfd. With MapKnown it refers to the last memfd instead, by
// the number Memory in the earlier answer.
type MapMemory struct {
	Base   uint64
	Length uint64
	Offset uint64
	Flags  uint32
	Memory uint32
}

// MapKnown is a flag of MapMemory.
const MapKnown = 1

// MapMemoryResp is the response to EXT_MAP_MEMORY.
type MapMemoryResp struct {
	Handle uint32
	Memory uint32
}

// MRSource may follow a RegMR or ReregMR as the provider's part: the location of the memory. Without it, the memory is
// in any mapping that contains all of it, or else in SourceCopied.
type MRSource struct {
	Kind   uint32
	Handle uint32 // handle of a mapping
}

// Kinds of MRSource.
const (
	SourceAny    = 0
	SourceMapped = 1 // the mapping with that handle
	SourceCopied = 2 // the process whose memory the client has passed
	// SourceMap is for RegMR only: a MapMemory with MapKnown follows, and the daemon executes it first. Its response
	// follows RegMRResp. The daemon drops the mapping of Handle, unless it is NoHandle.
	SourceMap = 3
	// SourceFile is memory of a file whose descriptor the command carries: of tmpfs, hugetlbfs or a dma-buf. A FileSource
	// follows. Handle is 0.
	SourceFile = 4
)

// FileSource is the place of a region in a file. The daemon compares the file's numbers with the descriptor, whose
// number a program may reuse at any time.
type FileSource struct {
	Offset       uint64
	Inode        uint64
	Major, Minor uint32 // of the file's device
}

// NoHandle is an invalid handle.
const NoHandle = 1<<32 - 1

// UnmapMemory is the request of EXT_UNMAP_MEMORY.
type UnmapMemory struct {
	Handle uint32
	_      uint32
}

// PassMemory is the request of EXT_PASS_MEMORY. It carries descriptors of the files mem and maps of the process that
// holds the memory regions from now on. Without descriptors, Handle selects a process passed before.
type PassMemory struct {
	Handle uint32
	_      uint32
}

// PassMemoryResp is the response to EXT_PASS_MEMORY.
type PassMemoryResp struct {
	Handle uint32
	_      uint32
}

// Report is the request of EXT_REPORT. It carries a SOCK_SEQPACKET socket, to which the daemon writes the traffic of
// the context as JSON (api.Report) when the connection ends. PID and Program identify the process to its reader.
type Report struct {
	PID     uint32
	_       uint32
	Program [64]byte
}

// MaxModifyQPs is the maximum number of ModifyQP structures in a request of EXT_MODIFY_QPS.
const MaxModifyQPs = 8

// SetProfile is the request of EXT_SET_PROFILE.
type SetProfile struct {
	Profile [64]byte
}

// QueryGID is the request of EXT_QUERY_GID.
type QueryGID struct {
	Port  uint32
	Index uint32
}

// GIDTypeRoCEv2 is the only GID type.
const GIDTypeRoCEv2 = 2

// QueryGIDResp is the response to EXT_QUERY_GID.
type QueryGIDResp struct {
	GID  [16]byte
	Type uint32
	_    uint32
}

// QueryStats is the request of EXT_QUERY_STATS.
type QueryStats struct {
	First uint32
}

// QueryStatsResp begins the response to EXT_QUERY_STATS; Count structures Stat follow. More is the number of further
// counters.
type QueryStatsResp struct {
	Count uint32
	More  uint32
}

// Stat is one counter.
type Stat struct {
	Name  [56]byte
	Value uint64
}

// MRCAttr are the attributes of a queue pair of MRC, as mrc_qp_attr of OCP's API.
type MRCAttr struct {
	EVProfile   uint64
	CCProfile   uint64
	Cap         uint32
	MaxWIMM     uint16
	MaxWIMMDest uint16
	MPR         uint8
	MPRDest     uint8
	Timeout     uint8
	Linear      uint8
	Exponential uint8
	_           [3]uint8
}

// ModifyMRC is the request of EXT_MODIFY_MRC. AttrMask has the bits of mrc_qp_attr_mask.
type ModifyMRC struct {
	Response uint64
	QPHandle uint32
	AttrMask uint32
	Attr     MRCAttr
}

// QueryMRC is the request of EXT_QUERY_MRC, which MRCAttr answers.
type QueryMRC struct {
	Response uint64
	QPHandle uint32
	_        uint32
}

// MRCDevice is the request of EXT_MRC_DEVICE.
type MRCDevice struct {
	Response uint64
}

// MRCDeviceResp is the response to EXT_MRC_DEVICE, as mrc_device_attr.
type MRCDeviceResp struct {
	Versions    uint32 // bitmap of wire protocols
	MaxWIMM     uint16
	MaxWIMMDest uint16
	MaxMPR      uint8
	Resolution  uint8 // of MPRs
	_           [2]uint8
	MaxHints    uint32
	Cap         uint32
}

// Text returns the string in a fixed field: up to the first zero byte.
func Text(field []byte) string {
	if i := bytes.IndexByte(field, 0); i >= 0 {
		field = field[:i]
	}
	return string(field)
}

// SetText puts s into a fixed field and reports whether it fits.
func SetText(field []byte, s string) bool {
	clear(field[copy(field, s):])
	return len(s) <= len(field)
}
