package qp_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"roced.io/roced/bth"
	"roced.io/roced/reorder"
)

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
	m := reorder.NewMRC(8)
	m.Reset(bth.MakePSN(100))
	for _, psn := range []int{101, 102, 300} {
		m.Commit(bth.MakePSN(uint32(psn)), reorder.Held)
	}
	var f [2]reorder.Feedback
	for i := range f {
		m.Feedback(&f[i])
	}
	return []choice{
		{"UDP destination port", "two sources print 4971, one 4791, one both", fmt.Sprintf("sent to %d, or to %d with `mrc_udp_port`; "+
			"decoders of captures accept both", bth.UDPPort, bth.MRCUDPPort), "`MRCUDPPort`"},
		{"order of SE and M in byte 1 of the BTH", "one source has IBTA's, two the reverse", fmt.Sprintf("IBTA's: SE is 0x%02x; senders leave both clear",
			bits), "`bitSolicited`"},
		{"halves of an entropy value", "two sources put the UDP source port into the low half, one the flow label",
			fmt.Sprintf("0x0001c000 is port 0x%04x, flow label 0x%x", port, label), "`SplitEntropy`"},
		{"operation in an EETH", "two sources have bits 3:2 of byte 1, one bits 5:4", fmt.Sprintf("mask 0x%02x; not to be relied on", response[bth.BTHLen+1]),
			"`eethOpShift`"},
		{"first bit of the SACK bitmap", "the least significant one; the example of one source is off by one",
			fmt.Sprintf("bit 0 is cack + sack_offset: %d for 100 and 1", h.Base().Uint32()), "`SETH.Base`"},
		{"base of the bitmap if it does not cover all packets", "moves towards the highest packet; one source names a lowest unacknowledged PSN",
			fmt.Sprintf("the lowest packet that no SACK has reported, or the end with the highest: %d, then %d, for 100 expected and 101, 102, 300 arrived",
				f[0].Base.Uint32(), f[1].Base.Uint32()), "`reorder.MRC`"},
		{"unit of timestamps", "128 ns if tsr is 0; 1 us, or private, if it is 1", fmt.Sprintf("%d ns; tsr is shown as \"coarse\"", bth.MRCTimestampUnit),
			"`MRCTimestampUnit`"},
		{"bit \"timestamp present\" outside of WRITEs", "silent", fmt.Sprintf("ignored: a stamped probe has %d bytes", stray.WireLen()), "`Packet.Headers`"},
		{"the rest of a trimmed packet", "it ends behind METH and TSETH; silent about the ICRC",
			fmt.Sprintf("a WRITE that ends before RETH and ICRC: %v", trimmed), "`ErrTrimmed`"},
		{"DSCP of trimmed packets", "configuration; one source has 12, and 16 at the last hop", fmt.Sprintf("%d and %d", bth.MRCDSCPTrimmed,
			bth.MRCDSCPTrimmedLastHop), "`MRCDSCPTrimmed`"},
		{"PSN of a probe", "0, or the number of the probe", "not used", "`Opcode.IsProbe`"},
		{"spdcid and dpdcid", "low 16 bits of the queue pair numbers, in one source", "sent so, ignored on receipt", "`SETH.SrcContext`"},
		{"unknown NACK reasons and formats of congestion control state", "one source mentions eight reasons",
			fmt.Sprintf("valid; the name of reason 3 is %v", bth.MRCReason(3)), "`MRCReason`, `SETH.CCType`"},
		{"message sequence number of a transport acknowledgement", "width unknown", "24 bits, as in RC", "`AETH`"},
		{"first number of messages and of WRITEs with immediate data", "0 or 1", "sent from 0; receivers learn which", "`mrcResponder.consistent`"},
		{"when a Transport ACK leaves", "silent", "before each SACK if messages have been executed since the last one", "`mrcResponder.poll`"},
		{"bytes that trigger a SACK", "16 KiB in UET, 4 KiB in one source", fmt.Sprintf("%d", m.Threshold()), "`reorder.MRC.Threshold`"},
		{"packets beyond the range", "dropped in silence, or a NACK", fmt.Sprintf("NACK %v", bth.MRCOutOfWindow), "`mrcResponder.admit`"},
		{"NAK of a WRITE with immediate data beyond the limit, or without a receive", "silent; one source has an invalid request",
			fmt.Sprintf("%v", bth.SyndromeInvalidRequest), "`tooManyImms`, `mrcResponder.consistent`"},
		{"threshold of inferred losses", "open; UET has 1.5 congestion windows", "16 transmissions behind the packet, a parameter", "`retrans.MRC`"},
		{"when reliability probes leave", "UET's model: after three round trips without a SACK, then after five each",
			"the first eight after three round trips each, the others after twice the time of the last", "`mrcRequester.probeDeadline`"},
		{"when the retry counter restarts, and what uses a retry", "one counter for timeouts and NACKs", "at each arrival; losses of one burst use one retry",
			"`retrans.MRC.useRetry`"},
		{"order of linear and exponential retries, and the ceiling", "silent", fmt.Sprintf("linear first; %v", time.Duration(1024<<24).Round(time.Millisecond)),
			"`longestTimeout`"},
		{"WRITEs without payload", "1 to 2^32-1 bytes", "0 to 2^31 bytes", "`mrcResponder.locate`"},
		{"until when attributes of a queue pair may change", "the transition that requires them", "until that transition", "`mrcRules`"},
		{"MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED", "one comment says the responder, another one the peer", "the own responder answers no trimmed packets",
			"`mrc.receive`"},
		{"bits of the port status mask", "silent", "bit n is port n; 1 is reachable", "`ERTH.PortMask`"},
	}
}

// TestMRCChoices compares docs/results/mrc-choices.md with the code. With -args -rewrite it writes the page.
func TestMRCChoices(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Ambiguities of MRC\n\nFor users and developers of MRC: where public descriptions disagree or are silent, and the choice of roced. " +
		"`go test ./qp -run\nTestMRCChoices -args -rewrite` writes this page from the code.\n\n" +
		"| matter | sources | choice | place |\n|---|---|---|---|\n")
	for _, c := range slices.Concat(mrcChoices(t), pathChoices(t), nsccChoices(t)) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.matter, c.known, c.chosen, c.place)
	}
	const page = "../docs/results/mrc-choices.md"
	if flag.Lookup("rewrite").Value.String() == "true" { // of datadriven
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != b.String() {
		t.Errorf("%s is out of date (%v): go test ./qp -run TestMRCChoices -args -rewrite", page, err)
	}
}
