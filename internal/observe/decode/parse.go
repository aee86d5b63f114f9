package decode

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/internal/observe/pcapng"
)

// ecnNames are the codepoints of the ECN field (RFC 3168 5).
var ecnNames = [4]string{"not-ect", "ect1", "ect0", "ce"}

// parser converts frames into records. rec points into the parser and is valid until the next frame.
type parser struct {
	rec      Record
	pkt      bth.Packet
	base     Base
	ack      Ack
	flush    Flush
	target   Target
	operands Operands
	dgram    Datagram
	payload  int
	pad      int
	vlan     []uint16
	flor     flor.QueuePairs
}

// parse fills rec from f, frame n of its file. It returns true for a RoCEv2 frame.
func (p *parser) parse(f *pcapng.Frame, n int) (bool, error) {
	p.vlan = p.vlan[:0]
	off, etherType, err := f.Link.Network(f.Data, &p.vlan)
	if err != nil {
		return false, err
	}
	l3 := f.Data[off:]
	d, ok := bth.ReadDatagram(etherType, l3)
	if !ok {
		return false, nil
	}
	p.rec = Record{
		Packet: n, Time: time.Unix(0, f.Time).UTC(), Dir: f.Direction.String(), VLAN: p.vlan,
		Src: d.Src.String(), Dst: d.Dst.String(), SPort: d.SPort,
		DSCP: d.TOS >> 2, ECN: ecnNames[d.TOS&3], Comment: f.Comment,
	}
	p.rec.Truncated = len(f.Data) < f.Length && len(l3) < d.End
	if err := p.transport(l3, d); err != nil {
		p.rec.Error = strings.TrimPrefix(err.Error(), "bth: ")
	}
	return true, nil
}

// transport parses the BTH and everything after it.
func (p *parser) transport(l3 []byte, d bth.Datagram) error {
	if d.UDPLen != d.End-d.UDP {
		return fmt.Errorf("UDP length is %d, the IP header leaves %d", d.UDPLen, d.End-d.UDP)
	}
	if d.UDPLen < bth.UDPLen {
		return fmt.Errorf("UDP length is %d", d.UDPLen)
	}
	start := d.UDP + bth.UDPLen
	if p.rec.Truncated {
		return p.partOf(l3[start:], d.End-start)
	}
	if len(l3) < d.End {
		return fmt.Errorf("IP packet of %d bytes in a frame that holds %d", d.End, len(l3))
	}
	switch err := bth.CheckICRC(l3[:d.End]); {
	case err == nil:
		p.rec.ICRC = icrcOK
	case errors.Is(err, bth.ErrICRC):
		p.rec.ICRC = icrcBad
	}
	return p.whole(l3[start:d.End])
}

// whole parses b, a complete UDP payload.
func (p *parser) whole(b []byte) error {
	if _, err := p.headers(b); err != nil && !errors.Is(err, bth.ErrShort) {
		return err
	}
	switch err := p.pkt.Decode(b); {
	case errors.Is(err, bth.ErrTrimmed):
		p.rec.ICRC = "" // the ICRC is not that of the whole packet
		p.rec.MRC = mrc(&p.pkt, p.pkt.Headers())
		p.rec.MRC.Trimmed = true
		p.rec.Target, p.rec.DMALen, p.rec.Imm = nil, nil, nil
		return nil
	case err != nil:
		return err
	}
	p.setPayload(len(p.pkt.Payload), p.pkt.PadLen())
	p.readFlor(p.pkt.Payload, true)
	return nil
}

// partOf parses b, the first bytes of a UDP payload of n bytes.
func (p *parser) partOf(b []byte, n int) error {
	h, err := p.headers(b)
	if errors.Is(err, bth.ErrShort) {
		return nil // the captured part is correct
	}
	if err != nil {
		return err
	}
	pad := int(b[1] >> 4 & 3)
	size := n - h - pad - bth.ICRCLen
	if size < 0 {
		return bth.ErrShort
	}
	p.setPayload(size, pad)
	p.readFlor(b[h:min(len(b), h+size)], len(b) >= h+size)
	return nil
}

// readFlor decodes the packet as Flor if its queue pair carries Flor.
func (p *parser) readFlor(payload []byte, whole bool) {
	if p.flor.Has(uint32(p.pkt.DestQP)) {
		p.rec.Flor = flor.Of(p.pkt.Opcode, p.pkt.Imm, payload, whole)
	}
}

func (p *parser) setPayload(n, pad int) {
	p.payload, p.pad = n, pad
	p.rec.Payload, p.rec.Pad = &p.payload, &p.pad
}

// headers parses the BTH and the extension headers of b into the record. It records the BTH even if a later header is
// malformed.
func (p *parser) headers(b []byte) (int, error) {
	pkt := &p.pkt
	n, err := pkt.DecodeHeaders(b)
	if len(b) < bth.BTHLen {
		return 0, err
	}
	p.base = Base{
		Opcode: pkt.Opcode.String(), QPN: uint32(pkt.DestQP), PSN: pkt.PSN.Uint32(),
		AckReq: pkt.AckReq, Solicited: pkt.Solicited, MigReq: pkt.MigReq,
		FECN: pkt.FECN, BECN: pkt.BECN, PKey: pkt.PKey,
	}
	p.rec.Base = &p.base
	if err == nil {
		p.extensions(pkt.Headers())
	}
	return n, err
}

// extensions records the extension headers of the packet.
func (p *parser) extensions(h bth.Headers) {
	pkt, rec := &p.pkt, &p.rec
	if h&bth.HdrXETH != 0 {
		rec.Extended = extended(pkt)
	}
	if pkt.Opcode.IsMRC() {
		rec.MRC = mrc(pkt, h)
	}
	if h&bth.HdrDETH != 0 {
		p.dgram = Datagram{QKey: pkt.DETH.QKey, SrcQP: uint32(pkt.DETH.SrcQP)}
		rec.Datagram = &p.dgram
	}
	if h&bth.HdrFETH != 0 {
		p.flush = Flush{FlushType: pkt.FETH.Type, FlushLevel: pkt.FETH.Level}
		rec.Flush = &p.flush
	}
	if h&bth.HdrRETH != 0 {
		p.target = Target{VA: pkt.RETH.VA, RKey: pkt.RETH.RKey}
		rec.Target, rec.DMALen = &p.target, &pkt.RETH.Length
	}
	if h&bth.HdrAtomicETH != 0 {
		p.target = Target{VA: pkt.AtomicETH.VA, RKey: pkt.AtomicETH.RKey}
		p.operands = Operands{SwapAdd: pkt.AtomicETH.SwapAdd, Compare: pkt.AtomicETH.Compare}
		rec.Target, rec.Operands = &p.target, &p.operands
	}
	if h&bth.HdrAETH != 0 {
		p.ack = Ack{Syndrome: pkt.AETH.Syndrome, MSN: pkt.AETH.MSN}
		rec.Ack = &p.ack
	}
	if h&bth.HdrAtomicAck != 0 {
		rec.Original = &pkt.AtomicAck
	}
	if h&bth.HdrImm != 0 {
		rec.Imm = &pkt.Imm
	}
	if h&bth.HdrIETH != 0 {
		rec.InvRKey = &pkt.IETH
	}
}
