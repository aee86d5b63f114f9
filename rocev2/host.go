package rocev2

import (
	"roced.io/roced/qp"
	"roced.io/roced/rocev2/memory"
)

// host is the queue pair as its transport sees it. The methods run for every packet. Keys, addresses and lengths come
// from a client or a peer; package memory checks them every time.
type host QueuePair

var _ qp.Host = (*host)(nil)

// remote returns the region or window of rkey and the offset of n bytes at va in it.
func (h *host) remote(rkey uint32, va, n uint64, need qp.Access) (*memory.Region, uint64) {
	return h.nic.mem.Remote(h.pd, &h.windows, rkey, va, n, need)
}

// Resolved implements stack.Waiter.
func (h *host) Resolved() { h.nic.sch.activate((*QueuePair)(h)) }

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

// failed records a completion in error, the reason why the queue pair breaks.
func (h *host) failed(s qp.Status) {
	if s == qp.StatusSuccess || s == qp.StatusWRFlushErr {
		return
	}
	h.failure = s
	if f := h.nic.cfg.Failed; f != nil {
		f((*QueuePair)(h), s)
	}
}

func (h *host) CompleteSend(c qp.CQE) {
	h.failed(c.Status)
	if !h.defers.hold(&c, false) {
		h.sendCQ.push(c)
	}
}

func (h *host) CompleteRecv(c qp.CQE) {
	h.failed(c.Status)
	if !h.defers.hold(&c, true) && h.recvCQ.push(c) {
		h.core.Woken()
	}
}

func (h *host) Notify(e qp.Event) { h.nic.cfg.Events.QPEvent((*QueuePair)(h), e) }

func (h *host) ReadLocal(lkey uint32, va uint64, n int, ahead uint32) ([]byte, bool) {
	r, off := h.nic.mem.Local(h.pd, lkey, va, uint64(n), 0)
	if r == nil || n <= 0 {
		return nil, false
	}
	return h.view(r, off, n, ahead, false)
}

func (h *host) WriteLocal(lkey uint32, va uint64, p []byte, ahead uint32) bool {
	return h.place(h.pd, lkey, va, p, ahead)
}

// WriteRecv looks for the memory of an SRQ's receives only in the domain of the SRQ (IBTA vol.1 10.2.9), as mlx5 and
// irdma do. rxe looks in the domain of the queue pair (send_data_in in rxe_resp.c): a program that depends on it would
// fail on hardware.
func (h *host) WriteRecv(lkey uint32, va uint64, p []byte, ahead uint32) bool {
	if h.srq != nil {
		return h.place(h.srq.pd, lkey, va, p, ahead)
	}
	return h.place(h.pd, lkey, va, p, ahead)
}

// place writes p to the region of lkey in pd.
func (h *host) place(pd *PD, lkey uint32, va uint64, p []byte, ahead uint32) bool {
	if len(p) == 0 {
		return true
	}
	r, off := h.nic.mem.Local(pd, lkey, va, uint64(len(p)), qp.AccessLocalWrite)
	return r != nil && h.write(r, off, p, ahead)
}

// CheckLocal permits an empty range with any key, as rxe does: it ignores elements of length zero.
func (h *host) CheckLocal(lkey uint32, va uint64, n uint32, need qp.Access) bool {
	if n == 0 {
		return true
	}
	r, _ := h.nic.mem.Local(h.pd, lkey, va, uint64(n), need)
	return r != nil
}

// CheckRemote permits an empty range with any key (IBTA vol.1 C9-88). For FLUSH, n == 0 means the whole region.
func (h *host) CheckRemote(rkey uint32, va uint64, n uint32, need qp.Access) bool {
	if n == 0 {
		return need&memory.AccessFlush == 0 || h.nic.mem.Permits(h.pd, rkey, need)
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

func (h *host) WriteRemote(rkey uint32, va uint64, p []byte, ahead uint32) bool {
	if len(p) == 0 {
		return true
	}
	r, off := h.remote(rkey, va, uint64(len(p)), qp.AccessRemoteWrite)
	return r != nil && h.write(r, off, p, ahead)
}

// atomic returns the region with the operand of an atomic operation, 8 bytes at an address that is a multiple of 8
// (IBTA vol.1 9.4.5). It is ready for the operation unless it is Deferred.
func (h *host) atomic(rkey uint32, va uint64) (r *memory.Region, off uint64) {
	if va&7 != 0 {
		return nil, 0
	}
	r, off = h.remote(rkey, va, 8, qp.AccessRemoteAtomic)
	if r != nil && r.Deferred == nil {
		h.nic.flushRun()
	}
	return r, off
}

func (h *host) CompareSwap(rkey uint32, va uint64, compare, swap uint64) (orig uint64, ok bool) {
	r, off := h.atomic(rkey, va)
	switch {
	case r == nil:
		return 0, false
	case r.Deferred != nil:
		return h.deferrals().operate(r, memory.Access{Kind: memory.AccessCompareSwap, Off: off, Operands: [2]uint64{compare, swap}})
	}
	orig, ok = r.Mem.CompareSwap(off, compare, swap)
	return orig, h.reached(ok)
}

func (h *host) FetchAdd(rkey uint32, va uint64, add uint64) (orig uint64, ok bool) {
	r, off := h.atomic(rkey, va)
	switch {
	case r == nil:
		return 0, false
	case r.Deferred != nil:
		return h.deferrals().operate(r, memory.Access{Kind: memory.AccessFetchAdd, Off: off, Operands: [2]uint64{add}})
	}
	orig, ok = r.Mem.FetchAdd(off, add)
	return orig, h.reached(ok)
}

func (h *host) Invalidate(rkey uint32) bool { return h.nic.mem.Invalidate(h.pd, &h.windows, rkey) }

func (h *host) BindMW(b qp.BindWR) bool { return h.nic.mem.Bind(h.pd, &h.windows, &b) }

func (h *host) Fetch(p []byte) (v []byte, ok bool) {
	rx := &h.nic.rx
	if s := rx.origin.part(p); s.of == nil {
		return p, true
	}
	rx.fetched, ok = h.nic.append(rx.fetched[:0], p)
	return rx.fetched, ok
}

func (h *host) Scratch(n int) []byte {
	h.nic.tx.gathering = true
	return h.nic.tx.alloc(n)
}
