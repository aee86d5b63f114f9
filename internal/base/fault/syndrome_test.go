package fault

import (
	"testing"

	"roced.io/roced/bth"
)

// TestNAKBehindExtensionHeader checks that the class nak finds the AETH behind an extension header.
func TestNAKBehindExtensionHeader(t *testing.T) {
	for _, s := range []bth.Syndrome{bth.SyndromeACK, bth.SyndromePSNSeqErr} {
		for _, p := range []bth.Packet{
			{Opcode: bth.TransportRC | bth.OpAcknowledge}, {Opcode: bth.TransportMRC | bth.OpAcknowledge}, {Opcode: bth.OpcodeExtAck},
			{Opcode: bth.OpcodeExtAck, Ext: bth.XETH{Flags: bth.XHasSACK}},
		} {
			p.AETH.Syndrome = s
			b := p.AppendTo(nil)
			var v view
			if v.parseBTH(b); v.nak != (s != bth.SyndromeACK) {
				t.Errorf("%v with %d bytes and %v: %v", p.Opcode, len(b), s, v.nak)
			}
			if b[bth.BTHLen] |= 0xf; p.Opcode.IsExt() && v.nak { // an extension header beyond the packet
				if v.parseBTH(b); v.nak {
					t.Errorf("%v is a NAK without AETH", p.Opcode)
				}
			}
		}
	}
}

// TestSequenceOfMRC checks that packets without a PSN of their own are not in the sequence of requests.
func TestSequenceOfMRC(t *testing.T) {
	write := Sequence(bth.TransportMRC | bth.OpWriteOnly)
	for _, o := range []bth.Opcode{bth.OpcodeMRCSACK, bth.OpcodeMRCNACK, bth.OpcodeMRCProbe, bth.OpcodeMRCEndpointRequest, bth.OpcodeMRCEndpointResponse} {
		if Sequence(o) == write {
			t.Error(o)
		}
	}
}
