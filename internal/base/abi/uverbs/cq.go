package uverbs

// CreateCompChannel is ib_uverbs_create_comp_channel.
type CreateCompChannel struct {
	Response uint64
}

// CreateCompChannelResp is ib_uverbs_create_comp_channel_resp. FD is the daemon's
// number of the channel.
type CreateCompChannelResp struct {
	FD uint32
}

// CreateCQ is ib_uverbs_create_cq. CompChannel is -1 if there is none.
type CreateCQ struct {
	Response    uint64
	UserHandle  uint64
	CQE         uint32
	CompVector  uint32
	CompChannel int32
	Reserved    uint32 // the preload library puts Flags of ExCreateCQ here
}

// CreateCQResp is ib_uverbs_create_cq_resp.
type CreateCQResp struct {
	CQHandle uint32
	CQE      uint32
}

// Flags of ExCreateCQ (enum ib_uverbs_ex_create_cq_flags).
const (
	CQTimestampCompletion = 1 << 0
	CQIgnoreOverrun       = 1 << 1
)

// ExCreateCQ is ib_uverbs_ex_create_cq.
type ExCreateCQ struct {
	UserHandle  uint64
	CQE         uint32
	CompVector  uint32
	CompChannel int32
	CompMask    uint32
	Flags       uint32
	_           uint32
}

// ExCreateCQResp is ib_uverbs_ex_create_cq_resp.
type ExCreateCQResp struct {
	Base           CreateCQResp
	CompMask       uint32
	ResponseLength uint32
}

// ResizeCQ is ib_uverbs_resize_cq.
type ResizeCQ struct {
	Response uint64
	CQHandle uint32
	CQE      uint32
}

// ResizeCQResp is ib_uverbs_resize_cq_resp.
type ResizeCQResp struct {
	CQE uint32
	_   uint32
}

// ReqNotifyCQ is ib_uverbs_req_notify_cq.
type ReqNotifyCQ struct {
	CQHandle      uint32
	SolicitedOnly uint32
}

// DestroyCQ is ib_uverbs_destroy_cq.
type DestroyCQ struct {
	Response uint64
	CQHandle uint32
	_        uint32
}

// DestroyCQResp is ib_uverbs_destroy_cq_resp.
type DestroyCQResp struct {
	CompEventsReported  uint32
	AsyncEventsReported uint32
}

// CreateSRQ is ib_uverbs_create_srq.
type CreateSRQ struct {
	Response   uint64
	UserHandle uint64
	PDHandle   uint32
	MaxWR      uint32
	MaxSGE     uint32
	SRQLimit   uint32
}

// SRQTypeBasic is the only SRQ type of this daemon (enum ib_srq_type).
const SRQTypeBasic = 0

// CreateXSRQ is ib_uverbs_create_xsrq.
type CreateXSRQ struct {
	Response   uint64
	UserHandle uint64
	SRQType    uint32
	PDHandle   uint32
	MaxWR      uint32
	MaxSGE     uint32
	SRQLimit   uint32
	_          [3]uint32
}

// CreateSRQResp is ib_uverbs_create_srq_resp.
type CreateSRQResp struct {
	SRQHandle uint32
	MaxWR     uint32
	MaxSGE    uint32
	SRQN      uint32
}

// Attributes of ModifySRQ (enum ib_srq_attr_mask).
const (
	SRQMaxWR = 1 << 0
	SRQLimit = 1 << 1
)

// ModifySRQ is ib_uverbs_modify_srq.
type ModifySRQ struct {
	SRQHandle uint32
	AttrMask  uint32
	MaxWR     uint32
	SRQLimit  uint32
}

// ModifySRQResp is the location of the ring of a resized queue. Linux has no response: rxe writes an MMInfo to the
// address in the provider's part of the command (rxe_modify_srq_cmd). Here the client does that.
type ModifySRQResp struct {
	MI MMInfo
}

// QuerySRQ is ib_uverbs_query_srq.
type QuerySRQ struct {
	Response  uint64
	SRQHandle uint32
	_         uint32
}

// QuerySRQResp is ib_uverbs_query_srq_resp.
type QuerySRQResp struct {
	MaxWR    uint32
	MaxSGE   uint32
	SRQLimit uint32
	_        uint32
}

// DestroySRQ is ib_uverbs_destroy_srq.
type DestroySRQ struct {
	Response  uint64
	SRQHandle uint32
	_         uint32
}

// DestroySRQResp is ib_uverbs_destroy_srq_resp.
type DestroySRQResp struct {
	EventsReported uint32
}
