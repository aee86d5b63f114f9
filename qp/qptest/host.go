// Package qptest is a test kit for queue pairs: a Host built from slices, and a Pair of queue pairs on a link with a
// virtual clock.
package qptest

import (
	"encoding/binary"
	"slices"

	"roced.io/roced/qp"
)

// Region is registered memory. Its key is both L_Key and R_Key.
type Region struct {
	Base   uint64
	Mem    []byte
	Access qp.Access
}

// RecvQueue is a receive queue; several hosts may share one as their SRQ.
type RecvQueue struct {
	WQEs  []qp.RecvWQE
	Taken int
}

// Host implements qp.Host. A test may read and change its fields between calls.
type Host struct {
	Regions map[uint32]*Region
	Sends   []qp.SendWQE
	Taken   int // number of Sends that the queue pair took
	Retired int // number of Taken that are retired
	Recvs   *RecvQueue

	SendCQ []qp.CQE
	RecvCQ []qp.CQE
	Events []qp.Event

	Invalidated []uint32 // R_Keys of invalidated regions
	Bound       []qp.BindWR

	scratch [][]byte
}

var _ qp.Host = (*Host)(nil)

// NewHost returns a host without memory and with empty queues.
func NewHost() *Host { return &Host{Regions: map[uint32]*Region{}, Recvs: new(RecvQueue)} }

// Register adds size bytes of zeroed memory at base with the given key.
func (h *Host) Register(key uint32, base uint64, size int, a qp.Access) *Region {
	r := &Region{Base: base, Mem: make([]byte, size), Access: a}
	h.Regions[key] = r
	return r
}

// view returns n bytes at va of the region key, or nil without the needed access.
func (h *Host) view(key uint32, va uint64, n uint64, need qp.Access) []byte {
	r := h.Regions[key]
	if r == nil || r.Access&need != need || va < r.Base {
		return nil
	}
	off := va - r.Base
	if size := uint64(len(r.Mem)); off > size || n > size-off {
		return nil
	}
	return r.Mem[off : off+n : off+n]
}

// NextSend implements qp.Host.
func (h *Host) NextSend(w *qp.SendWQE) bool {
	if !h.HasSend() {
		return false
	}
	src := &h.Sends[h.Taken]
	sges, inline := append(w.SGEs[:0], src.SGEs...), append(w.Inline[:0], src.Inline...)
	*w = *src
	w.SGEs, w.Inline = sges, inline
	h.Taken++
	return true
}

// HasSend implements qp.Host.
func (h *Host) HasSend() bool { return h.Taken < len(h.Sends) }

// SendRetired implements qp.Host.
func (h *Host) SendRetired(n int) {
	if h.Retired += n; h.Retired > h.Taken {
		panic("qptest: more send requests retired than taken")
	}
}

// NextRecv implements qp.Host.
func (h *Host) NextRecv(w *qp.RecvWQE) bool {
	q := h.Recvs
	if q.Taken == len(q.WQEs) {
		return false
	}
	w.WRID, w.SGEs = q.WQEs[q.Taken].WRID, append(w.SGEs[:0], q.WQEs[q.Taken].SGEs...)
	q.Taken++
	return true
}

// CompleteSend implements qp.Host.
func (h *Host) CompleteSend(c qp.CQE) { h.SendCQ = append(h.SendCQ, c) }

// CompleteRecv implements qp.Host.
func (h *Host) CompleteRecv(c qp.CQE) { h.RecvCQ = append(h.RecvCQ, c) }

// Notify implements qp.Host.
func (h *Host) Notify(e qp.Event) { h.Events = append(h.Events, e) }

// ReadLocal implements qp.Host.
func (h *Host) ReadLocal(lkey uint32, va uint64, n int, _ uint32) ([]byte, bool) {
	b := h.view(lkey, va, uint64(n), 0)
	return b, b != nil
}

// WriteLocal implements qp.Host.
func (h *Host) WriteLocal(lkey uint32, va uint64, p []byte, _ uint32) bool {
	b := h.view(lkey, va, uint64(len(p)), qp.AccessLocalWrite)
	copy(b, p)
	return b != nil
}

// WriteRecv implements qp.Host.
func (h *Host) WriteRecv(lkey uint32, va uint64, p []byte, _ uint32) bool {
	return h.WriteLocal(lkey, va, p, 0)
}

// Sync implements qp.Host: all writes are complete.
func (h *Host) Sync() bool { return true }

// Later implements qp.Host: memory is never temporarily unavailable.
func (h *Host) Later() bool { return false }

// CheckLocal implements qp.Host.
func (h *Host) CheckLocal(lkey uint32, va uint64, n uint32, need qp.Access) bool {
	return h.view(lkey, va, uint64(n), need) != nil
}

// CheckRemote implements qp.Host.
func (h *Host) CheckRemote(rkey uint32, va uint64, n uint32, need qp.Access) bool {
	return h.view(rkey, va, uint64(n), need) != nil
}

// ReadRemote implements qp.Host.
func (h *Host) ReadRemote(rkey uint32, va uint64, n int, _ uint32) ([]byte, bool) {
	b := h.view(rkey, va, uint64(n), qp.AccessRemoteRead)
	return b, b != nil
}

// WriteRemote implements qp.Host.
func (h *Host) WriteRemote(rkey uint32, va uint64, p []byte, _ uint32) bool {
	b := h.view(rkey, va, uint64(len(p)), qp.AccessRemoteWrite)
	copy(b, p)
	return b != nil
}

// CompareSwap implements qp.Host.
func (h *Host) CompareSwap(rkey uint32, va uint64, compare, swap uint64) (orig uint64, ok bool) {
	b := h.view(rkey, va, 8, qp.AccessRemoteAtomic)
	if b == nil {
		return 0, false
	}
	if orig = binary.NativeEndian.Uint64(b); orig == compare {
		binary.NativeEndian.PutUint64(b, swap)
	}
	return orig, true
}

// FetchAdd implements qp.Host.
func (h *Host) FetchAdd(rkey uint32, va uint64, add uint64) (orig uint64, ok bool) {
	b := h.view(rkey, va, 8, qp.AccessRemoteAtomic)
	if b == nil {
		return 0, false
	}
	orig = binary.NativeEndian.Uint64(b)
	binary.NativeEndian.PutUint64(b, orig+add)
	return orig, true
}

// Invalidate implements qp.Host: it removes the region.
func (h *Host) Invalidate(rkey uint32) bool {
	if h.Regions[rkey] == nil {
		return false
	}
	delete(h.Regions, rkey)
	h.Invalidated = append(h.Invalidated, rkey)
	return true
}

// BindMW implements qp.Host: it records the request without creating a window.
func (h *Host) BindMW(b qp.BindWR) bool {
	h.Bound = append(h.Bound, b)
	return true
}

// Fetch implements qp.Host.
func (*Host) Fetch(p []byte) ([]byte, bool) { return p, true }

// Scratch implements qp.Host.
func (h *Host) Scratch(n int) []byte {
	h.scratch = append(h.scratch, make([]byte, n))
	return h.scratch[len(h.scratch)-1]
}

// flushed ends the lifetime of scratch buffers. It overwrites them to expose late uses.
func (h *Host) flushed() {
	for _, b := range h.scratch {
		for i := range b {
			b[i] = 0xee
		}
	}
	h.scratch = slices.Delete(h.scratch, 0, len(h.scratch))
}
