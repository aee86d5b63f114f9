package nic

import (
	"encoding/binary"

	"roced.io/roced/qp"
)

// host is a queue pair as qp.Host. All keys open all of its memory. Phantom memory accepts all addresses.
type host QP

var _ qp.Host = (*host)(nil)

func (h *host) NextSend(w *qp.SendWQE) bool { return h.sends.next(w) }
func (h *host) HasSend() bool               { return h.sends.taken < h.sends.Tail }
func (h *host) SendRetired(n int)           { h.sends.retire(n, h.mtu) }

func (h *host) NextRecv(w *qp.RecvWQE) bool {
	if h.recvs == nil {
		return false
	}
	r, ok := h.recvs.take()
	if !ok {
		return false
	}
	w.WRID = r.ID
	w.SGEs = append(w.SGEs[:0], qp.SGE{Addr: r.Addr, Length: r.Length})
	return true
}

func (h *host) CompleteSend(c qp.CQE) { h.nic.k.complete((*QP)(h), c, false) }
func (h *host) CompleteRecv(c qp.CQE) { h.nic.k.complete((*QP)(h), c, true) }
func (h *host) Notify(qp.Event)       {}

// at returns n bytes of memory.
func (h *host) at(va uint64, n int) ([]byte, bool) {
	if h.memory == nil {
		return h.nic.k.zero[:min(n, len(h.nic.k.zero))], n <= len(h.nic.k.zero)
	}
	if !h.holds(va, uint32(n)) {
		return nil, false
	}
	return (*h.memory)[va : va+uint64(n)], true
}

func (h *host) holds(va uint64, n uint32) bool {
	if h.memory == nil {
		return true
	}
	size := uint64(len(*h.memory))
	return va <= size && uint64(n) <= size-va
}

func (h *host) ReadLocal(_ uint32, va uint64, n int, _ uint32) ([]byte, bool)  { return h.at(va, n) }
func (h *host) ReadRemote(_ uint32, va uint64, n int, _ uint32) ([]byte, bool) { return h.at(va, n) }

func (h *host) WriteLocal(_ uint32, va uint64, p []byte, _ uint32) bool {
	h.nic.k.placed += uint64(len(p))
	h.placed += uint64(len(p))
	if h.memory == nil {
		return true
	}
	to, ok := h.at(va, len(p))
	copy(to, p)
	return ok
}

func (h *host) WriteRecv(key uint32, va uint64, p []byte, _ uint32) bool {
	return h.WriteLocal(key, va, p, 0)
}
func (h *host) WriteRemote(key uint32, va uint64, p []byte, _ uint32) bool {
	return h.WriteLocal(key, va, p, 0)
}

func (h *host) Sync() bool { return true }

func (h *host) CheckLocal(_ uint32, va uint64, n uint32, _ qp.Access) bool  { return h.holds(va, n) }
func (h *host) CheckRemote(_ uint32, va uint64, n uint32, _ qp.Access) bool { return h.holds(va, n) }

func (h *host) CompareSwap(_ uint32, va uint64, compare, swap uint64) (orig uint64, ok bool) {
	return h.atomic(va, func(v uint64) uint64 {
		if v == compare {
			return swap
		}
		return v
	})
}

func (h *host) FetchAdd(_ uint32, va uint64, add uint64) (orig uint64, ok bool) {
	return h.atomic(va, func(v uint64) uint64 { return v + add })
}

func (h *host) atomic(va uint64, f func(uint64) uint64) (orig uint64, ok bool) {
	if h.memory == nil {
		return 0, true
	}
	b, ok := h.at(va, 8)
	if !ok || va&7 != 0 {
		return 0, false
	}
	orig = binary.NativeEndian.Uint64(b)
	binary.NativeEndian.PutUint64(b, f(orig))
	return orig, true
}

func (h *host) Invalidate(uint32) bool        { return true }
func (h *host) BindMW(qp.BindWR) bool         { return true }
func (h *host) Later() bool                   { return false }
func (h *host) Scratch(n int) []byte          { return make([]byte, n) }
func (h *host) Fetch(p []byte) ([]byte, bool) { return p, true }
