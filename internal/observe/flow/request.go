package flow

import (
	"roced.io/roced/bth"
	"roced.io/roced/qp/profile"
)

// verb is an operation of the verbs API.
type verb uint8

const (
	verbSend verb = iota
	verbSendImm
	verbSendInv
	verbWrite
	verbWriteImm
	verbRead
	verbCmpSwap
	verbFetchAdd
	verbAtomicWrite
	verbFlush
	verbs
)

var verbNames = [verbs]string{
	"SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ",
	"CMP_SWAP", "FETCH_ADD", "ATOMIC_WRITE", "FLUSH",
}

// verbOf returns the operation that ends with a packet of opcode op.
func verbOf(op bth.Opcode) verb {
	switch {
	case op.IsSend() && op.HasInv():
		return verbSendInv
	case op.IsSend() && op.HasImm():
		return verbSendImm
	case op.IsSend():
		return verbSend
	case op.IsWrite() && op.HasImm():
		return verbWriteImm
	case op.IsWrite():
		return verbWrite
	case op.IsReadRequest():
		return verbRead
	case op.IsAtomicWrite():
		return verbAtomicWrite
	case op.IsFlush():
		return verbFlush
	case op.Op() == bth.OpCmpSwap:
		return verbCmpSwap
	}
	return verbFetchAdd
}

// volume counts packets and their payload bytes.
type volume struct{ packets, bytes uint64 }

func (v *volume) add(n int) {
	v.packets++
	v.bytes += uint64(n)
}

// opcodes counts packets by opcode. It is a list, because a stream has only a few opcodes.
type opcodes []opcodeVolume

type opcodeVolume struct {
	opcode bth.Opcode
	volume
}

func (o *opcodes) add(op bth.Opcode, n int) {
	for i := range *o {
		if v := &(*o)[i]; v.opcode == op {
			v.add(n)
			return
		}
	}
	*o = append(*o, opcodeVolume{op, volume{1, uint64(n)}})
}

// transportOf names the transport of a packet. An extended transport has the name of its profile.
func transportOf(p *bth.Packet) string {
	switch {
	case p.Opcode.IsMRC():
		return "mrc"
	case p.Opcode.IsExt():
		return profile.NameOf(p.Ext.Profile)
	case p.Opcode.Transport() == bth.TransportUC:
		return "UC"
	case p.Opcode.Transport() == bth.TransportUD:
		return "UD"
	}
	return "RC"
}

// requests is the state of the requests in a stream.
type requests struct {
	seq      sequence
	total    volume
	opcodes  opcodes
	messages [verbs]uint64
	goodput  uint64 // bytes of payload, each PSN once
	ce       uint64
	readAcks uint64
	asked    bth.PSN // last request that requires an answer
	acked    bth.PSN // the requests before it are known to have passed, or are reported as unseen
	begun    bool    // acked is valid
	rtt      timer
	// reads is a ring of the last READ requests before the MTU is known. Until then the number of PSNs that they use
	// is unknown.
	reads   [16]read
	unknown int
}

type read struct {
	psn    bth.PSN
	length uint32 // bytes
}

// request processes a request. copied means that it is a copy of one before.
func (a *Analyzer) request(s *stream, p *arrival, copied bool) sighting {
	r, pkt, peer := &s.requests, &p.pkt, s.peer
	op := pkt.Opcode
	s.transport = transportOf(pkt)
	r.total.add(p.payload)
	r.opcodes.add(op, p.payload)
	if copied {
		r.seq.c.Duplicated++
		return duplicate
	}
	if p.ip.Marked() {
		r.ce++
	}
	if s.datagram {
		r.datagram(p)
		return fresh
	}
	if op.IsProbe() {
		return duplicate // it has no PSN
	}
	if op.IsFirst() || op.IsMiddle() {
		s.learnMTU(p.payload, peer)
	}
	s.takeRest()
	kind := r.seq.observe(pkt.PSN, p.ip.ID, r.contiguous(pkt.PSN))
	if kind == late && (pkt.ReTx || op.IsExt() && pkt.Ext.Flags&bth.XReTx != 0) {
		r.seq.declared()
	}
	switch kind {
	case fresh, late:
		r.once(p)
	case again:
		r.rtt.void(pkt.PSN)
		if op.IsReadRequest() && peer != nil {
			peer.responses.seq.naked(pkt.PSN)
			peer.copies.refuse(pkt.PSN, a.totals.Packets)
		}
	}
	if op.IsReadRequest() && (kind == fresh || kind == late) {
		s.takePSNs(pkt)
	}
	if kind == fresh && op.Transport() != bth.TransportUC && (pkt.AckReq || op.IsReadRequest() || op.IsAtomic()) {
		r.asked = pkt.PSN
		r.rtt.start(pkt.PSN, p.now)
	}
	return kind
}

// once updates the counters that ignore retransmissions.
func (r *requests) once(p *arrival) {
	r.goodput += uint64(p.payload)
	if op := p.pkt.Opcode; op.Ends() {
		r.messages[verbOf(op)]++
	}
}

// datagram processes a UD packet. UD PSNs are shared with other streams.
func (r *requests) datagram(p *arrival) {
	r.once(p)
	if !r.seq.started {
		r.seq.started, r.seq.first = true, p.pkt.PSN
	}
	r.seq.high = p.pkt.PSN
}

// learnMTU derives the MTU from the payload of a FIRST or MIDDLE packet.
func (s *stream) learnMTU(n int, peer *stream) {
	if n == s.mtu || !isMTU(n) {
		return
	}
	s.mtu = n
	if peer != nil {
		peer.mtu = n
	}
}

// isMTU reports whether n is a path MTU of InfiniBand.
func isMTU(n int) bool { return n >= 256 && n <= 4096 && n&(n-1) == 0 }

// contiguous reports whether a jump to next is a gap. A jump after a READ request is no gap while the MTU is unknown:
// the skipped PSNs may belong to the READ responses.
func (r *requests) contiguous(next bth.PSN) bool {
	if r.unknown == 0 {
		return true
	}
	last := r.reads[(r.unknown-1)%len(r.reads)]
	return last.psn != r.seq.high || next.Diff(last.psn) > Packets(last.length, 256)
}

// takeRest reserves the PSNs of the READ requests that came before the MTU was known.
func (s *stream) takeRest() {
	r := &s.requests
	if s.mtu == 0 {
		return
	}
	for i := max(0, r.unknown-len(r.reads)); i < r.unknown; i++ {
		q := r.reads[i%len(r.reads)]
		r.seq.span(q.psn, Packets(q.length, s.mtu))
	}
	r.unknown = 0
}

// Packets returns the number of packets for n bytes.
func Packets(n uint32, mtu int) int {
	return max(1, int((uint64(n)+uint64(mtu)-1)/uint64(mtu)))
}

// takePSNs reserves the PSNs of the responses to a READ request.
func (s *stream) takePSNs(pkt *bth.Packet) {
	r, n := &s.requests, pkt.RETH.Length
	if n > 256 && s.mtu == 0 {
		r.reads[r.unknown%len(r.reads)] = read{pkt.PSN, n}
		r.unknown++
		return
	}
	r.seq.span(pkt.PSN, Packets(n, max(s.mtu, 256)))
}
