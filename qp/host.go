package qp

// Host is the NIC as a queue pair sees it. There is one Host per queue pair, so it knows the protection domain, the
// queues and the number. All calls are synchronous, and made only during an input or PollTransmit.
//
// Keys, addresses and lengths come from a client or from the wire. Host checks them against the protection domain,
// bounds and access rights in every call.
type Host interface {
	// NextSend copies all fields of the next posted send work request into w, and reports whether there was one. It does
	// not check them.
	NextSend(w *SendWQE) bool
	// HasSend reports whether NextSend would return one.
	HasSend() bool
	// SendRetired releases the ring elements of the n oldest requests taken, for new requests.
	SendRetired(n int)
	// NextRecv takes the next receive work request of the RQ or SRQ.
	NextRecv(w *RecvWQE) bool

	// CompleteSend and CompleteRecv put a completion into the send or receive CQ.
	CompleteSend(c CQE)
	CompleteRecv(c CQE)
	// Notify reports an asynchronous event of this queue pair.
	Notify(e Event)

	// ReadLocal returns a view of n > 0 bytes at va under lkey, to be sent. It stays valid until Flushed. The next ahead
	// bytes behind them belong to the same message and are read next, unless sending is interrupted: the host may read
	// remote memory in larger pieces.
	ReadLocal(lkey uint32, va uint64, n int, ahead uint32) ([]byte, bool)
	// WriteLocal places p at va under lkey, which needs AccessLocalWrite. The data may become visible as late as Sync. The
	// ahead bytes behind p belong to the same message, and later packets fill them: the host may place their data early.
	WriteLocal(lkey uint32, va uint64, p []byte, ahead uint32) bool
	// WriteRecv is WriteLocal for a receive work request. The memory of an SRQ's receives belongs to the SRQ's protection
	// domain, which may differ from that of the queue pair.
	WriteRecv(lkey uint32, va uint64, p []byte, ahead uint32) bool
	// Sync makes all written data visible. It is called at the end of a message, before its completion or
	// acknowledgement. It returns false if some data was lost.
	Sync() bool
	// CheckLocal reports whether n bytes at va may be accessed under lkey.
	CheckLocal(lkey uint32, va uint64, n uint32, need Access) bool

	// CheckRemote reports whether all n bytes at va may be accessed under rkey. For FLUSH, n == 0 means the whole
	// region.
	CheckRemote(rkey uint32, va uint64, n uint32, need Access) bool
	// ReadRemote returns a view like ReadLocal; needs AccessRemoteRead.
	ReadRemote(rkey uint32, va uint64, n int, ahead uint32) ([]byte, bool)
	// WriteRemote places p like WriteLocal; needs AccessRemoteWrite.
	WriteRemote(rkey uint32, va uint64, p []byte, ahead uint32) bool
	// CompareSwap and FetchAdd modify the 8 aligned bytes at va, in host byte order, and return the original value; need
	// AccessRemoteAtomic.
	CompareSwap(rkey uint32, va uint64, compare, swap uint64) (orig uint64, ok bool)
	FetchAdd(rkey uint32, va uint64, add uint64) (orig uint64, ok bool)
	// Invalidate invalidates an rkey (SEND_WITH_INV, LOCAL_INV).
	Invalidate(rkey uint32) bool
	// BindMW binds a type 2 memory window.
	BindMW(b BindWR) bool

	// Later reports whether the call that has just failed may succeed later. Call it once, right after the failed call:
	//
	//   - After a read of memory, an atomic operation or Sync, true means that the memory is not available yet. The call has
	//     changed nothing, QP.Resume follows when the memory is available, and the queue pair repeats the call.
	//   - After a write or Fetch, true means that the payload of the current packet is not available. The queue pair keeps
	//     its state and returns Later.
	Later() bool

	// Fetch returns the payload p of the current packet in memory that only the host changes, until the next packet.
	Fetch(p []byte) ([]byte, bool)

	// Scratch returns n bytes that stay valid until Flushed, to gather a payload that spans several SGEs.
	Scratch(n int) []byte
}
