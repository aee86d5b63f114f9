package bth_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"roced.io/roced/bth"
)

var rewrite = flag.Bool("rewrite", false, "write docs/results/mrc-choices.md")

// choice is a point at which public descriptions of MRC disagree or are silent.
type choice struct{ matter, known, chosen, place string }

// mrcChoices derives the choices from the code.
func mrcChoices(t *testing.T) []choice {
	t.Helper()
	encode := func(p bth.Packet) []byte { return p.AppendTo(nil) }
	port, label := bth.SplitEntropy(0x0001c000)
	response := encode(bth.Packet{Opcode: bth.OpcodeMRCEndpointResponse, EETH: bth.EETH{Op: 3}})
	bits := encode(bth.Packet{Opcode: bth.OpcodeMRCProbe, Solicited: true})[1]
	h := bth.SETH{Cack: bth.MakePSN(100), SACKOffset: 1, Bitmap: 1}
	stray := bth.Packet{Opcode: bth.OpcodeMRCProbe, Stamped: true}
	write := bth.Packet{Opcode: bth.TransportMRC | bth.OpWriteOnly}
	trimmed := write.Decode(encode(write)[:bth.BTHLen+bth.METHLen])
	return []choice{
		{"UDP destination port", "two sources print 4971, one 4791, one both", fmt.Sprintf("sent to %d; decoders of captures accept %d, too", bth.UDPPort,
			bth.MRCUDPPort), "`MRCUDPPort`"},
		{"order of SE and M in byte 1 of the BTH", "one source has IBTA's, two the reverse", fmt.Sprintf("IBTA's: SE is 0x%02x; senders leave both clear",
			bits), "`bitSolicited`"},
		{"halves of an entropy value", "two sources put the UDP source port into the low half, one the flow label",
			fmt.Sprintf("0x0001c000 is port 0x%04x, flow label 0x%x", port, label), "`SplitEntropy`"},
		{"operation in an EETH", "two sources have bits 3:2 of byte 1, one bits 5:4", fmt.Sprintf("mask 0x%02x; not to be relied on", response[bth.BTHLen+1]),
			"`eethOpShift`"},
		{"first bit of the SACK bitmap", "the least significant one; the example of one source is off by one",
			fmt.Sprintf("bit 0 is cack + sack_offset: %d for 100 and 1", h.Base().Uint32()), "`SETH.Base`"},
		{"unit of timestamps", "128 ns if tsr is 0; 1 us, or private, if it is 1", fmt.Sprintf("%d ns; tsr is shown as \"coarse\"", bth.MRCTimestampUnit),
			"`MRCTimestampUnit`"},
		{"bit \"timestamp present\" outside of WRITEs", "silent", fmt.Sprintf("ignored: a stamped probe has %d bytes", stray.WireLen()), "`Packet.Headers`"},
		{"the rest of a trimmed packet", "it ends behind METH and TSETH; silent about the ICRC",
			fmt.Sprintf("a WRITE that ends before RETH and ICRC: %v", trimmed), "`ErrTrimmed`"},
		{"PSN of a probe", "0, or the number of the probe", "not used", "`Opcode.IsProbe`"},
		{"spdcid and dpdcid", "low 16 bits of the queue pair numbers, in one source", "decoded, not interpreted", "`SETH.SrcContext`"},
		{"unknown NACK reasons and formats of congestion control state", "one source mentions eight reasons",
			fmt.Sprintf("valid; the name of reason 3 is %v", bth.MRCReason(3)), "`MRCReason`, `SETH.CCType`"},
		{"message sequence number of a transport acknowledgement", "width unknown", "24 bits, as in RC", "`AETH`"},
		{"bits of the port status mask", "silent", "bit n is port n; 1 is reachable", "`ERTH.PortMask`"},
	}
}

// TestMRCChoices compares docs/results/mrc-choices.md with the code. With -args -rewrite it writes the page.
func TestMRCChoices(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Ambiguities of MRC\n\nFor users and developers of MRC: where public descriptions disagree or are silent, and the choice of `bth`. " +
		"`go test ./bth -args\n-rewrite` writes this page from the code. The transport itself, which will add choices, does not exist yet.\n\n" +
		"| matter | sources | choice | place |\n|---|---|---|---|\n")
	for _, c := range mrcChoices(t) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.matter, c.known, c.chosen, c.place)
	}
	const page = "../docs/results/mrc-choices.md"
	if *rewrite {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != b.String() {
		t.Errorf("%s is out of date (%v): go test ./bth -args -rewrite", page, err)
	}
}
