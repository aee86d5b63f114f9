// Package link holds the terms of a NIC and its port: frames and super-frames, offloads, the observer, the state of the
// link, limits. It does no I/O.
//
// No promise: this package may change between releases.
package link

import (
	"net/netip"

	"roced.io/roced/bth"
	"roced.io/roced/bth/inet"
	"roced.io/roced/plugin/mono"
)

// Limits of the link MTU: the smallest path MTU with its headers, and the largest IP length.
const (
	MinMTU = 256 + MTUOverhead
	MaxMTU = inet.MaxIPLen
	// MTUOverhead is the part of an IP packet beside the path MTU. It is computed as in rxe, so that both ends choose
	// alike: IPv6, UDP, BTH, an XRC header, the longest extension header and the ICRC.
	MTUOverhead = inet.IPv6Len + inet.UDPLen + bth.BTHLen + 4 + bth.AtomicETHLen + bth.ICRCLen
)

// RemoteWindow is the maximum number of packets in flight towards an address of another owner's NIC. Their frames wait in a
// queue of bounded bytes. A socket has room for about as many.
const RemoteWindow = 4096

// Overhead is the number of bytes that Ethernet adds to a frame: preamble, frame check sequence and gap.
const Overhead = 8 + 4 + 12

// Offload describes the work that the port does for the NIC. The zero value means single frames only.
type Offload struct {
	MaxSegments int // datagrams in a super-frame
	MaxBytes    int // bytes of a super-frame, Ethernet header included
	// Faults: the port applies fault rules. The NIC passes it also the frames to its own address, which the port
	// returns as received. The port shows sent frames to the observer, since only it knows their fate.
	Faults bool
	// Unsealed: the port accepts frames to other owners of the switch without ICRCs (Frame.Unsealed).
	Unsealed bool
}

// Direction distinguishes received from sent frames.
type Direction uint8

// Directions.
const (
	Rx Direction = iota
	Tx
)

// Observer sees every frame, for captures. The frame is contiguous, complete and a single one (super-frames are
// segmented); it is valid during the call. Comment is empty or the reason for dropping the frame.
type Observer interface {
	Frame(now mono.Time, d Direction, frame []byte, comment string)
}

// State is the state of a link as of the last Poll.
type State struct {
	Up  bool  // the link carries frames
	MTU int   // largest IP packet in bytes; 0 if unknown or unlimited
	Err error // why the link is not up
	// Ports has a bit for each plane that is up, of a link with several (package planes); 0 without planes.
	Ports uint32
}

// SocketMAC returns the Ethernet address that represents a peer in headers that a port on sockets has made up.
func SocketMAC(a netip.Addr) inet.MAC {
	b := a.As16()
	return inet.MAC{2, 0, b[12], b[13], b[14], b[15]}
}
