package qp

import (
	"fmt"
	"strings"
)

// scriptHost is the host of a lone requester: one memory region of each kind, a send queue that is a list, and a log
// of the calls.
//
// lkey 1: readable and writable, lkey 2: read only; both at memBase
type scriptHost struct {
	mem     []byte
	revoked map[uint32]bool
	queue   []SendWQE
	taken   int
	retired int
	scratch []byte
	log     strings.Builder
	quiet   bool
	cqes    int
}

const memBase = 0x10000

func newScriptHost(size int) *scriptHost {
	h := &scriptHost{mem: make([]byte, size), revoked: map[uint32]bool{}}
	for i := range h.mem {
		h.mem[i] = byte(i*7 + i>>8)
	}
	return h
}

func (h *scriptHost) NextSend(w *SendWQE) bool {
	if h.taken == len(h.queue) {
		return false
	}
	src := &h.queue[h.taken]
	sges, inline := append(w.SGEs[:0], src.SGEs...), append(w.Inline[:0], src.Inline...)
	*w = *src
	w.SGEs, w.Inline = sges, inline
	h.taken++
	return true
}

func (h *scriptHost) HasSend() bool          { return h.taken < len(h.queue) }
func (h *scriptHost) NextRecv(*RecvWQE) bool { return false }
func (h *scriptHost) CompleteRecv(CQE)       {}

func (h *scriptHost) SendRetired(n int) {
	if h.retired += n; h.retired > h.taken {
		panic("more requests retired than taken")
	}
}

var statusNames = map[Status]string{
	StatusSuccess: "SUCCESS", StatusLocLenErr: "LOC_LEN_ERR", StatusLocQPOpErr: "LOC_QP_OP_ERR",
	StatusLocProtErr: "LOC_PROT_ERR", StatusWRFlushErr: "WR_FLUSH_ERR", StatusMWBindErr: "MW_BIND_ERR",
	StatusBadRespErr: "BAD_RESP_ERR", StatusRemInvReqErr: "REM_INV_REQ_ERR", StatusRemAccessErr: "REM_ACCESS_ERR",
	StatusRemOpErr: "REM_OP_ERR", StatusRetryExcErr: "RETRY_EXC_ERR", StatusRNRRetryExcErr: "RNR_RETRY_EXC_ERR",
}

func (h *scriptHost) CompleteSend(c CQE) {
	if h.cqes++; h.cqes > h.retired {
		panic("a completion before its place has been given back")
	}
	if h.quiet {
		return
	}
	fmt.Fprintf(&h.log, "cqe wr=%d %s opcode=%d", c.WRID, statusNames[c.Status], c.Opcode)
	if c.ByteLen != 0 {
		fmt.Fprintf(&h.log, " bytes=%d", c.ByteLen)
	}
	h.log.WriteByte('\n')
}

func (h *scriptHost) Notify(e Event) { fmt.Fprintf(&h.log, "event %d\n", e) }

func (h *scriptHost) at(lkey uint32, va uint64, n int, write bool) ([]byte, bool) {
	if h.revoked[lkey] || lkey != 1 && (lkey != 2 || write) {
		return nil, false
	}
	off := va - memBase
	if n < 0 || off > uint64(len(h.mem)) || uint64(n) > uint64(len(h.mem))-off {
		return nil, false
	}
	return h.mem[off : off+uint64(n)], true
}

func (h *scriptHost) ReadLocal(lkey uint32, va uint64, n int, _ uint32) ([]byte, bool) {
	return h.at(lkey, va, n, false)
}

func (h *scriptHost) WriteLocal(lkey uint32, va uint64, p []byte, _ uint32) bool {
	b, ok := h.at(lkey, va, len(p), true)
	copy(b, p)
	return ok
}

func (h *scriptHost) WriteRecv(lkey uint32, va uint64, p []byte, _ uint32) bool {
	return h.WriteLocal(lkey, va, p, 0)
}

func (h *scriptHost) Sync() bool { return true }

func (*scriptHost) Later() bool { return false }

func (h *scriptHost) CheckLocal(lkey uint32, va uint64, n uint32, need Access) bool {
	_, ok := h.at(lkey, va, int(n), need&AccessLocalWrite != 0)
	return ok
}

func (h *scriptHost) CheckRemote(uint32, uint64, uint32, Access) bool       { return false }
func (h *scriptHost) ReadRemote(uint32, uint64, int, uint32) ([]byte, bool) { return nil, false }
func (h *scriptHost) WriteRemote(uint32, uint64, []byte, uint32) bool       { return false }
func (h *scriptHost) CompareSwap(_ uint32, _, _, _ uint64) (uint64, bool)   { return 0, false }
func (h *scriptHost) FetchAdd(_ uint32, _, _ uint64) (orig uint64, ok bool) { return 0, false }

func (h *scriptHost) Invalidate(rkey uint32) bool {
	fmt.Fprintf(&h.log, "invalidate %d\n", rkey)
	return rkey != 0
}

func (h *scriptHost) BindMW(b BindWR) bool {
	fmt.Fprintf(&h.log, "bind %d\n", b.RKey)
	return b.RKey != 0
}

func (h *scriptHost) Fetch(p []byte) ([]byte, bool) { return p, true }

func (h *scriptHost) Scratch(n int) []byte {
	h.scratch = append(h.scratch[:0], make([]byte, n)...)
	return h.scratch
}
