// Package pcapng writes pcapng captures and reads pcapng and pcap. It exists because gopacket's pcapgo lacks features
// that a NIC's capture needs. Its NgWriter writes enhanced packet blocks without options, such as the direction or a
// comment with the reason for a drop. Its NgReader does not return them. (pcapgo also needs golang.org/x/net, for
// live capture.) Writer assembles a frame from parts and does not allocate per packet. Reader reports the byte offset
// at which a file breaks off.
//
// Section numbers cite draft-ietf-opsawg-pcapng.
package pcapng

import (
	"errors"
	"fmt"
)

// LinkType is the link-layer header type of an interface (the LINKTYPE_ registry).
type LinkType uint16

// Link types that can carry RoCEv2.
const (
	LinkNull     LinkType = 0 // loopback of BSD
	LinkEthernet LinkType = 1
	linkRawBSD   LinkType = 12  // LinkRaw in files of some systems
	linkRawOpen  LinkType = 14  // LinkRaw in files of OpenBSD
	LinkRaw      LinkType = 101 // IPv4 or IPv6 without a link layer
	LinkLoop     LinkType = 108 // loopback of OpenBSD
	LinkSLL      LinkType = 113 // Linux "cooked", written by tcpdump -i any
	LinkIPv4     LinkType = 228
	LinkIPv6     LinkType = 229
	LinkSLL2     LinkType = 276 // Linux "cooked", version 2
)

// Link types that have a name although their frames are not read.
const (
	LinkERF        LinkType = 197
	LinkInfiniBand LinkType = 247
)

// String returns the name of a link type for counts and messages.
func (link LinkType) String() string {
	switch link {
	case LinkERF:
		return "ERF"
	case LinkInfiniBand:
		return "InfiniBand"
	}
	return fmt.Sprintf("link type %d", uint16(link))
}

// Direction is bits 1:0 of the flags word of a packet (4.3.1).
type Direction uint8

// Values of Direction.
const (
	Unknown Direction = iota
	Inbound
	Outbound
)

// String returns "in", "out" or "".
func (d Direction) String() string {
	switch d {
	case Inbound:
		return "in"
	case Outbound:
		return "out"
	}
	return ""
}

// Errors of a Reader.
var (
	ErrTruncated = errors.New("the file ends inside a block")
	ErrFormat    = errors.New("not a valid pcap or pcapng file")
)

// FileError is the position in a file at which reading stopped.
type FileError struct {
	Packet int   // number of the unreadable packet, from 1
	Offset int64 // offset of its block or record
	Err    error
}

// Error returns the position and the reason.
func (e *FileError) Error() string {
	return fmt.Sprintf("packet %d at byte %d: %v", e.Packet, e.Offset, e.Err)
}

// Unwrap returns the reason.
func (e *FileError) Unwrap() error { return e.Err }

// Block types (4.1 to 4.4).
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 2 // obsolete
	blockSimple    = 3
	blockEnhanced  = 6

	byteOrderMagic = 0x1a2b3c4d
)

// Option codes (3.5, 4.1, 4.2, 4.3).
const (
	optEnd          = 0
	optComment      = 1
	optEPBFlags     = 2
	optEPBDropCount = 4
	optIfName       = 2
	optIfDescr      = 3
	optUserAppl     = 4
	optTSResol      = 9
	optTSOffset     = 14
	maxOptionLen    = 0xfffc
)

// pad4 returns n rounded up to a multiple of 4.
func pad4(n int) int { return (n + 3) &^ 3 }
