package decode

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/dissect"
	"roced.io/roced/internal/observe/flor"
	"roced.io/roced/internal/observe/pcapng"
)

// ecnNames are the codepoints of the ECN field (RFC 3168 5).
var ecnNames = [4]string{"not-ect", "ect1", "ect0", "ce"}

// parser converts frames into records. rec points into the parser and is valid until the next frame.
type parser struct {
	rec     Record
	pkt     bth.Packet
	base    Base
	payload int
	pad     int
	flor    flor.QueuePairs
}

// parse fills rec from packet, which is RoCEv2, in f, frame n of its file.
func (p *parser) parse(f *pcapng.Frame, n int, packet *dissect.Packet) {
	d := &packet.Datagram
	p.rec = Record{
		Packet: n, Time: time.Unix(0, f.Time).UTC(), Dir: f.Direction.String(), Outer: packet.Outer,
		Src: d.Src.String(), Dst: d.Dst.String(), SPort: d.SPort, HopLimit: packet.HopLimit(), FlowLabel: packet.FlowLabel(), ID: d.ID,
		DSCP: d.TOS >> 2, ECN: ecnNames[d.TOS&3], Comment: f.Comment, values: p.rec.values[:0],
	}
	if e := packet.Ethernet; e != nil {
		p.rec.SMAC, p.rec.DMAC = e.Src.String(), e.Dst.String()
	}
	for _, t := range packet.VLAN {
		p.rec.VLAN, p.rec.Priority = append(p.rec.VLAN, t.VLAN()), append(p.rec.Priority, uint16(t.Priority()))
	}
	p.rec.Truncated = len(packet.IP) < d.End
	if err := p.transport(packet); err != nil {
		p.rec.Error = strings.TrimPrefix(err.Error(), "bth: ")
	}
}

// transport parses the BTH and everything after it.
func (p *parser) transport(packet *dissect.Packet) error {
	d := &packet.Datagram
	if d.UDPLen < bth.UDPLen {
		return fmt.Errorf("UDP length %d: shorter than the UDP header", d.UDPLen)
	}
	start, end := d.UDP+bth.UDPLen, min(d.End, d.UDP+d.UDPLen)
	if d.UDPLen != d.End-d.UDP {
		if end >= start {
			_ = p.partOf(packet.IP[start:max(start, min(end, len(packet.IP)))], end-start)
		}
		return fmt.Errorf("UDP length %d, but %d bytes in the IP packet", d.UDPLen, d.End-d.UDP)
	}
	if p.rec.Truncated {
		return p.partOf(packet.IP[start:], end-start)
	}
	switch err := packet.ICRC; {
	case err == nil:
		p.rec.ICRC = icrcOK
	case errors.Is(err, bth.ErrICRC):
		p.rec.ICRC = icrcBad
	}
	return p.whole(packet.IP[start:end])
}

// whole parses b, a complete UDP payload.
func (p *parser) whole(b []byte) error {
	if _, err := p.headers(b); err != nil && !errors.Is(err, bth.ErrShort) {
		return err
	}
	switch err := p.pkt.Decode(b); {
	case errors.Is(err, bth.ErrTrimmed):
		p.rec.ICRC = "" // the ICRC is not that of the whole packet
		p.extensions(b, true)
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
		p.extensions(b, false)
	}
	return n, err
}
