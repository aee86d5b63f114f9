package uverbs

// MMInfo is the location of a ring for mmap (struct mminfo of rdma_user_rxe.h).
type MMInfo struct {
	Offset uint64
	Size   uint32
	_      uint32
}

// RxeCreateAHResp is the provider's part of the response to CREATE_AH. An AHNum
// of zero would make stock providers resolve the address themselves.
type RxeCreateAHResp struct {
	AHNum uint32
	_     uint32
}

// RxeCreateCQResp is the provider's part of the response to CREATE_CQ, and to
// RESIZE_CQ.
type RxeCreateCQResp struct {
	MI MMInfo
}

// RxeCreateQPResp is the provider's part of the response to CREATE_QP. A queue
// pair with an SRQ has an RQ of size zero.
type RxeCreateQPResp struct {
	RQ MMInfo
	SQ MMInfo
}

// RxeCreateSRQResp is the provider's part of the response to CREATE_SRQ and
// CREATE_XSRQ.
type RxeCreateSRQResp struct {
	MI     MMInfo
	SRQNum uint32
	_      uint32
}

// RxeModifySRQ is the provider's part of MODIFY_SRQ: the address for the MMInfo of a resized ring, see ModifySRQResp.
type RxeModifySRQ struct {
	MmapInfoAddr uint64
}
