package bth

import "encoding/binary"

// Decode reads the 16 bytes of an RETH at the start of b (IBTA vol.1 9.3.3).
func (h *RETH) Decode(b []byte) {
	_ = b[RETHLen-1]
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.Length = binary.BigEndian.Uint32(b[12:])
}

// Put writes the 16 bytes of the RETH at the start of b.
func (h *RETH) Put(b []byte) {
	_ = b[RETHLen-1]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], h.RKey)
	binary.BigEndian.PutUint32(b[12:], h.Length)
}

// Decode reads the 4 bytes of an FETH at the start of b. Reserved bits are left out.
func (h *FETH) Decode(b []byte) {
	v := binary.BigEndian.Uint32(b)
	h.Type, h.Level = uint8(v&0xf), uint8(v>>4&3)
}

// Put writes the 4 bytes of the FETH at the start of b.
func (h *FETH) Put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(h.Level&3)<<4|uint32(h.Type&0xf))
}

// Decode reads the 4 bytes of an AETH at the start of b (IBTA vol.1 9.3.5).
func (h *AETH) Decode(b []byte) {
	v := binary.BigEndian.Uint32(b)
	h.Syndrome = Syndrome(v >> 24)
	h.MSN = v & psnMask
}

// Put writes the 4 bytes of the AETH at the start of b.
func (h *AETH) Put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(h.Syndrome)<<24|h.MSN&psnMask)
}

// Decode reads the 28 bytes of an AtomicETH at the start of b (IBTA vol.1 9.3.4).
func (h *AtomicETH) Decode(b []byte) {
	_ = b[AtomicETHLen-1]
	h.VA = binary.BigEndian.Uint64(b)
	h.RKey = binary.BigEndian.Uint32(b[8:])
	h.SwapAdd = binary.BigEndian.Uint64(b[12:])
	h.Compare = binary.BigEndian.Uint64(b[20:])
}

// Put writes the 28 bytes of the AtomicETH at the start of b.
func (h *AtomicETH) Put(b []byte) {
	_ = b[AtomicETHLen-1]
	binary.BigEndian.PutUint64(b, h.VA)
	binary.BigEndian.PutUint32(b[8:], h.RKey)
	binary.BigEndian.PutUint64(b[12:], h.SwapAdd)
	binary.BigEndian.PutUint64(b[20:], h.Compare)
}

// Decode reads the 8 bytes of a DETH at the start of b (IBTA vol.1 9.3.2).
func (h *DETH) Decode(b []byte) {
	_ = b[DETHLen-1]
	h.QKey = binary.BigEndian.Uint32(b)
	h.SrcQP = QPN(be24(b[4:]))
}

// Put writes the 8 bytes of the DETH at the start of b, the reserved byte zero.
func (h *DETH) Put(b []byte) {
	_ = b[DETHLen-1]
	binary.BigEndian.PutUint32(b, h.QKey)
	binary.BigEndian.PutUint32(b[4:], uint32(h.SrcQP)&psnMask)
}
