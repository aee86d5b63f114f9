package qp

// Host is what a queue pair calls out to: its NIC. There is one Host per queue
// pair, so it knows the protection domain, the queues and the number. All calls
// are synchronous and made only from within an input or PollTransmit.
//
// Keys, addresses and lengths come from a client or from the wire; Host checks
// them against the protection domain, bounds and access rights every time.
type Host interface {
	// NextSend copies the next posted send work request into w, all of it, and reports
	// whether there was one. Malformed elements come out as they are.
	NextSend(w *SendWQE) bool
	// HasSend reports whether NextSend would return one.
	HasSend() bool
	// SendRetired tells that the n oldest requests taken have been completed:
	// their places in the ring may be posted to again.
	SendRetired(n int)
	// NextRecv takes the next receive work request of the RQ or SRQ.
	NextRecv(w *RecvWQE) bool

	// CompleteSend and CompleteRecv put a completion into the send or receive CQ.
	CompleteSend(c CQE)
	CompleteRecv(c CQE)
	// Notify reports an asynchronous event of this queue pair.
	Notify(e Event)

	// ReadLocal returns a view of n bytes at va under lkey, to be sent. It stays
	// valid until Flushed. n > 0. ahead more bytes behind them belong to the same
	// message and are what is asked for next, unless sending is interrupted: memory
	// that is far away is read in larger pieces.
	ReadLocal(lkey uint32, va uint64, n int, ahead uint32) ([]byte, bool)
	// WriteLocal places p at va under lkey, which needs AccessLocalWrite. What
	// has been written may become visible as late as with Sync.
	WriteLocal(lkey uint32, va uint64, p []byte) bool
	// Sync makes visible what has been written. It is called at the end of a
	// message, before anybody is told; false means that some of it was lost.
	Sync() bool
	// CheckLocal reports whether n bytes at va may be accessed under lkey.
	CheckLocal(lkey uint32, va uint64, n uint32, need Access) bool

	// CheckRemote reports whether all n bytes at va may be accessed under rkey; for FLUSH none
	// stand for all of the region.
	CheckRemote(rkey uint32, va uint64, n uint32, need Access) bool
	// ReadRemote returns a view like ReadLocal; needs AccessRemoteRead.
	ReadRemote(rkey uint32, va uint64, n int, ahead uint32) ([]byte, bool)
	// WriteRemote places p like WriteLocal; needs AccessRemoteWrite.
	WriteRemote(rkey uint32, va uint64, p []byte) bool
	// CompareSwap and FetchAdd act on the 8 bytes at va, which is aligned, in
	// host byte order and return the original value; need AccessRemoteAtomic.
	CompareSwap(rkey uint32, va uint64, compare, swap uint64) (orig uint64, ok bool)
	FetchAdd(rkey uint32, va uint64, add uint64) (orig uint64, ok bool)
	// Invalidate ends the use of an rkey (SEND_WITH_INV, LOCAL_INV).
	Invalidate(rkey uint32) bool
	// BindMW binds a type 2 memory window.
	BindMW(b BindWR) bool

	// Later reports whether the call that has just failed, of those that read memory, atomic
	// operations and Sync, may succeed later: the memory is not there yet, or not all that has
	// been written. Nothing has changed then, and QP.Resume is called when it is. An atomic
	// operation comes again as it was.
	Later() bool

	// Scratch returns n bytes that stay valid until Flushed, to gather a payload
	// that spans several SGEs.
	Scratch(n int) []byte
}
