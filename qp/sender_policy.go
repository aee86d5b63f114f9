package qp

import (
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// senderPolicy holds the rules of the requester that differ between standard RC (standardPolicy) and the extended
// transports (extendedPolicy, docs/reference/wire.md): numbering, headers, acknowledgement requests, probes, retries and
// reception.
type senderPolicy interface {
	// start begins a connection at psn.
	start(psn bth.PSN)
	// configure applies attributes that may have changed.
	configure()
	// spans returns the number of PSNs of a request of n packets or responses. rspan is the number of PSNs of its
	// responses if these have a PSN space of their own.
	spans(n uint32, responds bool) (span, rspan uint32)
	// mayLeave reports whether the next packet of s may leave beside the outstanding packets.
	mayLeave(s *slot) bool
	// stamp sets the extension headers of packet k of s. When s begins, it numbers the message.
	stamp(now mono.Time, s *slot, k uint32, retransmit bool, p *bth.Packet)
	// requestsAck reports whether the packet just sent requests an acknowledgement. ends means that it ends its
	// request.
	requestsAck(now mono.Time, ends, retransmit bool) bool
	// onAckReq is called when a packet has requested an acknowledgement.
	onAckReq(now mono.Time)
	// pollProbe fills t with a retransmission that requests an acknowledgement, if one is due.
	pollProbe(now mono.Time, t *Transmit) bool
	// receive takes an acknowledgement or a response.
	receive(now mono.Time, p *bth.Packet, m arrival) Drop
	// resume is called when memory is available for which messages or responses waited.
	resume(now mono.Time)
	// acksFollowResponses reports whether the acknowledgement of a packet sent now follows outstanding responses.
	acksFollowResponses() bool
	// onProgress is called when una has moved. rtt is zero if no packet was timed.
	onProgress(rtt time.Duration)
	// onLoss is called when packets have been lost.
	onLoss(now mono.Time)
	// deadline returns the instant of the next probe or retry; onDeadline handles it.
	deadline() mono.Time
	onDeadline(now mono.Time)
}
