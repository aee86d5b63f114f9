// Package bth implements the wire formats of the InfiniBand transport in RoCEv2: opcodes, the base transport header and its
// extension headers, the invariant CRC, and the types PSN, QPN and Syndrome. It does no I/O and allocates nothing per
// packet.
//
// Section numbers cite the InfiniBand Architecture Specification ("IBTA"), volume 1, and its annex A17, RoCEv2.
//
// No promise: this package may change between releases.
package bth

// UDPPort is the UDP destination port of RoCEv2 (IBTA annex A17.3.1).
const UDPPort = 4791

// Lengths of headers and trailers in bytes.
const (
	BTHLen       = 12 // IBTA vol.1 9.2
	DETHLen      = 8  // IBTA vol.1 9.3.2
	RETHLen      = 16 // IBTA vol.1 9.3.3
	FETHLen      = 4  // IBTA vol.1 annex A19
	AtomicETHLen = 28 // IBTA vol.1 9.3.4
	AETHLen      = 4  // IBTA vol.1 9.3.5
	AtomicAckLen = 8  // IBTA vol.1 9.3.5.3
	ImmDtLen     = 4  // IBTA vol.1 9.3.6
	IETHLen      = 4  // IBTA vol.1 9.3.7
	ICRCLen      = 4  // IBTA vol.1 7.8.1

	// MaxHeaderLen is the length of the longest BTH with extension headers,
	// that of an atomic request of an extended transport.
	MaxHeaderLen = BTHLen + XETHMaxLen + AtomicETHLen
)
