package nic

import (
	"roced.io/roced/bth"
	"roced.io/roced/qp"
)

// parcel is a packet in flight, in two cache lines: bth.Packet without the fields that most packets do not use. A
// simulation has as many parcels as packets in the fabric, so their size dominates its memory.
type parcel struct {
	ext  bth.XETH
	reth bth.RETH
	aeth bth.AETH

	destQP  bth.QPN
	psn     bth.PSN
	imm     uint32
	payload uint32 // bytes
	bytes   uint32 // on a link
	src     uint32 // host
	ah      uint32 // UD: destination host
	next    uint32 // free list
	rest    uint32 // index in slab.rests plus one; 0: none
	entropy uint32 // of the path
	pkey    uint16
	opcode  bth.Opcode
	flags   parcelFlags
	class   uint8
}

type parcelFlags uint8

const (
	solicited parcelFlags = 1 << iota
	migReq
	fecn
	becn
	ackReq
	sprayed  // the path differs from that of its queue pair
	recorded // switches record telemetry
	returns  // an acknowledgement with telemetry
)

// rest has the fields that few packets use.
type rest struct {
	atomic    bth.AtomicETH
	atomicAck uint64
	data      []byte // content of the payload; nil: phantom
	deth      bth.DETH
	invalid   uint32 // IETH
	feth      bth.FETH
	mrc       mrcHeaders
	next      uint32 // free list
}

// mrcHeaders are the headers of MRC.
type mrcHeaders struct {
	reTx, stamped bool
	meth          bth.METH
	tseth         bth.TSETH
	seth          bth.SETH
	state         bth.CCState
	neth          bth.NETH
	peth          bth.PETH
	erth          bth.ERTH
	eeth          bth.EETH
}

const restHeaders = bth.HdrDETH | bth.HdrFETH | bth.HdrAtomicETH | bth.HdrAtomicAck | bth.HdrIETH

func flag(on bool, f parcelFlags) parcelFlags {
	if on {
		return f
	}
	return 0
}

// pack stores t in p; phantom payload has no content.
func (s *slab) pack(p *parcel, t *qp.Transmit, phantom bool) {
	k := &t.Packet
	p.ext, p.reth, p.aeth = k.Ext, k.RETH, k.AETH
	p.destQP, p.psn, p.imm, p.payload, p.ah, p.entropy = k.DestQP, k.PSN, k.Imm, uint32(len(k.Payload)), t.AH, t.Path
	p.pkey, p.opcode = k.PKey, k.Opcode
	p.flags = flag(k.Solicited, solicited) | flag(k.MigReq, migReq) | flag(k.FECN, fecn) | flag(k.BECN, becn) |
		flag(k.AckReq, ackReq) | flag(t.Path != 0, sprayed)
	if content := !phantom && p.payload > 0; content || k.Opcode.IsMRC() || k.Opcode.Info().Headers&restHeaders != 0 {
		r := s.takeRest(p)
		r.atomic, r.atomicAck, r.deth, r.invalid, r.feth = k.AtomicETH, k.AtomicAck, k.DETH, k.IETH, k.FETH
		if k.Opcode.IsMRC() {
			r.mrc = mrcHeaders{k.ReTx, k.Stamped, k.METH, k.TSETH, k.SETH, k.CCState, k.NETH, k.PETH, k.ERTH, k.EETH}
		}
		if content {
			r.data = append(r.data, k.Payload...)
		}
	}
}

// unpack restores a packed packet to k; zero is the content of phantom payload.
func (s *slab) unpack(p *parcel, k *bth.Packet, zero []byte) {
	k.Ext, k.RETH, k.AETH = p.ext, p.reth, p.aeth
	k.DestQP, k.PSN, k.Imm, k.PKey, k.Opcode = p.destQP, p.psn, p.imm, p.pkey, p.opcode
	k.Solicited, k.MigReq, k.FECN = p.flags&solicited != 0, p.flags&migReq != 0, p.flags&fecn != 0
	k.BECN, k.AckReq = p.flags&becn != 0, p.flags&ackReq != 0
	k.Payload = nil
	if p.payload > 0 {
		k.Payload = zero[:p.payload]
	}
	if p.rest != 0 {
		r := &s.rests[p.rest-1]
		k.AtomicETH, k.AtomicAck, k.DETH, k.IETH, k.FETH = r.atomic, r.atomicAck, r.deth, r.invalid, r.feth
		if m := &r.mrc; k.Opcode.IsMRC() {
			k.ReTx, k.Stamped, k.METH, k.TSETH = m.reTx, m.stamped, m.meth, m.tseth
			k.SETH, k.CCState, k.NETH, k.PETH = m.seth, m.state, m.neth, m.peth
			k.ERTH, k.EETH = m.erth, m.eeth
		}
		if len(r.data) > 0 {
			k.Payload = r.data
		}
	}
}

// takeRest allocates a rest for p.
func (s *slab) takeRest(p *parcel) *rest {
	if s.unusedRest == 0 {
		s.rests = append(s.rests, rest{})
		s.unusedRest = uint32(len(s.rests))
	}
	p.rest = s.unusedRest
	r := &s.rests[p.rest-1]
	s.unusedRest = r.next
	r.data = r.data[:0]
	return r
}

func (s *slab) freeRest(p *parcel) {
	s.rests[p.rest-1].next, s.unusedRest = s.unusedRest, p.rest
	p.rest = 0
}
