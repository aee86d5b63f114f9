package rocev2

import "roced.io/roced/qp"

// host is the queue pair as its transport sees it. The methods run for every
// packet; keys, addresses and lengths in them come from a client or a peer and
// are checked every time.
type host QueuePair

var _ qp.Host = (*host)(nil)

// local returns the memory region of lkey and where n bytes at va are in it. An SRQ may be
// of another protection domain than the queue pair. Hardware looks for the regions of its
// receives in the SRQ's domain (IBTA vol.1 10.2.9), rxe in the queue pair's; both belong to
// one client, and either is accepted.
func (h *host) local(lkey uint32, va, n uint64, need qp.Access) (r *region, off uint64) {
	r = h.nic.obj.keys.lookup(lkey)
	if r == nil || r.kind != kindMR || r.access&need != need {
		return nil, 0 // IBTA vol.1 10.6.3; a window has no L_Key
	}
	if r.pd != h.pd && (h.srq == nil || r.pd != h.srq.pd || need&qp.AccessLocalWrite == 0) {
		return nil, 0
	}
	off, ok := r.locate(va, n)
	if !ok {
		return nil, 0
	}
	return r, off
}

// remote returns the region or bound window of rkey and where n bytes at va are
// in it (IBTA vol.1 9.7.4.1, 10.6.3; for windows 10.6.7).
func (h *host) remote(rkey uint32, va, n uint64, need qp.Access) (r *region, off uint64) {
	r = h.nic.obj.keys.lookup(rkey)
	if r == nil || r.pd != h.pd || r.access&need != need ||
		r.kind == kindMW2 && r.owner != (*QueuePair)(h) {
		return nil, 0
	}
	off, ok := r.locate(va, n)
	if !ok {
		return nil, 0
	}
	return r, off
}

func (h *host) NextSend(w *qp.SendWQE) bool {
	h.defers.taken(false)
	return !h.defers.holding() && h.sq.Next(w)
}

func (h *host) HasSend() bool { return !h.defers.holding() && h.sq.Pending() }

func (h *host) SendRetired(n int) { h.sq.Retire(n) }

func (h *host) NextRecv(w *qp.RecvWQE) bool {
	if h.defers.holding() {
		return false
	}
	if h.srq != nil {
		return h.srq.next(w)
	}
	return h.rq.Next(w)
}

func (h *host) CompleteSend(c qp.CQE) {
	if !h.defers.hold(&c, false) {
		h.sendCQ.push(c)
	}
}

func (h *host) CompleteRecv(c qp.CQE) {
	if !h.defers.hold(&c, true) && h.recvCQ.push(c) {
		h.core.Woken()
	}
}

func (h *host) Notify(e qp.Event) { h.nic.cfg.Events.QPEvent((*QueuePair)(h), e) }

func (h *host) ReadLocal(lkey uint32, va uint64, n int, ahead uint32) ([]byte, bool) {
	r, off := h.local(lkey, va, uint64(n), 0)
	if r == nil || n <= 0 {
		return nil, false
	}
	return h.view(r, off, n, ahead, false)
}

func (h *host) WriteLocal(lkey uint32, va uint64, p []byte) bool {
	if len(p) == 0 {
		return true
	}
	r, off := h.local(lkey, va, uint64(len(p)), qp.AccessLocalWrite)
	return r != nil && h.write(r, off, p)
}

// CheckLocal permits an empty range whatever the key is, as rxe does: elements of
// length zero are not looked at.
func (h *host) CheckLocal(lkey uint32, va uint64, n uint32, need qp.Access) bool {
	if n == 0 {
		return true
	}
	r, _ := h.local(lkey, va, uint64(n), need)
	return r != nil
}

// CheckRemote permits an empty range whatever the key is (IBTA vol.1 C9-88), but for FLUSH,
// to which it stands for all of the region.
func (h *host) CheckRemote(rkey uint32, va uint64, n uint32, need qp.Access) bool {
	if n == 0 && need&accessFlush != 0 {
		r := h.nic.obj.keys.lookup(rkey)
		return r != nil && r.pd == h.pd && r.access&need == need
	}
	if n == 0 {
		return true
	}
	if need == qp.AccessRemoteRead {
		h.defers.taken(true)
	}
	r, _ := h.remote(rkey, va, uint64(n), need)
	return r != nil
}

func (h *host) ReadRemote(rkey uint32, va uint64, n int, ahead uint32) ([]byte, bool) {
	r, off := h.remote(rkey, va, uint64(n), qp.AccessRemoteRead)
	if r == nil || n <= 0 {
		return nil, false
	}
	return h.view(r, off, n, ahead, true)
}

func (h *host) WriteRemote(rkey uint32, va uint64, p []byte) bool {
	if len(p) == 0 {
		return true
	}
	r, off := h.remote(rkey, va, uint64(len(p)), qp.AccessRemoteWrite)
	return r != nil && h.write(r, off, p)
}

// atomic finds the operand of an atomic operation, 8 bytes at an address that is
// a multiple of 8 (IBTA vol.1 9.4.5).
func (h *host) atomic(rkey uint32, va uint64) (r *region, off uint64) {
	if va&7 != 0 {
		return nil, 0
	}
	return h.remote(rkey, va, 8, qp.AccessRemoteAtomic)
}

func (h *host) CompareSwap(rkey uint32, va uint64, compare, swap uint64) (orig uint64, ok bool) {
	r, off := h.atomic(rkey, va)
	if r == nil {
		return 0, false
	}
	if r.deferred != nil {
		return h.deferrals().operate(r, MemoryAccess{Kind: AccessCompareSwap, Off: off, Operands: [2]uint64{compare, swap}})
	}
	h.nic.flushRun()
	return r.mem.CompareSwap(off, compare, swap)
}

func (h *host) FetchAdd(rkey uint32, va uint64, add uint64) (orig uint64, ok bool) {
	r, off := h.atomic(rkey, va)
	if r == nil {
		return 0, false
	}
	if r.deferred != nil {
		return h.deferrals().operate(r, MemoryAccess{Kind: AccessFetchAdd, Off: off, Operands: [2]uint64{add}})
	}
	h.nic.flushRun()
	return r.mem.FetchAdd(off, add)
}

func (h *host) Invalidate(rkey uint32) bool { return h.nic.invalidate((*QueuePair)(h), rkey) }

func (h *host) BindMW(b qp.BindWR) bool { return h.nic.bind((*QueuePair)(h), &b) }

func (h *host) Scratch(n int) []byte { return h.nic.scratch(n) }
