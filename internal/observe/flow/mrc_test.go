package flow_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"roced.io/roced/bth"
	"roced.io/roced/internal/observe/flow"
)

// TestMRC feeds a WRITE of three packets: the second arrives late, the third is trimmed and retransmitted.
func TestMRC(t *testing.T) {
	f := newFeed(0)
	write := func(o bth.Opcode, psn uint32, retx bool) bth.Packet {
		return bth.Packet{Opcode: bth.TransportMRC | o, DestQP: 7, PSN: bth.MakePSN(psn), AckReq: true, ReTx: retx, Payload: make([]byte, 256)}
	}
	sack := func(cack uint32, offset int16) {
		f.send(hostB, hostA, bth.Packet{Opcode: bth.OpcodeMRCSACK, DestQP: 3, PSN: bth.MakePSN(cack),
			SETH: bth.SETH{Cack: bth.MakePSN(cack), AckOffset: offset}})
	}
	f.send(hostA, hostB, write(bth.OpWriteFirst, 5, false))
	f.send(hostA, hostB, write(bth.OpWriteLast, 7, false))
	sent := f.now
	sack(5, 2)
	rtt := f.now.Sub(sent) // not that of packet 5
	f.send(hostA, hostB, write(bth.OpWriteMiddle, 6, true))
	f.send(hostB, hostA, bth.Packet{Opcode: bth.OpcodeMRCNACK, DestQP: 3, PSN: bth.MakePSN(7), NETH: bth.NETH{Reason: bth.MRCTrimmed, PSN: bth.MakePSN(7)}})
	f.send(hostA, hostB, write(bth.OpWriteLast, 7, true))
	f.send(hostA, hostB, bth.Packet{Opcode: bth.OpcodeMRCProbe, DestQP: 7})
	sack(7, 0)
	f.send(hostB, hostA, bth.Packet{Opcode: bth.TransportMRC | bth.OpAcknowledge, DestQP: 3, PSN: bth.MakePSN(7), AETH: bth.AETH{Syndrome: bth.SyndromeACK}})
	f.send(hostA, hostB, bth.Packet{Opcode: bth.OpcodeMRCEndpointRequest, DestQP: bth.MRCEndpointQPN})
	g := f.only(t)
	if g.Transport != "mrc" || g.Joined == "" || g.Messages != 1 || g.Bytes != 768 || g.MTU != 256 || g.FirstPSN != 5 || g.LastPSN != 7 {
		t.Errorf("%+v", g)
	}
	if q := g.Requests; q.Packets != 5 || q.Recovered != 1 || q.Retransmitted != 2 || q.Restarts != 0 {
		t.Errorf("%+v", q)
	}
	if d := cmp.Diff([]flow.Reason{{Name: "TRIMMED", Packets: 1}}, g.Responses.Reasons); d != "" {
		t.Errorf("reasons (-want +got)\n%s", d)
	}
	if s := g.Responses; s.Acks != 3 || s.NAKs.Total != 1 || s.NAKs.Other != 1 || g.RTT.Samples != 1 || g.RTT.Min != rtt {
		t.Errorf("%+v, %+v", s, g.RTT)
	}
	whole := f.packet(hostA, hostB, write(bth.OpWriteOnly, 8, false))
	trimmed := trim(t, whole)
	f.Packet(f.now, trimmed)
	if n := f.Totals(); n.Endpoint != 1 || n.Trimmed != 1 || n.BadICRC != 0 || n.Malformed != 0 {
		t.Errorf("%+v", n)
	}
	if g := f.only(t); g.Requests.Packets != 5 {
		t.Errorf("a trimmed packet counts: %+v", g.Requests)
	}
}

// trim cuts an IP packet of MRC behind its METH.
func trim(t *testing.T, b []byte) []byte {
	t.Helper()
	d, ok := bth.ReadDatagram(bth.EtherType(b), b)
	if !ok {
		t.Fatalf("%x", b)
	}
	cut := d.End - (d.UDP + bth.UDPLen + bth.BTHLen + bth.METHLen)
	b = append([]byte(nil), b[:d.End-cut]...)
	lengths := []int{2, d.UDP + 4}
	if d.Src.Is6() && !d.Src.Is4In6() {
		lengths[0] = 4
	}
	for _, at := range lengths {
		n := int(b[at])<<8 | int(b[at+1]) - cut
		b[at], b[at+1] = byte(n>>8), byte(n)
	}
	return b
}
