package mrc

import "roced.io/roced/bth"

// Requests are the endpoint requests of a NIC's queue pairs that have no response. The NIC numbers them, because responses do
// not name a queue pair.
type Requests struct {
	outstanding [maxRequests]request // by the low bits of the number on the wire
	next        uint16
}

// request is an endpoint request without a response.
type request struct {
	sender bth.QPN // 0: none
	wire   uint16  // its number on the wire
	local  uint16  // and in the queue pair
}

// maxRequests limits the requests without a response; a newer one replaces the oldest.
const maxRequests = 1 << 12

// NewRequests returns the requests of a NIC. first is the number of the first one; it should be random.
func NewRequests(first uint16) *Requests { return &Requests{next: first} }

// Number replaces the number of the request p of a queue pair.
func (r *Requests) Number(sender bth.QPN, p *bth.Packet) {
	r.outstanding[r.next%maxRequests] = request{sender, r.next, uint16(p.PSN.Uint32())}
	p.PSN = bth.MakePSN(uint32(r.next))
	r.next++
}

// Sender returns the queue pair that has sent the request that p answers, 0 if there is none. The receiver may be nil.
func (r *Requests) Sender(p *bth.Packet) bth.QPN {
	if x := r.find(p); x != nil {
		return x.sender
	}
	return 0
}

// Take ends the request that p answers, which Sender has found, and gives p the number of the queue pair.
func (r *Requests) Take(p *bth.Packet) {
	x := r.find(p)
	p.PSN = bth.MakePSN(uint32(x.local))
	*x = request{}
}

// find returns the request that p answers, nil if there is none.
func (r *Requests) find(p *bth.Packet) *request {
	id := uint16(p.PSN.Uint32())
	if r == nil || r.outstanding[id%maxRequests].wire != id {
		return nil
	}
	return &r.outstanding[id%maxRequests]
}

// Response returns the response to the endpoint request p.
func Response(p *bth.Packet) bth.Packet {
	return bth.Packet{Opcode: bth.OpcodeMRCEndpointResponse, PKey: bth.DefaultPKey, DestQP: bth.MRCEndpointQPN, PSN: p.PSN,
		EETH: bth.EETH{Op: p.ERTH.Op, Timestamp: p.ERTH.TSETH.Timestamp}}
}
