package qp

// Counters count what the queue pairs of a NIC do. Names and meanings are those
// of Linux's hw_counters: the first group rxe's, the second mlx5's.
type Counters struct {
	DuplicateRequest    uint64 // requests that had been received before
	OutOfSeqRequest     uint64 // requests beyond the expected PSN
	RcvdRNRErr          uint64 // RNR NAKs received
	SendRNRErr          uint64 // RNR NAKs sent
	RcvdSeqErr          uint64 // PSN sequence NAKs received
	AckDeferred         uint64 // acknowledgements saved by coalescing
	RetryExceededErr    uint64
	RetryRNRExceededErr uint64
	CompleterRetry      uint64 // go-backs of the sender, for whatever reason
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

	// Distributions are kept if there is a place for them; nil: nobody asks.
	Distributions *Distributions

	RetransmittedPackets uint64 // ours: request packets sent more than once
	UCDroppedMessages    uint64 // ours: UC messages broken by loss
	UDDropped            uint64 // ours: datagrams without receive WQE or with bad Q_Key
}
