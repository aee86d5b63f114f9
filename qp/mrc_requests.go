package qp

import "roced.io/roced/bth"

// EndpointRequests are the endpoint requests of a NIC's queue pairs that have no response. The NIC numbers them, because
// responses do not name a queue pair.
type EndpointRequests struct {
	asked [maxAsked]asked // by the low bits of the number on the wire
	next  uint16
}

// asked is a request without a response.
type asked struct {
	by    bth.QPN // 0: none
	wire  uint16  // its number on the wire
	local uint16  // and in the queue pair
}

// maxAsked limits the requests without a response; a newer one replaces the oldest.
const maxAsked = 1 << 12

// NewEndpointRequests returns the requests of a NIC. first is the number of the first one; it should be random.
func NewEndpointRequests(first uint16) *EndpointRequests { return &EndpointRequests{next: first} }

// Number replaces the number of a request that queue pair by sends.
func (e *EndpointRequests) Number(by bth.QPN, p *bth.Packet) {
	e.asked[e.next%maxAsked] = asked{by, e.next, uint16(p.PSN.Uint32())}
	p.PSN = bth.MakePSN(uint32(e.next))
	e.next++
}

// By returns the queue pair that has sent the request that p answers, 0 if there is none. Without e there have been none.
func (e *EndpointRequests) By(p *bth.Packet) bth.QPN {
	if a := e.at(p); a != nil {
		return a.by
	}
	return 0
}

// Take ends the request that p answers, which By has found, and gives p the number of the queue pair.
func (e *EndpointRequests) Take(p *bth.Packet) {
	a := e.at(p)
	p.PSN = bth.MakePSN(uint32(a.local))
	*a = asked{}
}

// at returns the request that p answers, nil if there is none.
func (e *EndpointRequests) at(p *bth.Packet) *asked {
	id := uint16(p.PSN.Uint32())
	if e == nil || e.asked[id%maxAsked].wire != id {
		return nil
	}
	return &e.asked[id%maxAsked]
}

// EndpointResponse returns the response to the endpoint request p.
func EndpointResponse(p *bth.Packet) bth.Packet {
	return bth.Packet{Opcode: bth.OpcodeMRCEndpointResponse, PKey: bth.DefaultPKey, DestQP: bth.MRCEndpointQPN, PSN: p.PSN,
		EETH: bth.EETH{Op: p.ERTH.Op, Timestamp: p.ERTH.TSETH.Timestamp}}
}
