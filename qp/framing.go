package qp

import (
	"roced.io/roced/bth"
	"roced.io/roced/plugin/mono"
)

// framing is in what the requests of standard RC (requester itself) and those of the extended
// transports (extendedFraming, docs/reference/wire.md) differ: how they and their responses are numbered,
// what their packets say, and how losses are told and counted.
type framing interface {
	// spans returns how many PSNs a request of n packets or responses takes, and how many its
	// responses take besides, which have PSNs of their own then.
	spans(n uint32, responds bool) (span, rspan uint32)
	// open reports whether what is outstanding allows for the next packet of s.
	open(s *slot) bool
	// stamp sets the headers of packet k of s that standard RC does not have. When s begins,
	// it gives it the numbers that its packets carry.
	stamp(s *slot, k uint32, again bool, p *bth.Packet)
	// asks reports whether the packet just sent is to ask for an acknowledgement; ends says
	// that it ends its request, again that it has been sent before.
	asks(now mono.Time, ends, again bool) bool
	// probe fills t with a packet that asks for an acknowledgement if nobody else has.
	probe(now mono.Time, t *Transmit) bool
	// receive takes an acknowledgement or a response.
	receive(now mono.Time, p *bth.Packet, m arrival) Drop
	// awaits reports whether acknowledgements of what is sent now come after responses that
	// are outstanding.
	awaits() bool
	// missed is told that packets have been lost.
	missed(now mono.Time)
	// answerDue is when a retry has been in vain without having been missed; mono.Never: missed tells of all.
	answerDue() mono.Time
}
