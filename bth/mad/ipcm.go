package mad

import (
	"fmt"
	"net/netip"
)

// IPServiceID returns the service ID of an IP port. portSpace is the port space of
// rdma_cm (0x0106 TCP, 0x0111 UDP; IBTA annex A11.2.1).
func IPServiceID(portSpace, port uint16) uint64 { return uint64(portSpace)<<16 | uint64(port) }

// IPCM is rdma_cm's header before the consumer's private data in REQ
// and SIDR_REQ (IBTA annex A11.3), 36 bytes. The addresses are of one family.
type IPCM struct {
	Src, Dst netip.Addr
	SrcPort  uint16
}

// Decode reads the header and returns the consumer's private data behind it.
func (h *IPCM) Decode(private []byte) (rest []byte, err error) {
	if len(private) < IPCMLen {
		return nil, fmt.Errorf("%w: %d bytes", ErrIPCM, len(private))
	}
	if private[0]>>4 != 0 {
		return nil, fmt.Errorf("%w: major version %d", ErrIPCM, private[0]>>4)
	}
	*h = IPCM{SrcPort: be.Uint16(private[2:])}
	switch v := private[1] >> 4; v {
	case 4:
		h.Src, h.Dst = netip.AddrFrom4([4]byte(private[16:])), netip.AddrFrom4([4]byte(private[32:]))
	case 6:
		h.Src, h.Dst = netip.AddrFrom16([16]byte(private[4:])), netip.AddrFrom16([16]byte(private[20:]))
	default:
		return nil, fmt.Errorf("%w: IP version %d", ErrIPCM, v)
	}
	return private[IPCMLen:], nil
}

// Append appends the header to b. The minor version is 0, as in Linux.
func (h *IPCM) Append(b []byte) []byte {
	version := byte(6)
	if h.Dst.Is4() {
		version = 4
	}
	b = append(b, 0, version<<4, byte(h.SrcPort>>8), byte(h.SrcPort))
	b = appendAddr(b, h.Src)
	return appendAddr(b, h.Dst)
}

// appendAddr appends the 16 bytes of an address, 12 of zero before an IPv4 one.
func appendAddr(b []byte, a netip.Addr) []byte {
	b16 := a.As16()
	if a.Is4() {
		clear(b16[:12])
	}
	return append(b, b16[:]...)
}
