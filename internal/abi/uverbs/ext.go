package uverbs

import "bytes"

// ExtVersion is the version of the extension commands.
const ExtVersion = 2

// Hello is the request of EXT_HELLO.
type Hello struct {
	Version uint32
}

// HelloResp is the response to EXT_HELLO; the memfd of the context's rings comes with it.
// Device and Profiles end with a zero byte if they are shorter than their field.
type HelloResp struct {
	Version  uint32
	Flags    uint32
	Device   [64]byte
	Profiles [192]byte
}

// DoorbellResp is the response to EXT_DOORBELL: where the doorbells are in the context's
// memfd. An eventfd comes with it.
type DoorbellResp struct {
	Offset uint64
	Size   uint32
	_      uint32
}

// Layout of the memory of EXT_DOORBELL.
const (
	DoorbellSleeping  = 0    // u32
	DoorbellSummary   = 64   // u64[4]
	DoorbellCQSummary = 96   // u64[4]
	DoorbellMap       = 4096 // u64[256]
	DoorbellCQMap     = 6144 // u64[256]
	DoorbellSize      = 8192
	// MaxQPHandle bounds the handles of queue pairs, and those of completion queues that
	// have doorbells.
	MaxQPHandle = 16384
)

// MapMemory is the request of EXT_MAP_MEMORY; a memfd comes with it.
type MapMemory struct {
	Base   uint64
	Length uint64
	Offset uint64
	Flags  uint32
	_      uint32
}

// MapMemoryResp is the response to EXT_MAP_MEMORY.
type MapMemoryResp struct {
	Handle uint32
	_      uint32
}

// UnmapMemory is the request of EXT_UNMAP_MEMORY.
type UnmapMemory struct {
	Handle uint32
	_      uint32
}

// PassMemory is the request of EXT_PASS_MEMORY. With it come descriptors of the files mem
// and maps of the process whose memory regions are in from now on; or none do, and Handle
// names one that has been passed before.
type PassMemory struct {
	Handle uint32
	_      uint32
}

// PassMemoryResp is the response to EXT_PASS_MEMORY.
type PassMemoryResp struct {
	Handle uint32
	_      uint32
}

// SetProfile is the request of EXT_SET_PROFILE.
type SetProfile struct {
	Profile [64]byte
}

// QueryGID is the request of EXT_QUERY_GID.
type QueryGID struct {
	Port  uint32
	Index uint32
}

// GIDTypeRoCEv2 is the only type of GID that there is.
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

// QueryStatsResp begins the response to EXT_QUERY_STATS; Count structures Stat
// follow. More says how many there are beyond these.
type QueryStatsResp struct {
	Count uint32
	More  uint32
}

// Stat is one counter.
type Stat struct {
	Name  [56]byte
	Value uint64
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
