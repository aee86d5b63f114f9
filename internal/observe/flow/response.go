package flow

import "roced.io/roced/bth"

// nakKinds is the number of NAK kinds: the codes of IBTA vol.1 table 46, and one for all others.
const nakKinds = 6

// responses is the state of the responses in a stream.
type responses struct {
	seq     sequence // PSNs of READ responses
	middle  bool     // inside a READ message: the next PSN is known
	total   volume
	reads   volume
	opcodes opcodes
	goodput uint64 // bytes of READ responses, each PSN once
	ce      uint64
	acks    uint64 // positive acknowledgements
	atomics uint64
	rnrs    uint64
	becn    uint64
	naks    [nakKinds]uint64
	reasons map[bth.MRCReason]uint64 // of NACKs of MRC
}

// response processes a packet from a responder to a requester.
//
// It returns the requests that the response acknowledges although they did not pass.
func (a *Analyzer) response(s *stream, p *arrival, copied bool) (unseen []bth.PSN) {
	op, r := p.pkt.Opcode, &s.responses
	if op.IsReadAck() {
		s.requests.readAcks++ // sent by a requester
		return nil
	}
	s.transport = transportOf(&p.pkt)
	r.total.add(p.payload)
	r.opcodes.add(op, p.payload)
	if copied {
		r.seq.c.Duplicated++
		return nil
	}
	if p.ip.Marked() {
		r.ce++
	}
	if p.pkt.BECN {
		r.becn++
	}
	peer := a.asker(s, p)
	if op.IsReadResponse() {
		s.readResponse(p)
	}
	if peer != nil {
		peer.answer(p, a.totals.Packets)
		unseen = a.acknowledged(peer, &p.pkt)
	}
	r.count(p)
	return unseen
}

// acknowledged returns the requests of s that a response acknowledges although they did not pass.
func (a *Analyzer) acknowledged(s *stream, p *bth.Packet) []bth.PSN {
	r := &s.requests
	if !a.options.Unseen || s.transport != "RC" || !r.seq.started {
		return nil
	}
	if !r.begun {
		r.acked, r.begun = r.seq.first, true
	}
	end := p.PSN.Next()
	if p.Opcode.IsAck() && !p.AETH.Syndrome.IsACK() {
		end = p.PSN // a NAK acknowledges the PSNs before its own
	}
	if end.Diff(r.acked) > window {
		r.acked = end.Add(-window)
	}
	a.unseen = a.unseen[:0]
	for ; r.acked.Before(end); r.acked = r.acked.Next() {
		if r.unknown == 0 && !r.seq.has(r.acked) {
			a.unseen = append(a.unseen, r.acked)
		}
	}
	return a.unseen
}

// count counts a response by its kind.
func (r *responses) count(p *arrival) {
	op := p.pkt.Opcode
	switch y := p.pkt.AETH.Syndrome; {
	case op.IsAtomicAck():
		r.atomics++
	case op.IsSACK():
		r.acks++
	case op.IsNACK():
		r.naks[nakKinds-1]++
		if op.IsMRC() {
			r.refused(p.pkt.NETH.Reason)
		}
	case !op.IsAck():
	case y.IsACK():
		r.acks++
	case y.IsRNR():
		r.rnrs++
	default:
		r.naks[min(y.Value(), nakKinds-1)]++
	}
}

// refused counts a NACK of MRC.
func (r *responses) refused(why bth.MRCReason) {
	if r.reasons == nil {
		r.reasons = map[bth.MRCReason]uint64{}
	}
	r.reasons[why]++
}

// asker returns the stream of the requests that s answers. If the stream is unknown, asker searches for it with p.
func (a *Analyzer) asker(s *stream, p *arrival) *stream {
	op := p.pkt.Opcode
	if op.IsReadResponse() && (op.IsFirst() || op.IsMiddle()) {
		s.learnMTU(p.payload, s.peer)
	}
	peer := s.peer
	if peer != nil {
		peer.takeRest()
	}
	if !op.Starts() {
		return peer // only the PSN of the first READ response is always that of a request
	}
	match := (*sequence).has
	if op.IsNACK() || op.IsAck() && p.pkt.AETH.Syndrome == bth.SyndromePSNSeqErr {
		match = (*sequence).reaches // a NAK names a missing PSN, which may not have passed this point
	}
	if peer == nil {
		a.seek(s, answered(&p.pkt), match)
	} else {
		a.doubt(s, answered(&p.pkt), match)
	}
	return s.peer
}

// answered returns the PSN of the request that a response answers. A SACK answers the packet that triggered it.
func answered(p *bth.Packet) bth.PSN {
	if p.Opcode.IsSACK() && !p.SETH.ProbeReply {
		return p.SETH.AckPSN()
	}
	return p.PSN
}

// readResponse tracks the PSNs of READ responses.
func (s *stream) readResponse(p *arrival) {
	r, op, psn := &s.responses, p.pkt.Opcode, p.pkt.PSN
	r.reads.add(p.payload)
	kind := r.seq.observe(psn, p.ip.ID, r.middle)
	if kind == fresh || kind == late {
		r.goodput += uint64(p.payload)
	}
	if kind == fresh {
		r.middle = op.IsFirst() || op.IsMiddle()
	}
}

// answer updates s, a stream of requests, from a response.
func (s *stream) answer(p *arrival, number uint64) {
	r, op, psn := &s.requests, p.pkt.Opcode, answered(&p.pkt)
	y := p.pkt.AETH.Syndrome
	switch {
	case op.IsAtomicAck(), op.IsReadResponse() && op.Starts(), op.IsSACK():
		r.rtt.answered(psn, p.now, true)
	case op.IsNACK():
		r.seq.naked(psn)
		r.rtt.void(psn)
		s.copies.refuse(psn, number)
	case !op.IsAck():
	case y.IsACK():
		r.rtt.answered(psn, p.now, false)
	default:
		if y == bth.SyndromePSNSeqErr {
			r.seq.naked(psn)
		}
		r.rtt.void(psn)
		s.copies.refuse(psn, number)
	}
}
