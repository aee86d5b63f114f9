package rocev2

import "roced.io/roced/plugin/mono"

// Frame is one Ethernet frame to send, or a super-frame: several datagrams that
// share one set of headers and are cut apart by the link (UDP segmentation
// offload). It is valid until the next call of PollTransmit.
type Frame struct {
	// Bufs are the pieces, from the Ethernet header on; views of headers,
	// client memory and ICRCs.
	Bufs [][]byte
	// Len is the sum of the pieces' lengths.
	Len int
	// HdrLen is the length of Ethernet, IP and UDP headers, which are all in
	// Bufs[0]. Zero for frames that are not UDP.
	HdrLen int
	// SegSize is the UDP payload of every segment but the last, which may be
	// shorter; zero for a single frame. In a super-frame the IP ID of segment i
	// is that of the header plus i, and IP and UDP lengths are the segment's.
	SegSize int
	// Apart says that the peer of a NIC on sockets has to get the datagrams of a super-frame one by one,
	// because it may not accept them as somebody else may number them (sockets.go).
	Apart bool
}

// Offload is what a link takes in one super-frame. The zero value means single
// frames only.
type Offload struct {
	MaxSegments int // datagrams in a super-frame
	MaxBytes    int // bytes of a super-frame, Ethernet header included
}

// Direction tells received frames from sent ones.
type Direction uint8

// Directions.
const (
	Rx Direction = iota
	Tx
)

// Observer sees every frame, for captures. The frame is contiguous, complete
// and a single one (super-frames are shown cut apart); it is valid during the
// call. Comment is empty or says why the frame was dropped.
type Observer interface {
	Frame(now mono.Time, d Direction, frame []byte, comment string)
}
