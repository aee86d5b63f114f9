package uverbs

// CreateQP is ib_uverbs_create_qp.
type CreateQP struct {
	Response      uint64
	UserHandle    uint64
	PDHandle      uint32
	SendCQHandle  uint32
	RecvCQHandle  uint32
	SRQHandle     uint32
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
	SQSigAll      uint8
	QPType        uint8
	IsSRQ         uint8
	Reserved      uint8 // reserved in Linux; the preload library puts CreateFlags of ExCreateQP here
}

// QPBlockSelfMulticast is a bit of ExCreateQP.CreateFlags (enum ib_uverbs_qp_create_flags).
const QPBlockSelfMulticast = 1 << 1

// ExCreateQP is ib_uverbs_ex_create_qp.
type ExCreateQP struct {
	UserHandle      uint64
	PDHandle        uint32
	SendCQHandle    uint32
	RecvCQHandle    uint32
	SRQHandle       uint32
	MaxSendWR       uint32
	MaxRecvWR       uint32
	MaxSendSGE      uint32
	MaxRecvSGE      uint32
	MaxInlineData   uint32
	SQSigAll        uint8
	QPType          uint8
	IsSRQ           uint8
	_               uint8
	CompMask        uint32
	CreateFlags     uint32
	RWQIndTblHandle uint32
	SourceQPN       uint32
}

// ExCreateQPMin is the minimum length of an ExCreateQP: up to create_flags.
const ExCreateQPMin = 56

// CreateQPResp is ib_uverbs_create_qp_resp.
type CreateQPResp struct {
	QPHandle      uint32
	QPN           uint32
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
	_             uint32
}

// ExCreateQPResp is ib_uverbs_ex_create_qp_resp.
type ExCreateQPResp struct {
	Base           CreateQPResp
	CompMask       uint32
	ResponseLength uint32
}

// QPDest is ib_uverbs_qp_dest.
type QPDest struct {
	DGID         [16]uint8
	FlowLabel    uint32
	DLID         uint16
	_            uint16
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	_            [2]uint8
	IsGlobal     uint8
	PortNum      uint8
}

// QueryQP is ib_uverbs_query_qp.
type QueryQP struct {
	Response uint64
	QPHandle uint32
	AttrMask uint32
}

// QueryQPResp is ib_uverbs_query_qp_resp.
type QueryQPResp struct {
	Dest            QPDest
	AltDest         QPDest
	MaxSendWR       uint32
	MaxRecvWR       uint32
	MaxSendSGE      uint32
	MaxRecvSGE      uint32
	MaxInlineData   uint32
	QKey            uint32
	RQPSN           uint32
	SQPSN           uint32
	DestQPNum       uint32
	QPAccessFlags   uint32
	PKeyIndex       uint16
	AltPKeyIndex    uint16
	QPState         uint8
	CurQPState      uint8
	PathMTU         uint8
	_               [2]uint8
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	PortNum         uint8
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
	_               [2]uint8
	SQSigAll        uint8
	_               [5]uint8
}

// ModifyQP is ib_uverbs_modify_qp.
type ModifyQP struct {
	Dest             QPDest
	AltDest          QPDest
	QPHandle         uint32
	AttrMask         uint32
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPNum        uint32
	QPAccessFlags    uint32
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	QPState          uint8
	CurQPState       uint8
	PathMTU          uint8
	PathMigState     uint8
	EnSQDAsyncNotify uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	PortNum          uint8
	Timeout          uint8
	RetryCnt         uint8
	RNRRetry         uint8
	_                [4]uint8
}

// ExModifyQP is ib_uverbs_ex_modify_qp.
type ExModifyQP struct {
	Base      ModifyQP
	RateLimit uint32
	_         uint32
}

// ExModifyQPResp is ib_uverbs_ex_modify_qp_resp.
type ExModifyQPResp struct {
	CompMask       uint32
	ResponseLength uint32
}

// DestroyQP is ib_uverbs_destroy_qp.
type DestroyQP struct {
	Response uint64
	QPHandle uint32
	_        uint32
}

// DestroyQPResp is ib_uverbs_destroy_qp_resp.
type DestroyQPResp struct {
	EventsReported uint32
}

// PostSend is ib_uverbs_post_send, ib_uverbs_post_recv or, with the handle of an SRQ, ib_uverbs_post_srq_recv. Work
// requests are in the rings; the daemon rejects a WRCount other than zero.
type PostSend struct {
	Response uint64
	QPHandle uint32
	WRCount  uint32
	SGECount uint32
	WQESize  uint32
}

// PostSendResp is ib_uverbs_post_send_resp, and the corresponding structure for receives.
type PostSendResp struct {
	BadWR uint32
}
