// Package pcapng writes captures in pcapng and reads pcapng and pcap. It exists
// because gopacket's pcapgo cannot do what a NIC's capture needs: its NgWriter
// writes enhanced packet blocks without options, so neither the direction nor a
// comment such as the reason for a drop, and its NgReader does not return them.
// (It also needs golang.org/x/net, for live capture.) Writer gathers a frame
// from pieces and does not allocate per packet; Reader tells at which byte a
// file breaks off.
//
// Section numbers cite draft-ietf-opsawg-pcapng.
package pcapng

import (
	"errors"
	"fmt"
)

// LinkType says how the frames of an interface begin (the LINKTYPE_ registry).
type LinkType uint16

// Link types that can carry RoCEv2.
const (
	LinkEthernet LinkType = 1
	LinkRaw      LinkType = 101 // IPv4 or IPv6 without a link layer
	LinkSLL      LinkType = 113 // Linux "cooked", as tcpdump -i any writes
	LinkIPv4     LinkType = 228
	LinkIPv6     LinkType = 229
	LinkSLL2     LinkType = 276 // Linux "cooked", version 2
)

// Direction is bits 1:0 of the flags word of a packet (4.3.1).
type Direction uint8

// Directions.
const (
	Unknown Direction = iota
	Inbound
	Outbound
)

// String returns "in", "out" or nothing.
func (d Direction) String() string {
	switch d {
	case Inbound:
		return "in"
	case Outbound:
		return "out"
	}
	return ""
}

// Reasons for which a Reader stops.
var (
	ErrTruncated = errors.New("the file ends inside a block")
	ErrFormat    = errors.New("not a valid pcap or pcapng file")
)

// FileError says where in a file reading stopped.
type FileError struct {
	Packet int   // number of the packet that could not be read, from 1
	Offset int64 // byte at which its block or record begins
	Err    error
}

// Error returns the place and the reason.
func (e *FileError) Error() string {
	return fmt.Sprintf("packet %d at byte %d: %v", e.Packet, e.Offset, e.Err)
}

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

// Block types (4.1 to 4.4).
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockSimple    = 3
	blockEnhanced  = 6

	byteOrderMagic = 0x1a2b3c4d
)

// Option codes (3.5, 4.1, 4.2, 4.3).
const (
	optEnd       = 0
	optComment   = 1
	optEPBFlags  = 2
	optIfName    = 2
	optIfDescr   = 3
	optUserAppl  = 4
	optTSResol   = 9
	optTSOffset  = 14
	maxOptionLen = 0xfffc
)

// pad4 returns n rounded up to a multiple of 4.
func pad4(n int) int { return (n + 3) &^ 3 }
