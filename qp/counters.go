package qp

// Counters count the events of the queue pairs of a NIC. Names and meanings are those of Linux's hw_counters: rxe's in
// the first group, mlx5's in the second.
type Counters struct {
	DuplicateRequest    uint64 // requests that had been received before
	OutOfSeqRequest     uint64 // requests beyond the expected PSN
	RcvdRNRErr          uint64 // RNR NAKs received
	SendRNRErr          uint64 // RNR NAKs sent
	RcvdSeqErr          uint64 // PSN sequence NAKs received
	AckDeferred         uint64 // acknowledgements saved by coalescing
	RetryExceededErr    uint64
	RetryRNRExceededErr uint64
	CompleterRetry      uint64 // go-backs of the sender, for any reason
	SendErr             uint64 // send work requests completed in error
	RDMASends           uint64
	RDMARecvs           uint64

	RxWriteRequests          uint64
	RxReadRequests           uint64
	RxAtomicRequests         uint64
	OutOfBuffer              uint64 // SENDs without a receive work request
	OutOfSequence            uint64 // packets beyond the expected PSN, both directions
	PacketSeqErr             uint64 // PSN sequence NAKs received
	ImpliedNAKSeqErr         uint64 // READ responses or atomics skipped by a later acknowledgement
	LocalAckTimeoutErr       uint64
	RespLocalLengthError     uint64
	RespCQEError             uint64
	ReqCQEError              uint64
	ReqRemoteInvalidRequest  uint64
	ReqRemoteAccessErrors    uint64
	RespRemoteAccessErrors   uint64
	RespRemoteInvalidRequest uint64
	RespCQEFlushError        uint64
	ReqCQEFlushError         uint64

	// Distributions is optional; nil: none are recorded.
	Distributions *Distributions

	RetransmittedPackets uint64 // not in Linux: request packets sent more than once
	UCDroppedMessages    uint64 // not in Linux: UC messages broken by loss
	UDDropped            uint64 // not in Linux: datagrams without receive WQE or with bad Q_Key
}
